"""Workflows: versions, parameters, pausing, schedules that go on across deployments, backfills, moving runs."""

import msgspec
import pytest

from rota.core import commands as cm
from rota.core.bounds import (
    VERSIONS_KEPT_MAX,
    VERSIONS_KEPT_MIN,
    VERSIONS_PARAMS_BYTES_MAX,
    VERSIONS_TASKS_MAX,
)
from rota.core.calendar import CONTINUOUS, ONCE, ScheduleSpec
from rota.core.ids import BlobRef
from rota.core.images import take_batch
from rota.core.invariants import validate
from rota.core.model import Graph, Param, ParamType, PriorityClass
from rota.core.questions import BackfillView, GetWorkflow, ListBackfills, ListWorkflows, WorkflowView, answer
from rota.core.records import Task
from rota.core.spans import show_slot
from tests.unit.core.world import TENANT, World, graph, task

pack = msgspec.msgpack.encode
MINUTE_MS = 60_000
# A round minute, so that slots are easy to read.
NOW = 20_000_000 * MINUTE_MS
MINUTELY = ScheduleSpec(every_ms=MINUTE_MS)
ONE = graph(task("a"), name="w")
TWO = graph(task("a"), task("b", "a"), name="w")


def deploy(world: World, whole: Graph = ONE, **fields: object) -> int:
    """Deploy; the number of the version."""
    return int(world.client(cm.DeployWorkflow, graph=whole, **fields).answer)


def trigger(world: World, run: str = "r", **fields: object) -> None:
    """A run of the workflow."""
    world.client(cm.SubmitRun, run=run, workflow="w", **fields)


def view(world: World) -> WorkflowView:
    found = answer(world.state, GetWorkflow(tenant=TENANT, workflow="w"), world.now)
    assert isinstance(found, WorkflowView)
    return found


def finish(world: World) -> None:
    """Everything that can run succeeds."""
    world.fire_due()
    while granted := world.turn():
        for each in granted:
            world.succeed(each)
        world.fire_due()


# Versions.


def test_the_same_content_is_the_same_version_and_changes_nothing():
    world = World(now=NOW)
    assert deploy(world, schedule=MINUTELY) == 1
    assert world.client(cm.DeployWorkflow, graph=ONE, schedule=MINUTELY).changes == []
    assert deploy(world, TWO, schedule=MINUTELY) == 2
    assert deploy(world, ONE, schedule=MINUTELY) == 1
    assert deploy(world, graph(task("c"), name="w")) == 3
    assert [version.number for version in view(world).workflow.versions] == [1, 2, 3]


def test_a_run_keeps_the_version_it_started_with():
    world = World(now=NOW)
    world.worker("w", slots=5)
    deploy(world, TWO)
    trigger(world, "old")
    (a,) = world.turn()
    deploy(world, ONE)
    trigger(world, "new")
    world.succeed(a)
    finish(world)
    assert world.states("old") == {"a": "success", "b": "success"}
    assert world.states("new") == {"a": "success"}
    assert (world.run("old").row.version, world.run("new").row.version) == (1, 2)


def test_an_older_version_can_be_run_while_it_is_kept():
    world = World(now=NOW)
    deploy(world, TWO)
    deploy(world, ONE)
    trigger(world, "r", version=1)
    assert len(world.run().graph.specs) == 2
    refused = world.refusal(world.command(cm.SubmitRun, run="x", workflow="w", version=7))
    assert (refused.code, refused.path) == ("workflow.unknown", "version")


def test_so_many_versions_are_kept_and_their_graphs_with_them():
    world = World(now=NOW)
    for number in range(VERSIONS_KEPT_MAX + 3):
        deploy(world, graph(task(f"t{number}"), name="w"))
    world.advance(10 * MINUTE_MS)
    kept = [version.number for version in view(world).workflow.versions]
    assert kept == list(range(4, VERSIONS_KEPT_MAX + 4))
    assert len(world.state.graphs) == VERSIONS_KEPT_MAX
    again = world.restarted()
    again.advance(10 * MINUTE_MS)
    assert len(again.state.graphs) == VERSIONS_KEPT_MAX


