"""Steering runs: cancel, pause, why, logs. Embedded, and with everything in other processes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.client.blocking import BlockingRun
from rota.core.bounds import TimeLimits
from tests.integration import jobs
from tests.integration.deadlines import is_running, until, until_there
from tests.refusals import refused


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.full), "remote"])
def quick(request: pytest.FixtureRequest) -> Iterator[rota.Rota]:
    """Tasks in threads, or a service of real processes."""
    remote = request.param == "remote"
    with request.getfixturevalue("pair").connect() if remote else rota.Rota.embedded(threads=True, slots=4) as one:
        yield one


def codes(run: BlockingRun, task: str) -> list[str]:
    return [reason.code for reason in run.why(task)]


def state(run: BlockingRun, task: str) -> str:
    return run.tasks(task)[0].state


def test_cancelling_kills_the_whole_process_tree(in_processes: rota.Rota, tmp_path: Path):
    @rota.workflow
    def endless():
        jobs.nothing() >> jobs.hang(str(tmp_path))

    run = in_processes.submit(endless)
    pids = [int(pid) for pid in until_there(tmp_path / "pids").read_text().split()]
    assert all(map(is_running, pids))
    run.cancel("changed my mind")
    view = run.wait(20)
    assert (view.state, view.reason) == ("cancelled", "changed my mind")
    until(lambda: not any(map(is_running, pids)), "the processes of the task to be dead")
    assert [task.state for task in run.tasks()] == ["success", "cancelled"]
    run.cancel("and again")
    assert run.status().reason == "changed my mind", "cancelling what has ended changes nothing"
    with pytest.raises(rota.RunFailed, match="changed my mind"):
        run.result()


def test_cancelling_a_command_kills_what_it_started(in_processes: rota.Rota, tmp_path: Path):
    @rota.workflow
    def endless():
        rota.command(f"sleep 1000 & echo $! > {tmp_path}/pid; mv {tmp_path}/pid {tmp_path}/pids; sleep 1000")

    run = in_processes.submit(endless)
    pid = int(until_there(tmp_path / "pids").read_text())
    run.cancel()
    assert run.wait(20).state == "cancelled"
    until(lambda: not is_running(pid), "the command's child to be dead")


def test_a_paused_run_starts_nothing_and_goes_on_when_told(quick: rota.Rota, tmp_path: Path):
    @rota.workflow
    def chain():
        jobs.step(str(tmp_path), "b", jobs.held(str(tmp_path), "a"))

    run = quick.submit(chain)
    until(lambda: "a began" in jobs.effects(tmp_path), "the first task to begin")
    run.pause()
    (tmp_path / "a.go").touch()
    until(lambda: state(run, "held") == "success", "running attempts to finish")
    assert run.status().paused
    assert "run.paused" in codes(run, "step")
    assert "b" not in jobs.effects(tmp_path)
    run.pause(paused=False)
    assert run.wait(20).state == "success"
    assert jobs.effects(tmp_path)["b"] == 1


def test_why_names_what_a_task_waits_for(quick: rota.Rota, tmp_path: Path):
    folder = str(tmp_path)

    @rota.workflow
    def waiting():
        first = jobs.held.override(pool={"db": 1})(folder, "a")
        jobs.held.override(pool={"db": 1}, id="second")(folder, "b")
        jobs.step(folder, "after", first)

    quick.put_pool("db", 1)
    run = quick.submit(waiting)
    until(lambda: state(run, "held") == "running", "the first task to run")
    (reason,) = run.why("second")
    assert reason.code == "pool.full"
    assert "pool db has 1 of 1 taken" in reason.text
    assert codes(run, "step") == ["upstream.waiting"]
    assert codes(run, "held") == ["attempt.running"]
    for name in ("a", "b"):
        (tmp_path / f"{name}.go").touch()
    assert run.wait(20).state == "success"
    assert run.why("second") == ()
    with pytest.raises(rota.Refused, match=r"task\.unknown"):
        run.why("third")


def test_why_tells_of_a_cooldown_and_of_work_that_nobody_can_do(quick: rota.Rota, tmp_path: Path):
    @rota.workflow
    def stuck():
        jobs.shaky(str(tmp_path), "shaky")
        jobs.nothing.override(requires={"gpu_count": 8}, id="heavy")()

    run = quick.submit(stuck)
    until(lambda: state(run, "shaky") == "up_for_retry", "the first attempt to fail")
    assert codes(run, "shaky") == ["retry.cooldown"]
    (reason,) = run.why("heavy")
    assert reason.code == "worker.none_match"
    assert "gpu_count" in reason.text


def test_a_pool_that_does_not_exist_is_named_at_submission_and_can_be_made(quick: rota.Rota):
    @rota.workflow
    def pooled():
        jobs.nothing.override(pool={"missing": 1})()

    with refused("pool.unknown", "'missing'"):
        quick.submit(pooled)
    quick.put_pool("missing", 2)
    assert quick.submit(pooled).wait(20).state == "success"
    quick.drop_pool("missing")
    with pytest.raises(rota.Refused, match=r"pool\.unknown"):
        quick.drop_pool("missing")


def test_logs_are_kept_for_each_attempt(in_processes: rota.Rota):
    run = in_processes.submit(jobs.talk)
    assert run.result() == "said"
    assert b"".join(run.logs("talk")) == b"attempt 2 speaks\n"
    first = b"".join(run.logs("talk", attempt=1)).splitlines()
    assert (first[0], first[-1]) == (b"attempt 1 speaks", b"RuntimeError: once more")
    with pytest.raises(rota.Refused, match=r"attempt\.unknown"):
        next(run.logs("talk", attempt=9))
    assert b"".join(run.logs("talk", follow=True)) == b"attempt 2 speaks\n", "it has ended: all of it, at once"
    with pytest.raises(rota.Refused, match=r"task\.unknown"):
        next(run.logs("talks"))


def test_a_log_is_followed_until_the_attempt_ends(in_processes: rota.Rota, tmp_path: Path):
    lines = f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo two"

    @rota.workflow
    def slow():
        jobs.held(str(tmp_path), "before") >> rota.command(lines, id="lines")

    run = in_processes.submit(slow)
    heard: list[bytes] = []
    follower = threading.Thread(target=lambda: heard.extend(run.logs("lines", follow=True)))
    follower.start()
    (tmp_path / "before.go").touch()
    until(lambda: b"".join(heard) == b"one\n", "the first line, from a task that had not begun")
    (tmp_path / "go").touch()
    follower.join(20)
    assert b"".join(heard) == b"one\ntwo\n"
    assert run.result() == "two"


def test_following_goes_no_further_than_its_attempt(in_processes: rota.Rota):
    @rota.workflow
    def twice():
        rota.command("echo attempt $ROTA_ATTEMPT; [ $ROTA_ATTEMPT = 2 ]", id="twice", retries=1, retry_delay=0.2)

    run = in_processes.submit(twice)
    assert b"".join(run.logs("twice", 1, follow=True)) == b"attempt 1\n"
    assert b"".join(run.logs("twice", 2, follow=True)) == b"attempt 2\n"
    assert run.wait(20).state == "success"


def test_a_parked_task_can_be_resolved():
    @rota.workflow
    def heavy():
        jobs.nothing.override(requires={"gpu_count": 8})()

    limits = TimeLimits(sweep_ms=50, settle_ms=50, starve_ms=100)
    with rota.Rota.embedded(threads=True, limits=limits) as one:
        run = one.submit(heavy)
        until(lambda: state(run, "nothing") == "needs_attention", "the ladder to be climbed")
        assert run.why("nothing")
        run.resolve("nothing", "fail")
        assert run.wait(20).state == "failed"
        with refused("field.value", "'shrug'", path="way_out"):
            run.resolve("nothing", "shrug")
