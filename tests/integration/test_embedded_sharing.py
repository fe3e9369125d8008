"""One folder, several programs: one holds it, the others reach it through the one; folders that cannot be used."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.app import embedded
from tests.integration import jobs
from tests.integration.deadlines import until
from tests.refusals import refused

ROOT = Path(__file__).parents[2]

HOLDER = """
import sys
from pathlib import Path
import rota
from tests.integration import jobs

folder = Path(sys.argv[1])

@rota.workflow
def chain(folder):
    jobs.step(folder, "c", jobs.held(folder, "b", jobs.step(folder, "a")))

with rota.Rota.embedded(folder / "data", slots=2) as one:
    one.submit(chain, {"folder": str(folder)}, run="chain")
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds FOLDER/data and works on a chain whose middle is held; ends with its stdin."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused at once, and not after a moment in which the other might have left."""
    monkeypatch.setattr(embedded, "PATIENCE_S", 0.0)


def test_a_second_coordinator_is_refused_with_the_process_id_of_the_first(tmp_path: Path, impatient: None):
    with holder(tmp_path) as process:
        with refused("store.held", str(tmp_path / "data"), f"process {process.pid} on ") as caught:
            rota.Rota.embedded(tmp_path / "data")
        assert caught.value.hint


def test_a_second_coordinator_in_the_same_process_is_refused_too(tmp_path: Path, impatient: None):
    with rota.Rota.embedded(tmp_path), pytest.raises(rota.Refused, match=rf"process {os.getpid()} on "):
        rota.Rota.embedded(tmp_path)


def test_a_folder_that_is_only_looked_at_is_waited_for(tmp_path: Path):
    with rota.Rota.embedded(tmp_path, threads=True) as one:
        one.submit(jobs.add).wait()
    looking = rota.Rota.open(tmp_path)
    leaving = threading.Timer(0.2, looking.close)
    leaving.start()
    with rota.Rota.embedded(tmp_path, threads=True) as one:
        assert len(one.runs()) == 1
    leaving.join()


def test_another_program_sees_and_steers_what_runs(tmp_path: Path):
    with holder(tmp_path), rota.Rota.open(tmp_path / "data") as seen:
        run = seen.run("chain")
        until(lambda: "b began" in jobs.effects(tmp_path), "the second task to begin")
        until(lambda: [task.state for task in run.tasks()] == ["success", "running", "none"], "the states to be known")
        assert [view.id for view in seen.runs()] == ["chain"]
        assert [reason.code for reason in run.why("step_2")] == ["upstream.waiting"]
        assert any("LeaseGranted" in line for line in run.story("held"))
        assert list(run.logs("step")) == []
        assert [worker.present for worker in seen.workers()] == [True]
        with pytest.raises(TimeoutError):
            run.wait(0.05)
        (tmp_path / "b.go").touch()
        assert run.wait(20).state == "success"
        assert run.result() == "c"
        other = seen.submit(jobs.add, run="from-outside")
        assert other.result(timeout_s=20) == 0


def test_another_program_watches_from_beginning_to_end(tmp_path: Path):
    with holder(tmp_path), rota.Rota.open(tmp_path / "data") as seen:
        events: list[tuple[str | None, str]] = []
        for event in seen.run("chain").events():
            events.append((event.task, event.state))
            if (event.task, event.state) == ("held", "running"):
                (tmp_path / "b.go").touch()
        assert [state for task, state in events if task is None] == ["queued", "running", "success"]
        for task in ("step", "held", "step_2"):
            assert [state for name, state in events if name == task] == ["queued", "assigned", "running", "success"]


def test_another_program_cancels(tmp_path: Path):
    with holder(tmp_path), rota.Rota.open(tmp_path / "data") as seen:
        until(lambda: "b began" in jobs.effects(tmp_path), "the second task to begin")
        seen.run("chain").cancel("from outside")
        view = seen.run("chain").wait(20)
        assert (view.state, view.reason) == ("cancelled", "from outside")


def test_when_the_holder_leaves_a_waiting_program_is_told_and_can_take_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.client.operating.PATIENCE_S", 0.5)
    with holder(tmp_path) as process, rota.Rota.open(tmp_path / "data") as seen:
        until(lambda: "b began" in jobs.effects(tmp_path), "the second task to begin")
        said: list[BaseException] = []

        def wait() -> None:
            try:
                seen.run("chain").wait(60)
            except rota.Unavailable as unavailable:
                said.append(unavailable)

        waiting = threading.Thread(target=wait)
        waiting.start()
        process.kill()
        waiting.join(20)
        assert any(text in str(said[0]) for text in ("nobody answers at", "the coordinator hung up"))
    (tmp_path / "b.go").touch()
    with rota.Rota.embedded(tmp_path / "data") as one:
        assert one.run("chain").wait(20).state == "success"
    assert jobs.effects(tmp_path)["a"] == 1


def test_a_waiting_program_stays_with_the_run_when_the_holder_changes(tmp_path: Path):
    with holder(tmp_path) as process, rota.Rota.open(tmp_path / "data") as seen:
        until(lambda: "b began" in jobs.effects(tmp_path), "the second task to begin")
        states: list[str] = []
        waiting = threading.Thread(target=lambda: states.append(seen.run("chain").wait(60).state))
        waiting.start()
        process.kill()
        process.wait(20)
        (tmp_path / "b.go").touch()
        with rota.Rota.embedded(tmp_path / "data"):
            waiting.join(30)
        assert states == ["success"]