def bundled(whole: Graph, letter: str) -> Graph:
    """The same graph with a bundle, which is named by its content."""
    return msgspec.structs.replace(whole, bundle=BlobRef(f"{TENANT}/.bundles/{letter * 64}.zip", 10, letter * 64))


def test_the_same_code_in_another_bundle_is_the_same_version_with_the_bundle_it_had():
    world = World(now=NOW)
    assert deploy(world, bundled(TWO, "a"), code="x", schedule=MINUTELY) == 1
    again = world.client(cm.DeployWorkflow, graph=bundled(TWO, "b"), code="x", schedule=MINUTELY)
    assert (again.answer, again.changes) == ("1", [])
    assert deploy(world, bundled(TWO, "b"), code="y", schedule=MINUTELY) == 2
    # The code alone is not all: the graph may come from what was found while it was compiled.
    assert deploy(world, bundled(ONE, "c"), code="y", schedule=MINUTELY) == 3
    assert deploy(world, bundled(TWO, "d"), code="x", schedule=MINUTELY) == 1
    world.fire_due()
    trigger(world)
    graphs = [
        world.state.graphs[(TENANT, digest)].graph for digest in (view(world).workflow.graph, world.run().row.graph)
    ]
    assert graphs == [bundled(TWO, "a")] * 2
    assert world.state.schedules[(TENANT, "w")].graph == view(world).workflow.graph
    validate(world.state, world.now)


def test_without_the_digest_of_its_code_another_bundle_is_another_version():
    world = World(now=NOW)
    assert [deploy(world, bundled(ONE, letter)) for letter in "aba"] == [1, 2, 1]
    # A version that was deployed without it is the same one with it, and known by it from then on.
    assert deploy(world, bundled(ONE, "b"), code="x") == 2
    assert deploy(world, bundled(ONE, "c"), code="x") == 2
    assert deploy(world, bundled(ONE, "c")) == 3


