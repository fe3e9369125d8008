"""Retries with code that really fails: how often, how soon by the records, and what a fresh budget is worth."""

from pathlib import Path

import pytest

from rota.client.blocking import BlockingRun
from rota.core.errors import headline
from rota.core.states import RunState
from tests.integration.workflows.place import Place, log_of, until_state

SHAKY = """
    from pathlib import Path

    import rota
    from rota import task, workflow


    def count(folder):
        with open(Path(folder) / "calls", "a") as file:
            file.write("x")
        return (Path(folder) / "calls").stat().st_size


    @task(retries=2, retry_delay=0.2, backoff=2)
    def shaky(folder: str, good_from: int, ctx: rota.Context) -> int:
        calls = count(folder)
        print(f"call {calls}, attempt {ctx.attempt}")
        if calls < good_from:
            raise ConnectionError(f"call {calls} was refused")
        return calls


    @workflow
    def trying(folder: str = "", good_from: int = 3):
        shaky(folder, good_from)


    @task(retries=5)
    def fail_for_good(folder: str):
        count(folder)
        raise rota.Fail("account closed")


    @task(retries=5)
    def skip(folder: str):
        count(folder)
        raise rota.Skip("nothing new today")


    @task
    def after():
        return "reached"


    @workflow
    def giving_up(folder: str = ""):
        fail_for_good(folder) >> after()


    @workflow
    def passing_over(folder: str = ""):
        skip(folder) >> [after(), after.override(id="anyway", trigger_rule="none_failed")()]


    @task.sensor(poke_interval=0.1, timeout=60, retries=2, retry_delay=0.01)
    def look(folder: str) -> bool:
        calls = count(folder)
        if calls in (3, 6):
            raise ConnectionError(f"look {calls} went wrong")
        return calls == 8


    @workflow
    def looking(folder: str = ""):
        look(folder)
    """


@pytest.fixture(scope="module", autouse=True)
def deployed(place: Place) -> None:
    """Everything that is run here."""
    place.client.deploy(place.write("shaky", SHAKY))


def waits_ms(run: BlockingRun, task: str) -> list[int]:
    """How long each try after the first was waited for, from the durable account."""
    waits: list[int] = []
    failed_at = 0
    for happened in run.events():
        if happened.task == task and happened.state == "up_for_retry":
            failed_at = happened.at
        elif happened.task == task and happened.what == "LeaseGranted" and failed_at:
            waits.append(happened.at - failed_at)
    return waits


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text())


def test_what_fails_twice_succeeds_at_the_third_try_after_growing_waits(place: Place, tmp_path: Path):
    run = place.ended("trying", {"folder": str(tmp_path)})
    (view,) = run.tasks("shaky")
    assert (run.status().state, view.attempt, view.error) == (RunState.SUCCESS, 3, "")
    assert run.result() == 3
    first, second = waits_ms(run, "shaky")
    # 200 ms, then 400. The account is one of commits: on a busy machine those of failure and grant may be late.
    assert 100 <= first < 2_000
    assert 300 <= second < 4_000
    logs = [log_of(run, "shaky", attempt).decode() for attempt in (1, 2, 3)]
    assert [log.splitlines()[0] for log in logs] == [f"call {number}, attempt {number}" for number in (1, 2, 3)]
    # Those that failed end with their tracebacks.
    assert [log.splitlines()[-1] for log in logs[:2]] == [
        f"ConnectionError: call {number} was refused" for number in (1, 2)
    ]
    assert logs[2].count("\n") == 1
    told = [happened.error for happened in run.events() if happened.state == "up_for_retry"]
    assert [headline(error) for error in told] == [f"ConnectionError: call {number} was refused" for number in (1, 2)]


def test_when_its_tries_are_used_up_it_has_failed_and_clearing_gives_it_as_many_again(place: Place, tmp_path: Path):
    run = place.ended("trying", {"folder": str(tmp_path), "good_from": 6})
    (view,) = run.tasks("shaky")
    assert (run.status().state, view.attempt, view.failure) == (RunState.FAILED, 3, "user")
    assert headline(view.error) == "ConnectionError: call 3 was refused"
    assert 'shaky.py", line ' in view.error
    run.clear(only_failed=True)
    assert run.wait(60).state is RunState.SUCCESS
    assert run.result() == 6
    (view,) = run.tasks("shaky")
    # Numbers of attempts go on, so each has a log of its own.
    assert (view.attempt, calls(tmp_path)) == (6, 6)
    assert log_of(run, "shaky", 4).startswith(b"call 4, attempt 4\n")


def test_clearing_again_and_again_never_adds_to_the_budget(place: Place, tmp_path: Path):
    run = place.ended("trying", {"folder": str(tmp_path), "good_from": 1_000})
    run.clear()
    assert run.wait(60).state is RunState.FAILED
    run.clear()
    assert run.wait(60).state is RunState.FAILED
    assert calls(tmp_path) == 9


def test_failing_for_good_uses_no_retries(place: Place, tmp_path: Path):
    run = place.ended("giving_up", {"folder": str(tmp_path)})
    failed, after = run.tasks("fail_for_good", "after")
    assert (failed.state, failed.failure, failed.attempt) == ("failed", "fatal", 1)
    assert (failed.error, after.state, calls(tmp_path)) == ("account closed", "upstream_failed", 1)


def test_a_task_that_skips_itself_says_why_and_what_follows_goes_by_its_rule(place: Place, tmp_path: Path):
    run = place.ended("passing_over", {"folder": str(tmp_path)})
    skipped, after, anyway = run.tasks("skip", "after", "anyway")
    assert (skipped.state, skipped.error, calls(tmp_path)) == ("skipped", "nothing new today", 1)
    assert (after.state, anyway.state, run.status().state) == ("skipped", "success", RunState.SUCCESS)


def test_looks_of_a_sensor_are_no_tries(place: Place, tmp_path: Path):
    run = place.ended("looking", {"folder": str(tmp_path)})
    # Two of its eight looks went wrong, and those alone were retries.
    assert run.status().state is RunState.SUCCESS, run.tasks("look")[0].error
    assert calls(tmp_path) == 8
    assert len([happened for happened in run.events() if happened.state == "up_for_retry"]) == 2


def test_a_try_that_waits_for_an_hour_can_be_had_now(place: Place, tmp_path: Path):
    text = SHAKY.replace("retry_delay=0.2, backoff=2", "retry_delay=3_600").replace("def trying", "def patient")
    place.client.deploy(place.write("patient", text))
    run = place.client.trigger("patient", {"folder": str(tmp_path), "good_from": 2})
    view = until_state(run, "shaky", "up_for_retry")
    assert view.due_at - view.started_at >= 3_600_000
    assert [reason.code for reason in run.why("shaky")] == ["retry.cooldown"]
    assert place.told("retry", run.id)["id"] == run.id
    assert run.result(timeout_s=60) == 2