def test_a_folder_that_nobody_holds_can_be_read(tmp_path: Path):
    with rota.Rota.embedded(tmp_path, threads=True) as one:
        one.submit(jobs.add, run="done").wait()
    with rota.Rota.open(tmp_path) as seen:
        assert seen.run("done").result() == 0
        assert seen.workers() == ()


def test_a_folder_without_data_is_not_opened(tmp_path: Path):
    with refused("store.missing", str(tmp_path), "`rota run`"):
        rota.Rota.open(tmp_path)
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing behind"


def test_a_path_that_is_a_file_is_refused(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("mine")
    for folder in (path, path / "below"):
        with refused("store.missing", str(folder)):
            rota.Rota.embedded(folder)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("folder", ["/sys/kernel", "/sys/rota"])
def test_a_folder_that_cannot_be_written_to_is_refused(folder: str):
    # Not even the superuser may write there.
    with pytest.raises((rota.Refused, rota.Unavailable), match=r"store\."):
        rota.Rota.embedded(folder)


def test_a_file_that_is_no_database_of_ours_is_refused(tmp_path: Path):
    (tmp_path / "rota.db").write_bytes(b"something else entirely, and long enough to be looked at " * 100)
    with pytest.raises(rota.Refused, match=r"store\.corrupt"):
        rota.Rota.embedded(tmp_path)


def test_a_very_deep_folder_has_a_socket_too(tmp_path: Path):
    deep = tmp_path.joinpath(*["a-rather-long-name"] * 8)
    with rota.Rota.embedded(deep, threads=True) as one:
        one.submit(jobs.add, run="deep").wait()

        async def look() -> str:
            async with await rota.AsyncRota.open(deep) as seen:
                return (await seen.run("deep").status()).state

        assert asyncio.run(look()) == "success"


def test_limits_that_contradict_each_other_are_refused(tmp_path: Path):
    from rota.core.bounds import TimeLimits

    with refused("field.value") as caught:
        rota.Rota.embedded(tmp_path, limits=TimeLimits(lease_ms=10))
    assert caught.value.path.startswith("limits.")
    with rota.Rota.embedded(tmp_path):
        pass


def _in_copy(one: rota.Rota, to: Connection) -> None:
    try:
        one.runs()
    except RuntimeError as error:
        to.send(str(error))
    one.close()


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_is_told_to_make_its_own_and_disturbs_nothing(tmp_path: Path):
    with rota.Rota.embedded(tmp_path, threads=True) as one:
        run = one.submit(jobs.held, {"folder": str(tmp_path), "name": "a"})
        here, there = multiprocessing.Pipe()
        copy = multiprocessing.get_context("fork").Process(target=_in_copy, args=(one, there))
        copy.start()
        assert here.poll(20)
        assert f"process {os.getpid()}" in here.recv()
        copy.join(20)
        assert copy.exitcode == 0
        (tmp_path / "a.go").touch()
        assert run.wait(20).state == "success"


def _outlive(started: Connection, go: Connection) -> None:
    started.send("ready")
    go.recv()


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_forked_copy_that_lives_on_does_not_keep_the_folder(tmp_path: Path, impatient: None):
    with rota.Rota.embedded(tmp_path, threads=True):
        here, there = multiprocessing.Pipe()
        mine, yours = multiprocessing.Pipe()
        copy = multiprocessing.get_context("fork").Process(target=_outlive, args=(there, yours))
        copy.start()
        assert here.poll(20)
    with rota.Rota.embedded(tmp_path, threads=True) as again:
        assert again.runs() == []
    mine.send("go")
    copy.join(20)


def test_closing_frees_whoever_waits():
    one = rota.Rota.embedded(threads=True)
    run = one.submit(jobs.nothing.override(requires={"gpu_count": 1}))
    said: list[str] = []

    def expect_the_end(call: Any) -> None:
        try:
            call()
        except RuntimeError as error:
            said.append(str(error))

    calls = (run.wait, lambda: list(run.events()), run.result)
    waiting = [threading.Thread(target=expect_the_end, args=(call,)) for call in calls]
    for thread in waiting:
        thread.start()
    until(lambda: all(thread.is_alive() for thread in waiting), "everybody to wait")
    one.close()
    for thread in waiting:
        thread.join(20)
        assert not thread.is_alive()
    assert ["closed" in each for each in said] == [True] * 3


def test_the_async_client_frees_whoever_waits_when_it_closes():
    async def use() -> str:
        one = await rota.AsyncRota.embedded(threads=True)
        run = await one.submit(jobs.nothing.override(requires={"gpu_count": 1}))
        waiting = asyncio.create_task(run.wait())
        await run.status()
        await one.close()
        await one.close()
        with pytest.raises(RuntimeError) as caught:
            await waiting
        return str(caught.value)

    assert "closed" in asyncio.run(use())


def test_calling_the_blocking_client_from_its_own_loop_is_an_error_and_no_deadlock():
    with rota.Rota.embedded(threads=True) as one:

        async def inside() -> None:
            one.runs()

        with pytest.raises(RuntimeError, match="async client"):
            one._thread.call(inside())  # pyright: ignore[reportPrivateUsage] - the only way to be there
