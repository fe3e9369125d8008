"""Graphs under virtual time: what users test their own graphs with."""

import threading

import pytest

import rota
from rota.core.errors import Refused
from rota.testing import pass_time, run_workflow
from tests.refusals import refused

HOUR_MS = 3_600_000


@rota.task
def fetch(day: str) -> list[int]:
    return [len(day), 2]


@rota.task(queue="heavy", requires={"gpu_count": 2, "os": "plan9"}, pool={"licences": 3})
def total(numbers: list[int]) -> int:
    return sum(numbers)


@rota.workflow
def small(day: str, suffix: str = "!"):
    shout(total(fetch(day)), suffix)


@rota.task
def shout(value: int, suffix: str) -> str:
    return f"{value}{suffix}"


def test_a_graph_runs_to_its_end_and_gives_its_results():
    trial = run_workflow(small, {"day": "mon"})
    assert (trial.state, trial.reason) == ("success", "")
    assert trial.results == {"fetch": [3, 2], "total": 5, "shout": "5!"}
    assert trial.tasks["total"].attempt == 1
    assert trial.story[0].endswith("RunSubmitted")


def test_a_task_can_be_replaced_and_gets_the_arguments_of_the_one_it_stands_for():
    seen: list[str] = []

    def pretend(day: str) -> list[int]:
        seen.append(day)
        return [40]

    trial = run_workflow(small, {"day": "tue", "suffix": "?"}, replace={"fetch": pretend})
    assert seen == ["tue"]
    assert trial.results["shout"] == "40?"


def test_replacing_a_task_that_does_not_exist_is_refused():
    with pytest.raises(Refused, match="no task 'fetsch' to replace"):
        run_workflow(small, {"day": "x"}, replace={"fetsch": lambda day: day})


def test_a_parameter_that_is_missing_or_unknown_is_refused():
    with refused("field.value", "'small'", "'day'", path="params.day"):
        run_workflow(small)
    with refused("field.value", "'small'", "'night'", path="params"):
        run_workflow(small, {"day": "x", "night": "y"})


def test_hours_between_attempts_pass_in_no_time():
    tries: list[int] = []

    @rota.task(retries=3, retry_delay=3600)
    def shaky() -> int:
        tries.append(rota.context().attempt)
        if len(tries) < 4:
            raise ConnectionError("not yet")
        return len(tries)

    @rota.workflow
    def g():
        shaky()

    trial = run_workflow(g)
    assert tries == [1, 2, 3, 4]
    assert trial.results == {"shaky": 4}
    assert 3 * HOUR_MS * 3 // 4 <= trial.took_ms <= 3 * HOUR_MS * 5 // 4


def test_a_sensor_gives_its_slot_back_until_its_time():
    @rota.task
    def sensor() -> str:
        if rota.context().attempt < 5:
            raise rota.Reschedule(delay=600)
        return "seen"

    @rota.workflow
    def g():
        sensor()

    trial = run_workflow(g, slots=1)
    assert trial.results == {"sensor": "seen"}
    assert trial.took_ms // 60_000 == 40


def test_an_attempt_takes_the_time_it_says_and_its_limit_is_kept():
    @rota.task(execution_timeout=5)
    def slow(seconds: int) -> None:
        pass_time(seconds)

    @rota.workflow
    def g():
        slow(4)
        slow(9)

    trial = run_workflow(g)
    assert trial.state == "failed"
    assert [task.failure for task in trial.tasks.values()] == [None, "timeout"]
    assert trial.tasks["slow"].ended_at - trial.tasks["slow"].assigned_at == 4_000
    assert 5_000 <= trial.took_ms < 5_100


def test_commands_are_run_or_replaced():
    @rota.workflow
    def g():
        rota.command("echo one; echo two", id="said")
        rota.command(["no-such-program-anywhere"], id="pretended")
        rota.command("exit 99", id="skipped")
        rota.command("echo oops >&2; exit 3", id="failed")

    trial = run_workflow(g, replace={"pretended": lambda: "yes"})
    assert trial.results == {"said": "two", "pretended": "yes"}
    assert {name: task.state for name, task in trial.tasks.items()} == {
        "said": "success",
        "pretended": "success",
        "skipped": "skipped",
        "failed": "failed",
    }
    assert "oops" in trial.tasks["failed"].error


def test_time_cannot_be_passed_elsewhere():
    with pytest.raises(LookupError, match="run_workflow"):
        pass_time(1)


def test_a_function_is_named_as_its_author_knows_it():
    @rota.task
    def gives_what_cannot_travel() -> object:
        return threading.Lock()

    @rota.workflow
    def g():
        gives_what_cannot_travel()

    def instead() -> object:
        return threading.Lock()

    error = run_workflow(g).tasks["gives_what_cannot_travel"].error
    assert "test_testing" in error and "gives_what_cannot_travel)" in error and "_stand_ins" not in error
    replaced = run_workflow(g, replace={"gives_what_cannot_travel": instead})
    assert "<locals>.instead)" in replaced.tasks["gives_what_cannot_travel"].error
