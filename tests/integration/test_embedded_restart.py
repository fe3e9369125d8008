"""A program that is killed in the middle of a graph: the next one goes on, and does nothing again that was finished."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rota
from rota.app import survivors
from rota.core.changes import RELEASED
from tests.integration import jobs
from tests.integration.deadlines import descendants, is_running, until
from tests.integration.embedded_program import WIDTH

pytestmark = pytest.mark.full

FAN = [f"m{number}" for number in range(WIDTH)]


@contextmanager
def program(folder: Path, shape: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program, which cannot outlive the test."""
    command = [sys.executable, "-m", "tests.integration.embedded_program", str(folder), shape]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        try:
            yield process
        finally:
            process.kill()


def told(folder: Path) -> list[str]:
    path = folder / "told"
    return path.read_text().splitlines() if path.exists() else []


def kill_when(folder: Path, shape: str, lines: list[str], *effects: str) -> None:
    """Run the program until all of this is durable, and done, then kill it so that it can do nothing any more."""
    with program(folder, shape) as process:
        until(lambda: set(lines) <= set(told(folder)), f"{lines} to be durable")
        until(lambda: set(effects) <= set(jobs.effects(folder)), f"{effects} to be done")
        process.send_signal(signal.SIGKILL)
        process.wait(20)


@pytest.mark.parametrize(
    ("shape", "lines", "gate", "once"),
    [
        ("chain", ["step success", "held running"], "b", ["a", "b", "c"]),
        ("diamond", ["step success", "step_2 success", "held running"], "right", ["top", "left", "right", "bottom"]),
        (
            "fan",
            [*(f"step_{number + 2} success" for number in range(WIDTH)), "held running"],
            "slow",
            ["first", *FAN, "slow", "last"],
        ),
        ("cooldown", ["shaky up_for_retry", "held running"], "slow", ["shaky 1", "shaky 2", "slow", "last"]),
        ("resources", ["step success", "held running"], "work", ["setup", "work", "teardown"]),
    ],
    ids=["chain", "diamond", "fan out and in", "retry in cooldown", "setup and teardown"],
)
def test_after_a_kill_the_run_goes_on_and_nothing_finished_is_done_again(
    tmp_path: Path, shape: str, lines: list[str], gate: str, once: list[str]
):
    kill_when(tmp_path, shape, lines, f"{gate} began")
    with rota.Rota.embedded(tmp_path / "data", slots=2) as one:
        # By now nothing of the killed program is left that could see it.
        (tmp_path / f"{gate}.go").touch()
        run = one.run(shape)
        assert run.wait(30).state == "success"
        # What was under way began twice, and the attempt that was lost cost no retry.
        assert jobs.effects(tmp_path) == {**dict.fromkeys(once, 1), f"{gate} began": 2}
        (held,) = run.tasks("held")
        assert held.attempt == 1
        assert "\n".join(run.story("held")).count("struck off") == 1


def test_a_kill_before_anything_began_loses_nothing(tmp_path: Path):
    kill_when(tmp_path, "chain", ["None queued"])
    (tmp_path / "b.go").touch()
    with rota.Rota.embedded(tmp_path / "data", threads=True) as one:
        assert one.run("chain").wait(30).state == "success"
    assert {"a", "b", "c"} <= set(jobs.effects(tmp_path))


def test_a_run_that_has_ended_is_still_there_after_a_kill(tmp_path: Path):
    (tmp_path / "b.go").touch()
    kill_when(tmp_path, "chain", ["None success"])
    with rota.Rota.embedded(tmp_path / "data", threads=True) as one:
        run = one.run("chain")
        assert (run.result(), run.status().state) == ("c", "success")
        assert [event.state for event in run.events() if event.task is None] == ["queued", "running", "success"]
    assert jobs.effects(tmp_path) == {"a": 1, "b": 1, "b began": 1, "c": 1}


def test_what_the_killed_program_had_started_is_dead(tmp_path: Path):
    with program(tmp_path, "chain") as process:
        until(lambda: "held running" in told(tmp_path), "a task to run")
        family = descendants(process.pid)
        assert len(family) >= 3, "supervisor and runners"
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        until(lambda: not any(map(is_running, family)), "everything it had started to be dead")


