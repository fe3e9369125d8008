"""Tasks that depend on the past wait for the same task of the run before theirs, and for nothing else."""

import pytest

from rota.core import commands as cm
from rota.core.calendar import ScheduleSpec
from rota.core.invariants import validate
from rota.core.model import Graph
from rota.core.why import explain
from tests.unit.core.world import TENANT, World, graph, task

MINUTE_MS = 60_000
DAILY = graph(task("load", depends_on_past=True), task("report", "load"), name="daily")


def trigger(world: World, run: str, logical_at: int = 0, whole: Graph = DAILY) -> None:
    """A run of the workflow about that moment."""
    world.client(cm.DeployWorkflow, graph=whole)
    world.client(cm.SubmitRun, run=run, workflow=whole.name, logical_at=logical_at)


def granted_runs(world: World) -> list[tuple[str, str]]:
    """What is given to workers now: run and task."""
    world.fire_due()
    given = world.turn()
    return [(each.run, world.run(each.run).graph.task_id(each.task)) for each in given]


def grants(world: World) -> dict[str, object]:
    world.fire_due()
    return {each.run: each for each in world.turn()}


def test_the_first_run_waits_for_nobody():
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one")
    assert granted_runs(world) == [("one", "load")]


@pytest.mark.parametrize(("outcome", "goes_on"), [("success", True), ("skipped", True), ("failed", False)])
def test_a_task_goes_on_when_it_succeeded_or_was_skipped_in_the_run_before(outcome: str, goes_on: bool):
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one", 1_000)
    (first,) = world.turn()
    trigger(world, "two", 2_000)
    assert granted_runs(world) == []
    world.report(first, cm.Outcome(outcome))
    given = granted_runs(world)
    assert (("two", "load") in given) is goes_on


def test_what_is_waited_for_is_said_and_it_is_no_deadlock():
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one", 1_000)
    (first,) = world.turn()
    trigger(world, "two", 2_000)
    world.fail(first)
    world.turn()
    (reason,) = explain(world.state, world.run("two"), 0, world.now)
    assert (reason.code, dict(reason.about)) == ("past.waiting", {"run": "one", "task": "load"})
    assert "failed" in reason.text
    world.advance(60 * MINUTE_MS)
    assert world.result("two") == "running"
    assert validate(world.state, world.now) == []


@pytest.mark.parametrize("remedy", ["clear", "mark", "skip"])
def test_a_run_that_waits_goes_on_when_somebody_mends_the_run_before(remedy: str):
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one", 1_000)
    (first,) = world.turn()
    trigger(world, "two", 2_000)
    world.fail(first)
    world.advance(60 * MINUTE_MS)
    if remedy == "clear":
        world.client(cm.ClearTasks, run="one", tasks=("load",))
        (again,) = world.turn()
        world.succeed(again)
    else:
        world.client(
            cm.MarkTasks, run="one", tasks=("load",), to=cm.Mark.SUCCESS if remedy == "mark" else cm.Mark.SKIPPED
        )
    assert ("two", "load") in granted_runs(world)


def test_the_order_is_that_of_what_runs_are_about_not_of_when_they_were_made():
    world = World()
    world.worker("w", slots=5)
    trigger(world, "third", 3_000)
    world.client(cm.PauseRun, run="third")
    trigger(world, "first", 1_000)
    trigger(world, "second", 2_000)
    world.client(cm.PauseRun, run="third", paused=False)
    assert granted_runs(world) == [("first", "load")]
    assert world.run("third").before is world.run("second")


def test_a_run_before_is_kept_until_the_next_has_ended_and_the_newest_until_there_is_a_newer():
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one", 1_000)
    while given := grants(world):
        for each in given.values():
            world.succeed(each)
    assert world.result("one") == "success"
    world.advance(10 * MINUTE_MS)
    assert (TENANT, "one") in world.state.runs
    trigger(world, "two", 2_000)
    while given := grants(world):
        for each in given.values():
            world.succeed(each)
    world.advance(10 * MINUTE_MS)
    assert [run for _, run in world.state.runs] == ["two"]


def test_a_run_goes_on_after_a_restart_between_the_end_of_one_and_the_look_of_the_other():
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one", 1_000)
    (first,) = world.turn()
    trigger(world, "two", 2_000)
    world.turn()
    world.succeed(first)
    again = world.restarted()
    again.worker("w", slots=5)
    assert ("two", "load") in granted_runs(again)


def test_a_group_waits_for_all_tasks_of_the_group_before():
    world = World()
    world.worker("w", slots=9)
    grouped = graph(task("each", width=3, depends_on_past=True), name="grouped")
    trigger(world, "one", 1_000, grouped)
    first = world.turn()
    trigger(world, "two", 2_000, grouped)
    for each in first[:2]:
        world.succeed(each)
    assert granted_runs(world) == []
    world.succeed(first[2])
    assert len(granted_runs(world)) == 3


def test_a_task_that_the_run_before_did_not_have_waits_for_nobody():
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one", 1_000)
    world.turn()
    other = graph(task("fresh", depends_on_past=True), name="daily")
    trigger(world, "two", 2_000, other)
    assert granted_runs(world) == [("two", "fresh")]


def test_scheduled_runs_go_one_after_the_other():
    world = World(now=10 * MINUTE_MS * 1_000)
    world.worker("w", slots=5)
    world.client(cm.DeployWorkflow, graph=DAILY, schedule=ScheduleSpec(every_ms=MINUTE_MS))
    world.advance(2 * MINUTE_MS)
    assert len([run for run in world.state.runs.values() if run.row.state == "running"]) >= 2
    assert len(granted_runs(world)) == 1


def test_a_task_goes_on_when_the_run_it_waits_for_moves_to_a_version_without_it():
    world = World()
    world.worker("w", slots=5)
    trigger(world, "one", 1_000)
    (first,) = world.turn()
    world.report(first, cm.Outcome.FAILED)
    trigger(world, "two", 2_000)
    assert granted_runs(world) == []
    world.client(cm.DeployWorkflow, graph=graph(task("other"), name="daily"))
    world.client(cm.MoveRun, run="one", version=2)
    assert ("two", "load") in granted_runs(world)
    assert validate(world.state, world.now) == []