@pytest.mark.parametrize(
    ("tasks", "params", "kept"),
    [
        (1, (), VERSIONS_KEPT_MAX),
        (VERSIONS_TASKS_MAX // VERSIONS_KEPT_MAX, (), VERSIONS_KEPT_MAX),
        (VERSIONS_TASKS_MAX // 50, (), 50),
        (VERSIONS_TASKS_MAX, (), VERSIONS_KEPT_MIN),
        (1, (Param(name="p", default=pack("x" * (VERSIONS_PARAMS_BYTES_MAX // 40))),), 38),
        (1, (Param(name="p", default=pack("x" * 200_000)),), VERSIONS_KEPT_MIN),
    ],
)
def test_a_large_workflow_keeps_fewer_versions_and_never_less_than_some(
    tasks: int, params: tuple[Param, ...], kept: int
):
    world = World(now=NOW)
    rest = [task(f"t{number}") for number in range(tasks - 1)]
    for number in range(VERSIONS_KEPT_MAX + 5):
        deploy(world, graph(task(f"first{number}"), *rest, name="w"), params=params)
    numbers = [version.number for version in view(world).workflow.versions]
    assert numbers == list(range(VERSIONS_KEPT_MAX + 6 - kept, VERSIONS_KEPT_MAX + 6))


def test_a_run_goes_on_and_is_cleared_after_its_version_was_dropped():
    world = World(now=NOW)
    world.worker("w", slots=1)
    deploy(world, TWO)
    trigger(world, "old")
    (a,) = world.turn()
    for number in range(VERSIONS_KEPT_MAX):
        deploy(world, graph(task(f"t{number}"), name="w"))
    assert view(world).workflow.versions[0].number == 2
    again = world.restarted()
    assert [spec.id for spec in again.run("old").graph.specs] == ["a", "b"]
    world.succeed(a)
    finish(world)
    world.client(cm.ClearTasks, run="old", tasks=("b",))
    assert world.states("old")["b"] != "success"
    finish(world)
    assert world.states("old") == {"a": "success", "b": "success"}
    assert world.run("old").row.version == 1
    validate(world.state, world.now)


def test_the_version_of_a_backfill_is_kept_while_it_makes_runs():
    world = World(now=NOW)
    deploy(world, TWO, schedule=MINUTELY)
    backfill(world)
    for number in range(VERSIONS_KEPT_MAX + 2):
        deploy(world, graph(task(f"t{number}"), name="w"), schedule=MINUTELY)
    versions = [version.number for version in view(world).workflow.versions]
    assert (versions[0], versions[1], len(versions)) == (1, 4, VERSIONS_KEPT_MAX + 1)
    world.client(cm.CancelBackfill, backfill="b")
    deploy(world, ONE, schedule=MINUTELY)
    assert view(world).workflow.versions[0].number == 5


def test_a_list_of_workflows_has_the_newest_versions_and_the_present_one():
    world = World(now=NOW)
    for number in range(30):
        deploy(world, graph(task(f"t{number}"), name="w"))
    deploy(world, graph(task("t3"), name="w"))
    (listed,) = answer(world.state, ListWorkflows(tenant=TENANT), world.now)
    numbers = [version.number for version in listed.workflow.versions]
    assert numbers == [4, *range(22, 31)]
    assert len(view(world).workflow.versions) == 30


def test_a_name_that_nobody_deployed_is_refused_with_the_nearest():
    world = World(now=NOW)
    deploy(world, graph(task("a"), name="nightly"))
    refused = world.refusal(world.command(cm.SubmitRun, run="x", workflow="nightyl"))
    assert (refused.code, refused.hint) == ("workflow.unknown", "Did you mean nightly?")


def test_a_broken_graph_leaves_the_version_that_was_there():
    world = World(now=NOW)
    deploy(world)
    circle = graph(task("a", "b"), task("b", "a"), name="w")
    assert world.refusal(world.command(cm.DeployWorkflow, graph=circle)).code == "graph.cycle"
    bad = ScheduleSpec(cron="61 * * * *")
    assert world.refusal(world.command(cm.DeployWorkflow, graph=TWO, schedule=bad)).code == "schedule.cron"
    assert view(world).workflow.version == 1


# Moving a run.


def test_a_run_is_moved_to_another_version_with_what_it_has_done():
    world = World(now=NOW)
    world.worker("w", slots=5)
    deploy(world, graph(task("a"), task("bad", "a"), task("end", "bad"), name="w"))
    trigger(world)
    (a,) = world.turn()
    world.succeed(a, result=b"kept")
    (bad,) = world.turn()
    world.fail(bad)
    deploy(world, graph(task("new"), task("fixed", "a"), task("a", "new"), task("end", "fixed"), name="w"))
    world.client(cm.MoveRun, run="r")
    world.client(cm.ClearTasks, run="r", only_failed=True)
    assert world.run().row.version == 2
    assert world.task("a").result == b"kept"
    finish(world)
    assert world.states() == {"new": "success", "fixed": "success", "a": "success", "end": "success"}
    assert world.result() == "success"
    assert validate(world.state, world.now) == []


def test_a_run_with_tasks_at_work_is_not_moved():
    world = World(now=NOW)
    world.worker("w", slots=5)
    deploy(world, TWO)
    trigger(world)
    world.turn()
    deploy(world, ONE)
    assert world.refusal(world.command(cm.MoveRun, run="r")).code == "run.at_work"


def test_a_paused_run_is_moved_and_goes_on_when_it_is_resumed():
    world = World(now=NOW)
    world.worker("w", slots=5)
    deploy(world, TWO)
    trigger(world)
    (a,) = world.turn()
    world.client(cm.PauseRun, run="r")
    world.succeed(a)
    deploy(world, graph(task("a"), task("c", "a"), task("d", "c"), name="w"))
    world.client(cm.MoveRun, run="r")
    world.client(cm.PauseRun, run="r", paused=False)
    finish(world)
    assert world.states() == {"a": "success", "c": "success", "d": "success"}


def test_a_task_that_a_moved_run_has_again_is_written_and_not_dropped():
    world = World(now=NOW)
    world.worker("w", slots=5)
    deploy(world, graph(task("a"), task("b", "a"), name="w"))
    trigger(world)
    world.client(cm.PauseRun, run="r")
    world.follow_up()
    deploy(world, graph(task("new"), task("b", "new"), name="w"))
    take_batch(world.state, world.now)
    world.client(cm.MoveRun, run="r")
    world.follow_up()
    batch = take_batch(world.state, world.now)
    assert world.states() == {"new": "queued", "b": "none"}
    assert [record.idx for record in batch.puts if isinstance(record, Task)] == [0]
    assert [key for key in batch.drops if key[0] == "Task"] == []


def test_a_trigger_that_is_repeated_after_its_run_was_moved_is_answered():
    world = World(now=NOW)
    deploy(world, TWO)
    command = world.command(cm.SubmitRun, run="r", workflow="w", version=1)
    world.do(command)
    deploy(world, ONE)
    world.client(cm.MoveRun, run="r")
    assert world.run().row.version == 2
    repeated = world.do(command)
    assert (repeated.answer, repeated.changes, repeated.is_repeat) == ("r", [], True)


def test_what_was_mapped_stays_mapped():
    world = World(now=NOW)
    world.worker("w", slots=5)
    mapped = (task("a"), task("each", "a", width=0))
    deploy(world, graph(*mapped, name="w"))
    trigger(world)
    (a,) = world.turn()
    world.succeed(a, expands=(("each", 3),))
    finish(world)
    deploy(world, graph(*mapped, task("end", "each"), name="w"))
    world.client(cm.MoveRun, run="r")
    assert validate(world.state, world.now) == []
    finish(world)
    assert world.states() == {"a": "success", **{f"each[{number}]": "success" for number in range(3)}, "end": "success"}
    assert validate(world.restarted().state, world.now) == []


def test_a_run_that_is_of_no_workflow_has_nowhere_to_move():
    world = World(now=NOW)
    world.submit(ONE)
    assert world.refusal(world.command(cm.MoveRun, run="r")).code == "run.no_workflow"


# Parameters.


def test_parameters_are_checked_and_defaults_filled_in_where_the_run_is_accepted():
    world = World(now=NOW)
    params = (
        Param(name="day", type=ParamType.DATE),
        Param(name="limit", type=ParamType.INTEGER, default=pack(10), least=1, most=100),
    )
    deploy(world, params=params)
    trigger(world, "r", params=pack({"day": "2026-11-16"}))
    assert msgspec.msgpack.decode(world.run().row.params) == {"day": "2026-11-16", "limit": 10}
    refused = world.refusal(world.command(cm.SubmitRun, run="x", workflow="w", params=pack({"day": "2026-02-30"})))
    assert (refused.code, refused.path) == ("field.value", "params.day")


def test_a_schedule_needs_parameters_that_have_defaults():
    world = World(now=NOW)
    params = (Param(name="day", type=ParamType.DATE),)
    refused = world.refusal(world.command(cm.DeployWorkflow, graph=ONE, params=params, schedule=MINUTELY))
    assert (refused.code, refused.path, "'day'" in refused.reason) == ("field.value", "params", True)
    deploy(world, params=(Param(name="day", default=pack("x")),), schedule=MINUTELY)
    world.advance(MINUTE_MS)
    run, *_ = world.state.runs.values()
    assert msgspec.msgpack.decode(run.row.params) == {"day": "x"}


def test_the_same_trigger_twice_is_one_run_even_after_another_deployment():
    world = World(now=NOW)
    deploy(world, TWO)
    command = world.command(cm.SubmitRun, run="r", workflow="w", logical_at=5)
    world.do(command)
    deploy(world, ONE)
    assert world.do(command).is_repeat
    other = msgspec.structs.replace(command, logical_at=6)
    assert world.refusal(other).code == "command.id_reused"


# Pausing.


def test_a_paused_workflow_starts_nothing_gives_nothing_away_and_lets_finish_what_runs():
    world = World(now=NOW)
    world.worker("w", slots=1)
    deploy(world, TWO, schedule=MINUTELY)
    trigger(world, "one")
    (a,) = world.turn()
    world.client(cm.PauseWorkflow, workflow="w")
    world.succeed(a)
    trigger(world, "two")
    world.advance(5 * MINUTE_MS)
    assert world.turn() == []
    assert world.states("one") == {"a": "success", "b": "queued"}
    assert world.result("two") == "queued"
    assert [run for _, run in world.state.runs] == ["one", "two"]
    assert validate(world.state, world.now) == []
    again = world.restarted()
    again.worker("w", slots=5)
    assert again.turn() == []
    again.client(cm.PauseWorkflow, workflow="w", paused=False)
    finish(again)
    assert (again.result("one"), again.result("two")) == ("success", "success")
    # Of the slots that passed the newest is made, as after any absence.
    assert [run for _, run in again.state.runs if "@" in run] == [f"w@{show_slot(NOW + 5 * MINUTE_MS)}"]


def test_pausing_twice_changes_nothing_and_deploying_leaves_it_paused():
    world = World(now=NOW)
    deploy(world)
    world.client(cm.PauseWorkflow, workflow="w")
    assert world.client(cm.PauseWorkflow, workflow="w").changes == []
    deploy(world, TWO)
    assert view(world).workflow.paused
    deploy(world, TWO, paused=False)
    assert not view(world).workflow.paused


def test_runs_of_the_same_name_that_are_no_workflows_are_not_paused():
    world = World(now=NOW)
    world.worker("w", slots=5)
    deploy(world, TWO, paused=True)
    world.submit(ONE, "by hand")
    finish(world)
    assert world.result("by hand") == "success"


# Schedules.


def test_a_schedule_goes_on_where_it_was_with_the_new_version():
    world = World(now=NOW)
    deploy(world, schedule=MINUTELY)
    world.advance(MINUTE_MS + 1)
    deploy(world, TWO, schedule=MINUTELY)
    world.advance(MINUTE_MS)
    versions = {run.row.id: run.row.version for run in world.state.runs.values()}
    assert versions == {f"w@{show_slot(NOW + number * MINUTE_MS)}": version for number, version in enumerate((1, 1, 2))}


def test_a_manual_run_moves_no_cursor():
    world = World(now=NOW)
    deploy(world, schedule=MINUTELY)
    world.fire_due()
    trigger(world, "ahead", logical_at=NOW + 10 * MINUTE_MS)
    world.advance(3 * MINUTE_MS)
    assert sum("@" in run for _, run in world.state.runs) == 4


def test_a_deployment_without_a_schedule_takes_it_away():
    world = World(now=NOW)
    deploy(world, schedule=MINUTELY)
    deploy(world)
    world.advance(5 * MINUTE_MS)
    assert not world.state.runs
    assert view(world).schedule is None


def test_a_workflow_that_is_taken_away_leaves_its_runs_to_themselves():
    world = World(now=NOW)
    world.worker("w", slots=5)
    deploy(world, TWO, schedule=MINUTELY)
    world.fire_due()
    trigger(world, "paused")
    world.client(cm.PauseWorkflow, workflow="w")
    world.client(cm.DropWorkflow, workflow="w")
    world.advance(3 * MINUTE_MS)
    finish(world)
    assert world.result("paused") == "success"
    assert not world.state.schedules
    assert answer(world.state, ListWorkflows(tenant=TENANT), world.now) == ()
    world.advance(10 * MINUTE_MS)
    assert not world.state.graphs


def test_the_next_slot_is_told():
    world = World(now=NOW)
    deploy(world, schedule=ScheduleSpec(cron="0 0 * * *"))
    world.fire_due()
    day_ms = 24 * 60 * MINUTE_MS
    assert view(world).next_at == (NOW // day_ms + 1) * day_ms
    world.client(cm.PauseWorkflow, workflow="w")
    assert view(world).next_at is None


# Backfills.


def backfill(world: World, minutes: int = 10, **fields: object) -> None:
    stretch = {"start_at": NOW - minutes * MINUTE_MS, "end_at": NOW - MINUTE_MS, **fields}
    world.client(cm.StartBackfill, backfill="b", workflow="w", **stretch)


def backfills(world: World) -> tuple[BackfillView, ...]:
    found = answer(world.state, ListBackfills(tenant=TENANT), world.now)
    assert isinstance(found, tuple)
    return tuple(each for each in found if isinstance(each, BackfillView))


def test_a_backfill_makes_the_slots_of_a_stretch_the_oldest_first_so_many_at_once():
    world = World(now=NOW)
    world.worker("w", slots=50)
    deploy(world, schedule=MINUTELY)
    backfill(world, 10, max_active_runs=3)
    world.fire_due()
    made = [run.row for run in world.state.runs.values() if run.row.backfill]
    assert [row.slot_at for row in made] == [NOW - minutes * MINUTE_MS for minutes in (10, 9, 8)]
    assert {row.priority for row in made} == {PriorityClass.LOW}
    (shown,) = backfills(world)
    assert (shown.made, shown.active, shown.left) == (3, 3, 7)
    finish(world)
    assert sum(run.row.backfill for run in world.state.runs.values()) == 10
    assert backfills(world) == ()


def test_a_backfill_never_holds_up_the_runs_of_the_day():
    world = World(now=NOW)
    world.worker("w", slots=1)
    deploy(world, graph(task("a"), name="w", max_active_runs=1), schedule=MINUTELY)
    backfill(world, 10, max_active_runs=5)
    world.fire_due()
    world.follow_up()
    active = [run.row for run in world.state.runs.values() if run.row.state == "running"]
    assert sum(row.backfill for row in active) == 5
    assert sum(not row.backfill for row in active) == 1
    assert validate(world.state, world.now) == []


def test_a_backfill_goes_on_at_once_when_its_workflow_does():
    world = World(now=NOW)
    deploy(world, schedule=MINUTELY)
    world.client(cm.PauseWorkflow, workflow="w")
    backfill(world, 3)
    world.fire_due()
    assert not any(run.row.backfill for run in world.state.runs.values())
    world.client(cm.PauseWorkflow, workflow="w", paused=False)
    world.fire_due()
    assert sum(run.row.backfill for run in world.state.runs.values()) == 3


def test_the_backfills_of_a_workflow_end_with_it_whatever_version_they_are_of():
    world = World(now=NOW)
    deploy(world, TWO, schedule=MINUTELY)
    backfill(world)
    for number in range(VERSIONS_KEPT_MAX):
        deploy(world, graph(task(f"t{number}"), name="w"), schedule=MINUTELY)
    world.client(cm.DropWorkflow, workflow="w")
    assert backfills(world) == ()


def test_a_cancelled_backfill_makes_no_more_and_cancels_its_own():
    world = World(now=NOW)
    deploy(world, TWO, schedule=MINUTELY)
    trigger(world, "mine")
    backfill(world)
    world.fire_due()
    world.client(cm.CancelBackfill, backfill="b")
    world.follow_up()
    states = {run.row.id: run.row.state.value for run in world.state.runs.values()}
    assert {state for run, state in states.items() if run.startswith("b@")} == {"cancelled"}
    assert states["mine"] == "running"
    assert world.refusal(world.command(cm.CancelBackfill, backfill="b")).code == "backfill.unknown"


@pytest.mark.parametrize(
    ("schedule", "stretch"),
    [
        (None, {}),
        (ScheduleSpec(cron=ONCE), {}),
        (ScheduleSpec(cron=CONTINUOUS), {}),
        (MINUTELY, {"start_at": NOW + MINUTE_MS, "end_at": NOW + 9 * MINUTE_MS}),
        (MINUTELY, {"start_at": NOW, "end_at": NOW - MINUTE_MS}),
        (ScheduleSpec(cron="0 0 1 1 *"), {}),
    ],
)
def test_a_backfill_without_slots_is_refused(schedule: ScheduleSpec | None, stretch: dict[str, int]):
    world = World(now=NOW)
    deploy(world, schedule=schedule)
    given = {"start_at": NOW - 10 * MINUTE_MS, "end_at": NOW, **stretch}
    command = world.command(cm.StartBackfill, backfill="b", workflow="w", **given)
    assert world.refusal(command).code == "backfill.no_slots"


def test_a_backfill_of_an_interval_hits_the_same_instants():
    world = World(now=NOW)
    odd = ScheduleSpec(every_ms=7 * MINUTE_MS, start_at=NOW - 100 * MINUTE_MS)
    deploy(world, schedule=odd)
    backfill(world, 30, max_active_runs=50)
    world.fire_due()
    slots = sorted(run.row.slot_at for run in world.state.runs.values() if run.row.backfill)
    assert slots == [NOW - minutes * MINUTE_MS for minutes in (30, 23, 16, 9, 2)]


def test_a_backfill_takes_parameters_of_its_own_and_keeps_its_version():
    world = World(now=NOW)
    params = (Param(name="full", type=ParamType.BOOLEAN, default=pack(False)),)
    deploy(world, params=params, schedule=MINUTELY)
    backfill(world, 3, params=pack({"full": True}), max_active_runs=1)
    deploy(world, TWO, params=params, schedule=MINUTELY)
    world.worker("w", slots=5)
    finish(world)
    made = [run.row for run in world.state.runs.values() if run.row.backfill]
    assert len(made) == 3
    assert {row.version for row in made} == {1}
    assert {msgspec.msgpack.decode(row.params)["full"] for row in made} == {True}


def test_numbers_of_versions_are_never_given_twice():
    world = World(now=NOW)
    deploy(world, ONE)
    deploy(world, TWO)
    world.client(cm.DropWorkflow, workflow="w")
    assert world.refusal(world.command(cm.SubmitRun, run="x", workflow="w")).code == "workflow.unknown"
    assert deploy(world.restarted(), graph(task("c"), name="w")) == 3


@pytest.mark.parametrize("is_dropped", [True, False])
def test_a_schedule_that_was_taken_away_fires_no_slot_again_when_it_comes_back(is_dropped: bool):
    world = World(now=NOW)
    catching_up = ScheduleSpec(every_ms=MINUTE_MS, start_at=NOW - 5 * MINUTE_MS, catch_up=True)
    deploy(world, schedule=catching_up)
    world.fire_due()
    before = [run for _, run in world.state.runs]
    assert len(before) == 6
    if is_dropped:
        world.client(cm.DropWorkflow, workflow="w")
    else:
        deploy(world)
    world.advance(2 * MINUTE_MS + 1)
    deploy(world, schedule=catching_up)
    world.fire_due()
    made = [run for _, run in world.state.runs]
    assert len(made) == len(set(made)) == 8


def test_what_was_once_does_not_come_a_second_time_when_its_workflow_comes_back():
    world = World(now=NOW)
    deploy(world, schedule=ScheduleSpec(cron="@once"))
    world.fire_due()
    world.client(cm.DropWorkflow, workflow="w")
    world.advance(MINUTE_MS)
    deploy(world, schedule=ScheduleSpec(cron="@once"))
    world.fire_due()
    assert len(world.state.runs) == 1


def test_without_catch_up_a_schedule_that_comes_back_begins_like_a_new_one():
    world = World(now=NOW)
    deploy(world, schedule=MINUTELY)
    world.fire_due()
    deploy(world)
    world.advance(3 * MINUTE_MS + 1)
    deploy(world, schedule=MINUTELY)
    world.fire_due()
    assert len(world.state.runs) == 1
    world.advance(MINUTE_MS)
    assert len(world.state.runs) == 2


def test_another_cap_or_end_leaves_what_was_held_to_be_made():
    world = World(now=NOW)
    spec = ScheduleSpec(every_ms=MINUTE_MS, start_at=NOW - 99 * MINUTE_MS, catch_up=True, max_active_runs=2)
    deploy(world, TWO, schedule=spec)
    world.fire_due()
    assert len(world.state.runs) == 2
    deploy(world, TWO, schedule=msgspec.structs.replace(spec, max_active_runs=50, end_at=NOW + MINUTE_MS))
    world.fire_due()
    world.advance(1_000)
    assert len(world.state.runs) == 50
    assert world.state.schedules[(TENANT, "w")].missed == 0


def test_a_workflow_that_was_deployed_paused_with_a_wrong_start_catches_up_from_the_right_one():
    world = World(now=NOW)
    wrong = ScheduleSpec(every_ms=MINUTE_MS, start_at=NOW - MINUTE_MS, catch_up=True)
    deploy(world, schedule=wrong, paused=True)
    world.fire_due()
    deploy(world, schedule=msgspec.structs.replace(wrong, start_at=NOW - 5 * MINUTE_MS))
    world.client(cm.PauseWorkflow, workflow="w", paused=False)
    world.fire_due()
    assert len(world.state.runs) == 6


def test_runs_do_not_pile_up_behind_one_that_is_stuck():
    world = World(now=NOW)
    spec = msgspec.structs.replace(MINUTELY, max_active_runs=1)
    deploy(world, graph(task("a"), name="w", max_active_runs=1), schedule=spec)
    world.advance(60 * MINUTE_MS)
    assert len(world.state.runs) == 1


def test_each_version_has_its_own_parameters():
    world = World(now=NOW)
    deploy(world, ONE, params=(Param(name="x", type=ParamType.INTEGER),))
    deploy(world, TWO, params=(Param(name="y", default=pack(1)),))
    trigger(world, "old", version=1, params=pack({"x": 5}))
    trigger(world, "new")
    assert msgspec.msgpack.decode(world.run("old").row.params) == {"x": 5}
    assert msgspec.msgpack.decode(world.run("new").row.params) == {"y": 1}


def test_what_has_the_name_of_a_workflow_and_is_not_its_calendar_is_left_alone():
    world = World(now=NOW)
    deploy(world, schedule=MINUTELY)
    backfill(world)
    other = graph(task("x"), name="b")
    for schedule in (None, MINUTELY):
        refused = world.refusal(world.command(cm.DeployWorkflow, graph=other, schedule=schedule))
        assert refused.code == "backfill.exists"


def test_a_command_id_with_other_parameters_is_another_command():
    world = World(now=NOW)
    deploy(world, params=(Param(name="x", default=pack(1)), Param(name="y", default=pack(2))))
    command = world.command(cm.SubmitRun, run="r", workflow="w", params=pack({"x": 5}))
    world.do(command)
    assert world.do(command).is_repeat
    assert world.refusal(msgspec.structs.replace(command, params=pack({"x": 6}))).code == "command.id_reused"


def test_a_failed_run_that_was_mapped_a_second_time_is_moved_with_all_it_has_done():
    world = World(now=NOW)
    world.worker("w", slots=9)
    tasks = (task("a"), task("each", "a", width=0), task("end", "each"))
    deploy(world, graph(*tasks, name="w"))
    trigger(world)
    (a,) = world.turn()
    world.fail(a)
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    (a,) = world.turn()
    world.succeed(a, expands=(("each", 3),))
    for each in world.turn():
        world.succeed(each, result=b"kept")
    (end,) = world.turn()
    world.fail(end)
    deploy(world, graph(*tasks, task("more", "a"), name="w"))
    world.client(cm.MoveRun, run="r")
    world.client(cm.ClearTasks, run="r", only_failed=True)
    assert [world.task(f"each[{number}]").result for number in range(3)] == [b"kept"] * 3
    finish(world)
    assert world.states()["end"] == "success"
    assert validate(world.state, world.now) == []


def test_a_failed_backfill_or_manual_run_does_not_hold_up_the_runs_of_the_day():
    world = World(now=NOW)
    world.worker("w", slots=9)
    daily = graph(task("a", depends_on_past=True), name="w")
    deploy(world, daily, schedule=MINUTELY)
    backfill(world, 3, max_active_runs=1)
    trigger(world, "by hand", logical_at=NOW - 30_000)
    world.fire_due()
    for granted in world.turn():
        if granted.run.startswith("b@") or granted.run == "by hand":
            world.fail(granted)
        else:
            world.succeed(granted)
    world.advance(MINUTE_MS)
    assert f"w@{show_slot(NOW + MINUTE_MS)}" in {granted.run for granted in world.turn()}
