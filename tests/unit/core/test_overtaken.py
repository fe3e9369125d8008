"""Tasks that are overtaken by what a person does: they wait for a worker, or work, while their upstreams change."""

import pytest

from rota.core import commands as cm
from rota.core.invariants import validate
from rota.core.model import Graph, RetryPolicy, TaskSpec
from rota.core.states import QUEUED
from tests.unit.core.world import TENANT, World, graph, task

FAN = graph(task("a"), task("b", "a"), task("c", "a"))
RETRIES = RetryPolicy(retries=2, jitter=False)


def queued_fan() -> World:
    """a is done, b works, and c waits for the only slot."""
    world = World()
    world.worker("w", slots=1)
    world.submit(FAN)
    (a,) = world.turn()
    world.succeed(a, result=b"1")
    world.turn()
    assert world.states() == {"a": "success", "b": "assigned", "c": "queued"}
    return world


@pytest.mark.parametrize(
    "asked",
    [{}, {"tasks": ("a",)}, {"tasks": ("a",), "downstream": False}],
    ids=["everything", "with what follows", "alone"],
)
def test_what_waits_for_a_worker_waits_for_what_was_cleared_above_it(asked: dict[str, object]) -> None:
    world = queued_fan()
    world.client(cm.ClearTasks, run="r", **asked)
    assert world.states()["c"] == "none"
    assert validate(world.state, world.now) == []


def test_what_waits_for_a_worker_fails_with_what_is_said_to_have_failed_above_it() -> None:
    world = queued_fan()
    world.client(cm.MarkTasks, run="r", tasks=("a",), to=cm.Mark.FAILED)
    assert (world.states()["a"], world.states()["c"]) == ("failed", "upstream_failed")
    assert validate(world.state, world.now) == []


@pytest.mark.parametrize("comes_back", ["fails", "is released", "falls silent"])
def test_what_was_at_work_does_not_start_again_before_what_was_cleared_above_it(comes_back: str) -> None:
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("a"), task("b", "a", retry=RETRIES)))
    (a,) = world.turn()
    world.succeed(a)
    (b,) = world.turn()
    world.start(b)
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    (again,) = world.turn()
    assert world.states() == {"a": "assigned", "b": "running"}
    if comes_back == "fails":
        world.fail(b)
        world.advance(2_000)
    elif comes_back == "is released":
        world.report(b, cm.Outcome.RELEASED)
    else:
        world.silence()
        world.advance(world.state.limits.lease_ms + world.state.limits.dispatch_ms)
        world.worker("other", slots=5)
        (again,) = [each for each in world.turn() if each.task == 0]
    assert world.turn() == []
    assert world.states()["b"] == "none"
    assert validate(world.state, world.now) == []
    world.succeed(again)
    (b,) = world.turn()
    world.succeed(b)
    assert world.result() == "success"


def test_who_claims_is_not_given_what_was_overtaken() -> None:
    world = World()
    world.queue("agents", pull=True)
    world.worker(pull=True, slots=5)
    world.submit(graph(task("a", queue="agents"), task("b", "a", queue="agents", retry=RETRIES)))
    world.follow_up()

    def claim() -> str:
        return str(world.client(cm.ClaimTask, worker="w", incarnation="i1", lease_ms=5_000).answer)

    def report(fence: str, outcome: cm.Outcome) -> None:
        run = world.run()
        idx = next(task.idx for task in run.tasks.values() if task.fence == int(fence))
        about = {"run": "r", "task": idx, "worker_tenant": TENANT, "worker": "w", "incarnation": "i1"}
        world.do(cm.Report(tenant=TENANT, fence=int(fence), outcome=outcome, **about))
        world.follow_up()

    report(claim(), cm.Outcome.SUCCESS)
    b = claim()
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    world.follow_up()
    again = claim()
    report(b, cm.Outcome.RELEASED)
    assert world.states()["b"] == QUEUED
    assert claim() == ""
    assert world.states()["b"] == "none"
    report(again, cm.Outcome.SUCCESS)
    assert claim()


def mapped(world: World) -> None:
    world.worker("w", slots=5)
    each = TaskSpec(id="each", upstream=("source",), width=0)
    world.submit(graph(task("source"), each, task("end", "each")))
    world.turn()


@pytest.mark.parametrize("to", [cm.Mark.SUCCESS, cm.Mark.SKIPPED])
def test_what_is_mapped_over_a_task_that_is_said_to_be_well_is_mapped_over_nothing(to: cm.Mark) -> None:
    world = World()
    mapped(world)
    world.client(cm.MarkTasks, run="r", tasks=("source",), to=to)
    world.turn()
    assert set(world.states().values()) == {to.value, "skipped"}
    assert world.result() == "success"
    assert validate(world.state, world.now) == []


def test_what_is_mapped_over_another_task_than_the_marked_one_is_still_told_how_many() -> None:
    world = World()
    world.worker("w", slots=5)
    each = TaskSpec(id="each", upstream=("source", "beside"), width=0)
    world.submit(graph(task("source"), task("beside"), each))
    source, _ = world.turn()
    world.client(cm.MarkTasks, run="r", tasks=("beside",), to=cm.Mark.SUCCESS)
    world.succeed(source, expands=(("each", 3),))
    assert len(world.turn()) == 3
    assert validate(world.state, world.now) == []


def test_a_moved_run_asks_again_over_how_many_a_task_is_mapped() -> None:
    world = World()
    world.worker("w", slots=5)
    plain = graph(task("source"), task("each", "source"), task("end", "each"))
    each = TaskSpec(id="each", upstream=("source",), width=0)
    versions: list[Graph] = [plain, graph(task("source"), each, task("end", "each"))]
    world.client(cm.DeployWorkflow, graph=versions[0])
    world.client(cm.SubmitRun, run="r", workflow="g")
    while granted := world.turn():
        for one in granted:
            world.succeed(one)
    assert world.result() == "success"
    world.client(cm.DeployWorkflow, graph=versions[1])
    world.client(cm.MoveRun, run="r")
    (source,) = world.turn()
    assert world.run().graph.task_id(source.task) == "source"
    world.succeed(source, expands=(("each", 2),))
    for one in world.turn():
        world.succeed(one)
    for one in world.turn():
        world.succeed(one)
    assert world.result() == "success"
    assert len([name for name in world.states() if name.startswith("each")]) == 2
    assert validate(world.state, world.now) == []


# Attempts that a person ended have been attempts.


@pytest.mark.parametrize("has_started", [True, False])
@pytest.mark.parametrize("how", ["cancel", "mark"])
def test_an_attempt_that_a_person_ended_keeps_its_number_if_it_had_begun(how: str, has_started: bool) -> None:
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("a")))
    (a,) = world.turn()
    if has_started:
        world.start(a)
    if how == "cancel":
        world.client(cm.CancelRun, run="r")
    else:
        world.client(cm.MarkTasks, run="r", tasks=("a",), to=cm.Mark.SUCCESS)
    world.follow_up()
    assert world.task("a").attempt == int(has_started)
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    (again,) = world.turn()
    assert again.attempt == 1 + has_started
    assert validate(world.state, world.now) == []