def test_the_next_holder_begins_when_nothing_of_the_last_is_left(tmp_path: Path):
    with program(tmp_path, "chain") as process:
        until(lambda: "b began" in jobs.effects(tmp_path), "a task to run")
        family = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        with rota.Rota.embedded(tmp_path / "data"):
            assert not any(map(is_running, family))


def test_what_cannot_be_ended_keeps_its_lease_until_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(survivors, "PATIENCE_S", 0.2)
    with program(tmp_path, "chain") as process:
        until(lambda: "b began" in jobs.effects(tmp_path), "a task to run")
        family = descendants(process.pid)
        for pid in family[:2]:
            os.kill(pid, signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGKILL)
            process.wait(20)
            with rota.Rota.embedded(tmp_path / "data", slots=2) as one:
                run = one.run("chain")
                with pytest.raises(TimeoutError):
                    run.wait(0.5)
                (held,) = run.tasks("held")
                assert held.state in ("assigned", "running")
                assert jobs.effects(tmp_path)["b began"] == 1, "it was not given to another"
        finally:
            for pid in family[:2]:
                os.kill(pid, signal.SIGCONT)
        until(lambda: not any(map(is_running, family)), "the rest of the killed program to end")
    with rota.Rota.embedded(tmp_path / "data", slots=2) as one:
        (tmp_path / "b.go").touch()
        assert one.run("chain").wait(30).state == "success"


def test_killed_again_and_again_a_run_still_ends(tmp_path: Path):
    for count in range(1, 4):
        (tmp_path / "told").unlink(missing_ok=True)
        with subprocess.Popen([sys.executable, "-c", RESUME, str(tmp_path)], cwd=Path(__file__).parents[2]) as process:
            try:
                until(lambda: "held running" in told(tmp_path), "the slow task to run")
                until(lambda count=count: jobs.effects(tmp_path).get("b began") == count, "its function to be called")
            finally:
                process.send_signal(signal.SIGKILL)
    with rota.Rota.embedded(tmp_path / "data", slots=2) as one:
        (tmp_path / "b.go").touch()
        assert one.run("chain").wait(30).state == "success"
        assert "\n".join(one.run("chain").story("held")).count("counted=True") == 3
    assert jobs.effects(tmp_path) == {"a": 1, "b began": 4, "b": 1, "c": 1}


RESUME = """
import sys
from pathlib import Path
import rota
from rota.app import survivors
from tests.integration.embedded_program import chain

folder = Path(sys.argv[1])
one = rota.Rota.embedded(folder / "data", slots=2)
try:
    run = one.run("chain")
    run.status()
except rota.Refused:
    run = one.submit(chain, {"folder": str(folder)}, run="chain")
with (folder / "told").open("w", buffering=1) as told:
    for event in run.events():
        if event.what == "LeaseReturned":
            told.seek(0)
            told.truncate()
        told.write(f"{event.task} {event.state}\\n")
"""


def test_closing_hands_work_back_unspent(tmp_path: Path):
    @rota.workflow
    def slow():
        jobs.held(str(tmp_path), "slow")

    with rota.Rota.embedded(tmp_path / "data") as one:
        run = one.submit(slow, run="slow")
        until(lambda: "slow began" in jobs.effects(tmp_path), "the task to begin")
    (tmp_path / "slow.go").touch()
    with rota.Rota.embedded(tmp_path / "data") as one:
        run = one.run("slow")
        assert run.wait(20).state == "success"
        (task,) = run.tasks()
        assert task.attempt == 1
        assert RELEASED in "\n".join(run.story())
    assert jobs.effects(tmp_path) == {"slow began": 2, "slow": 1}


def test_closing_while_nothing_runs_is_quick_and_may_be_repeated(tmp_path: Path):
    one = rota.Rota.embedded(tmp_path)
    one.close()
    one.close()
    with pytest.raises(RuntimeError, match="closed"):
        one.runs()
    with pytest.raises(RuntimeError, match="closed"):
        one.submit(jobs.nothing)
    assert not (tmp_path / "rota.sock").exists()
    with rota.Rota.embedded(tmp_path) as again:
        assert again.runs() == []


def test_a_program_that_forgets_to_close_ends_all_the_same(tmp_path: Path):
    program = (
        "import rota, tests.integration.jobs as jobs\n"
        "one = rota.Rota.embedded()\n"
        "print(one.submit(jobs.add).result())\n"
        "one.submit(jobs.block)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
    assert list(tmp_path.iterdir()) == [], "what is in memory leaves nothing behind"
