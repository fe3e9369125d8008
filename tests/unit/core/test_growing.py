"""Tasks that go on as others: planned in one attempt, made of what the others gave in the next."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.bounds import GROWN_BYTES_MAX, OUTPUT_LOSSES_MAX, TimeLimits
from rota.core.changes import LeaseGranted
from rota.core.decide.leases import Input, offer_of
from rota.core.errors import Refused, Unavailable
from rota.core.growing import FED_RULES
from rota.core.invariants import validate
from rota.core.model import FailureClass, PoolNeed, RetryPolicy, TaskSpec
from rota.core.states import RUN_TERMINAL, RunState
from rota.core.trigger import TriggerRule
from rota.core.why import explain
from tests.effort import examples
from tests.unit.core.world import World, graph, short_slices, task

STAGES = (task("b.one", width=2), task("b.two", "b.one", width=2, inputs=("b.one",)))


def begun(*tasks: TaskSpec, slots: int = 10, **fields: object) -> World:
    """A run of `a`, then `b`, then `c`, of which `b` is at work; or of other tasks, with the first of them at work."""
    world = World()
    world.worker(slots=slots)
    whole = tasks or (task("a"), task("b", "a", inputs=("a",)), task("c", "b", inputs=("b",)))
    world.submit(graph(*whole, **fields))
    if not tasks:
        (first,) = world.turn()
        world.succeed(first, result=b"A")
    return world


def at_work(world: World, name: str) -> LeaseGranted:
    """The newest lease of a task."""
    run = world.run()
    found = [
        change
        for change in world.changes
        if isinstance(change, LeaseGranted) and run.graph.task_id(change.task) == name
    ]
    return found[-1]


def grow(world: World, *stages: TaskSpec) -> dict[str, LeaseGranted]:
    """`b` is granted and goes on as these; what is granted then, by name."""
    (planner,) = world.turn()
    world.start(planner)
    assert world.report(planner, cm.Outcome.GREW, grows=stages or STAGES) == "accepted"
    return granted(world)


def granted(world: World) -> dict[str, LeaseGranted]:
    found = world.turn()
    check(world)
    return {world.run().graph.task_id(lease.task): lease for lease in found}


def check(world: World) -> None:
    """Everything holds, and a coordinator that is started now finds the same."""
    assert validate(world.state, world.now) == []
    other = world.restarted()
    assert validate(other.state, world.now) == []
    assert named(other) == named(world)


def named(world: World) -> dict[str, str]:
    run = world.run()
    tasks = {idx: task.state.value for idx, task in run.tasks.items() if idx not in run.graph.retired}
    return {run.graph.task_id(idx): state for idx, state in tasks.items()}


def finish(world: World, leases: dict[str, LeaseGranted]) -> dict[str, LeaseGranted]:
    """These succeed, each with its name for a result; what is granted then."""
    for name, lease in leases.items():
        world.succeed(lease, result=name.encode())
    return granted(world)


def test_a_task_goes_on_as_others_and_is_then_offered_what_the_last_of_them_gave():
    world = begun()
    first = grow(world)
    assert sorted(first) == ["b.one[0]", "b.one[1]"]
    assert named(world)["b"] == "none"
    second = finish(world, first)
    assert sorted(second) == ["b.two[0]", "b.two[1]"]
    assert offer_of(world.state.leases[second["b.two[0]"].fence]).inputs == (
        Input("b.one", (b"b.one[0]", b"b.one[1]"), True),
    )
    gathering = finish(world, second)
    assert list(gathering) == ["b"]
    assert offer_of(world.state.leases[gathering["b"].fence]).inputs == (
        Input("a", (b"A",)),
        Input("b.two", (b"b.two[0]", b"b.two[1]"), True, True),
    )
    last = finish(world, gathering)
    assert offer_of(world.state.leases[last["c"].fence]).inputs == (Input("b", (b"b",)),)
    finish(world, last)
    assert world.result() is RunState.SUCCESS
    assert world.task("b").attempt == 1, "the attempt that planned was not spent"


def test_a_run_of_one_task_goes_on_too():
    world = begun(task("b"))
    finish(world, finish(world, grow(world, task("b.one"))))
    assert world.result() is RunState.SUCCESS


def test_the_same_report_twice_changes_nothing():
    world = begun()
    grow(world)
    planner = at_work(world, "b")
    before = named(world)
    assert world.report(planner, cm.Outcome.GREW, grows=STAGES) == "duplicate"
    assert named(world) == before


def test_a_report_of_an_old_fence_grows_nothing():
    world = begun()
    (planner,) = world.turn()
    world.start(planner)
    world.interrupt(planner)
    world.turn()
    assert world.report(planner, cm.Outcome.GREW, grows=STAGES) == "old_fence"
    assert world.run().row.grown == 0


def test_others_wait_for_it_with_a_reason():
    world = begun()
    grow(world)
    (why,) = explain(world.state, world.run(), world.task("b").idx, world.now)
    assert "b.two[0]" in why.text


def test_they_are_under_the_limits_of_the_task():
    world = World()
    world.worker(slots=10, properties=(("cpu_count", "4"), ("zone", "north")))
    world.pool("p", slots=1)
    limits = {"pools": (PoolNeed("p"),), "priority": 3, "timeout_ms": 5_000, "requires": (("zone", "north"),)}
    world.submit(graph(task("b", **limits)))
    stages = (task("b.one", width=2, requires=(("cpu_count", "1"),)),)
    (one,) = grow(world, *stages).values()
    spec = world.run().graph.spec(one.task)
    assert (spec.pools, spec.priority, spec.timeout_ms) == (limits["pools"], 3, 5_000)
    assert spec.requires == (("cpu_count", "1"), ("zone", "north"))


REFUSED = [
    ((task("x.one"),), "field.value", "grows[0].id"),
    ((task("b"),), "field.value", "grows[0].id"),
    ((), "field.value", "grows"),
    ((task("b.one", "a"),), "graph.unknown_upstream", "grows[0].upstream"),
    ((task("b.one", "c"),), "graph.unknown_upstream", "grows[0].upstream"),
    ((task("b.one", "b.two"), task("b.two", "b.one")), "field.value", "grows[1]"),
    ((task("b.one", "b.two"), task("b.two", "b.one"), task("b.end", "b.two")), "graph.cycle", "specs"),
    ((task("b.one"), task("b.two")), "field.value", "grows[0]"),
    ((task("b.one", width=0),), "field.value", "grows[0].width"),
    ((task("b.one", width=20_000),), "field.value", "grows[0].width"),
    ((task("b.one", is_setup=True),), "field.value", "grows[0]"),
    ((task("b.one", is_teardown=True),), "field.value", "grows[0]"),
    ((task("b.one", depends_on_past=True),), "field.value", "grows[0]"),
    ((task("b.one", trigger_rule=TriggerRule.ALL_DONE),), "field.value", "grows[0]"),
    ((task("b.one", queue="nowhere"),), "queue.unknown", "grows[0]"),
    ((task("b.one", work=b"x" * (GROWN_BYTES_MAX + 1)),), "field.value", "grows.work"),
    ((task("b.one[3]"),), "field.value", "specs[0].id"),
    ((task("b.one"), task("b.one"), task("b.two", "b.one")), "graph.duplicate_id", "specs[0].id"),
]


@pytest.mark.parametrize(("stages", "code", "path"), REFUSED)
def test_tasks_that_are_not_its_own_or_too_large_are_refused(stages: tuple[TaskSpec, ...], code: str, path: str):
    world = begun()
    (planner,) = world.turn()
    with pytest.raises(Refused) as caught:
        world.report(planner, cm.Outcome.GREW, grows=stages)
    assert (caught.value.code, caught.value.path) == (code, path)
    assert world.run().row.grown == 0
    check(world)


@pytest.mark.parametrize(
    "fields",
    [
        {"width": 2},
        {"is_setup": True},
        {"is_teardown": True},
        *({"trigger_rule": rule} for rule in (TriggerRule.ALL_DONE, TriggerRule.ONE_SUCCESS, TriggerRule.ALWAYS)),
    ],
)
def test_groups_setups_and_tasks_with_other_rules_do_not_go_on(fields: dict[str, object]):
    world = begun(task("b", **fields))
    planner = world.turn()[0]
    with pytest.raises(Refused) as caught:
        world.report(planner, cm.Outcome.GREW, grows=STAGES)
    assert caught.value.path == "grows"


def test_it_does_not_go_on_twice():
    world = begun()
    gathering = finish(world, finish(world, grow(world)))
    with pytest.raises(Refused, match="already"):
        world.report(gathering["b"], cm.Outcome.GREW, grows=(task("b.more"),))


def test_nobody_else_may_wait_for_them():
    world = begun()
    grow(world)
    refused = world.refusal(world.command(cm.GrowRun, run="r", specs=(task("d", "b.two"),)))
    assert refused.code == "graph.unknown_upstream"


@pytest.mark.parametrize("rule", [TriggerRule.NONE_FAILED, TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS])
def test_a_rule_that_bears_skips_bears_them_after_it_went_on(rule: TriggerRule):
    world = begun(task("a"), task("s"), task("b", "a", "s", trigger_rule=rule))
    first, second = world.turn()
    world.succeed(first)
    world.report(second, cm.Outcome.SKIPPED)
    assert list(finish(world, finish(world, grow(world)))) == ["b"]


# What goes wrong on the way.


def test_one_of_them_fails_and_the_task_has_failed_upstream_and_a_retry_goes_on_from_there():
    world = begun()
    first = grow(world)
    world.fail(first["b.one[0]"], failure=FailureClass.FATAL)
    world.succeed(first["b.one[1]"], result=b"kept")
    granted(world)
    assert {name: named(world)[name] for name in ("b.one[0]", "b", "c")} == {
        "b.one[0]": "failed",
        "b": "upstream_failed",
        "c": "upstream_failed",
    }
    assert world.result() is RunState.FAILED
    world.client(cm.RetryTasks, run="r")
    again = granted(world)
    assert list(again) == ["b.one[0]"], "what was well is not done again"
    assert list(finish(world, finish(world, again))) == ["b"]


def test_it_fails_to_be_put_together_and_is_only_put_together_again():
    retry = RetryPolicy(retries=1, delay_ms=1_000, jitter=False)
    world = begun(task("b", retry=retry))
    gathering = finish(world, finish(world, grow(world)))
    world.fail(gathering["b"])
    world.advance(1_500)
    again = granted(world)
    assert list(again) == ["b"]
    assert offer_of(world.state.leases[again["b"].fence]).inputs[0].is_grown
    world.fail(again["b"])
    granted(world)
    assert world.result() is RunState.FAILED, "the attempt that planned is not counted, and all others are"


def test_an_output_of_theirs_is_lost_and_only_that_one_runs_again():
    world = begun()
    gathering = finish(world, finish(world, grow(world)))
    world.fail(gathering["b"], failure=FailureClass.INPUT_LOST, lost=("b.two[1]",))
    again = granted(world)
    assert list(again) == ["b.two[1]"]
    world.fail(again["b.two[1]"], failure=FailureClass.INPUT_LOST, lost=("b.one[0]",))
    again = granted(world)
    assert list(again) == ["b.one[0]"]
    assert list(finish(world, finish(world, again))) == ["b"]


def test_an_output_that_is_lost_too_often_is_the_end_of_the_run():
    world = begun(task("b"))
    leases = finish(world, grow(world, task("b.one")))
    for _ in range(OUTPUT_LOSSES_MAX + 1):
        world.fail(leases["b"], failure=FailureClass.INPUT_LOST, lost=("b.one",))
        leases = finish(world, granted(world))
    assert world.result() is RunState.FAILED


def test_what_it_was_planned_from_is_lost_and_made_again_and_it_is_put_together_all_the_same():
    world = begun()
    gathering = finish(world, finish(world, grow(world)))
    world.fail(gathering["b"], failure=FailureClass.INPUT_LOST, lost=("a",))
    again = granted(world)
    assert list(again) == ["a"]
    assert list(finish(world, again)) == ["b"]


def test_a_run_is_cancelled_while_they_are_at_work():
    world = begun()
    grow(world)
    world.client(cm.CancelRun, run="r")
    world.turn()
    check(world)
    assert world.result() is RunState.CANCELLED
    assert set(named(world).values()) == {"success", "cancelled"}


def test_a_run_is_out_of_time_while_they_are_at_work():
    world = begun(run_timeout_ms=10_000)
    grow(world)
    world.advance(11_000)
    world.turn()
    check(world)
    assert world.result() is RunState.FAILED


def test_a_plan_that_comes_in_the_middle_of_a_cascade_is_made_once_more():
    world = begun()
    (planner,) = world.turn()
    world.client(cm.CancelRun, run="r")
    assert world.run().row.pending
    assert world.report(planner, cm.Outcome.GREW, grows=STAGES) == "accepted"
    assert (world.task("b").state, world.task("b").attempt) == ("queued", 0)
    world.turn()
    assert world.result() is RunState.CANCELLED
    check(world)


def test_a_coordinator_that_is_started_between_goes_on():
    world = begun()
    first = grow(world)
    other = world.restarted()
    other.hear("w")
    for name, lease in first.items():
        other.succeed(lease, result=name.encode())
    second = granted(other)
    assert sorted(second) == ["b.two[0]", "b.two[1]"]
    assert list(finish(other, second)) == ["b"]


# People.


CLEARED = [
    ("b", True, ["b"]),
    ("b", False, ["b"]),
    ("a", True, ["a"]),
    ("b.two[0]", True, ["b"]),
]


@pytest.mark.parametrize(("name", "downstream", "first"), CLEARED)
def test_a_task_that_is_cleared_is_planned_anew(name: str, downstream: bool, first: list[str]):
    world = begun()
    leases = grow(world)
    while leases:
        leases = finish(world, leases)
    assert world.result() is RunState.SUCCESS
    world.client(cm.ClearTasks, run="r", tasks=(name,), downstream=downstream)
    again = granted(world)
    assert list(again) == first
    if name == "a":
        again = finish(world, again)
    assert not any(given.is_grown for given in offer_of(world.state.leases[again["b"].fence]).inputs)
    world.report(again["b"], cm.Outcome.GREW, grows=(task("b.one"), task("b.end", "b.one")))
    more = granted(world)
    assert list(more) == ["b.one"], "names are used again"
    gathering = finish(world, finish(world, more))
    assert offer_of(world.state.leases[gathering["b"].fence]).inputs[-1] == Input("b.end", (b"b.end",), False, True)
    while gathering:
        gathering = finish(world, gathering)
    assert world.result() is RunState.SUCCESS


def test_one_of_them_is_cleared_alone_and_runs_alone():
    world = begun()
    leases = grow(world)
    while leases:
        leases = finish(world, leases)
    world.client(cm.ClearTasks, run="r", tasks=("b.two[0]",), downstream=False)
    assert list(granted(world)) == ["b.two[0]"]


def test_what_it_is_planned_from_is_cleared_while_they_are_at_work():
    world = begun()
    old = grow(world)
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    again = granted(world)
    assert list(again) == ["a"]
    assert world.succeed(old["b.one[0]"]) != "accepted", "those at work were stopped"
    assert list(finish(world, again)) == ["b"]
    assert named(world) == {"a": "success", "b": "assigned"}


def test_only_what_failed_is_cleared_and_they_are_kept():
    world = begun()
    first = grow(world)
    world.fail(first["b.one[0]"], failure=FailureClass.FATAL)
    world.succeed(first["b.one[1]"])
    world.turn()
    world.client(cm.ClearTasks, run="r", only_failed=True)
    assert list(granted(world)) == ["b.one[0]"]


def test_a_task_whose_parts_are_at_work_is_not_cleared_in_silence():
    world = begun()
    grow(world)
    assert world.refusal(world.command(cm.ClearTasks, run="r", tasks=("b",))).code == "run.at_work"


def test_a_task_is_marked_while_they_are_at_work_and_the_run_ends_with_them():
    world = begun()
    first = grow(world)
    world.client(cm.MarkTasks, run="r", tasks=("b",), to=cm.Mark.SUCCESS)
    after = granted(world)
    assert list(after) == ["c"]
    second = finish(world, {**first, **after})
    assert world.result() is RunState.RUNNING
    assert finish(world, second) == {}
    assert world.result() is RunState.SUCCESS


def test_one_of_them_is_marked_and_the_task_is_offered_nothing_of_it():
    world = begun()
    first = grow(world)
    world.client(cm.MarkTasks, run="r", tasks=("b.one", "b.two"), to=cm.Mark.SUCCESS)
    gathering = granted(world)
    assert list(gathering) == ["b"]
    assert offer_of(world.state.leases[gathering["b"].fence]).inputs[-1].results == (None, None)
    assert world.succeed(first["b.one[0]"]) != "accepted"


def test_a_run_that_has_ended_is_cleared_planned_anew_and_comes_out_of_history_as_it_was():
    world = begun()
    leases = grow(world)
    while leases:
        leases = finish(world, leases)
    world.client(cm.ClearTasks, run="r", tasks=("b",))
    check(world)
    assert [growth.feeds for growth in world.run().growths] == ["b", "b"]
    run = world.run()
    assert run.graph.specs[run.graph.index["b"]].upstream == ("a",)
    assert "b.two" not in run.graph.index
    assert run.graph.to_end == 3


def draw_stages(name: str, data: st.DataObject) -> tuple[TaskSpec, ...]:
    widths = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return tuple(
        task(f"{name}.s{number}", *((f"{name}.s{number - 1}",) if number else ()), width=width)
        for number, width in enumerate(widths)
    )


def disturb(world: World, data: st.DataObject) -> None:
    """Somebody does something about a task, whatever it is."""
    run = world.run()
    idx = data.draw(st.sampled_from([idx for idx in range(run.graph.total) if idx not in run.graph.retired]))
    names = (run.graph.task_id(idx),)
    kind = data.draw(st.sampled_from(["clear", "clear", "alone", "failed", "all", "mark", "retry", "lose"]))
    if kind in ("clear", "alone"):
        world.client(cm.ClearTasks, run="r", tasks=names, downstream=kind == "clear")
    elif kind in ("failed", "all"):
        world.client(cm.ClearTasks, run="r", only_failed=kind == "failed")
    elif kind == "mark":
        world.client(cm.MarkTasks, run="r", tasks=names, to=data.draw(st.sampled_from(cm.Mark)))
    elif kind == "retry":
        world.client(cm.RetryTasks, run="r")
    else:
        world.client(cm.LoseOutputs, run="r", tasks=names)


def end_one(world: World, lease: LeaseGranted, data: st.DataObject) -> None:
    """An attempt ends in some way."""
    graph = world.run().graph
    spec = graph.spec(lease.task)
    kind = data.draw(st.sampled_from(["success", "success", "success", "failed", "lost", "grew", "grew", "returned"]))
    if kind == "grew" and spec.id in ("b", "d"):
        world.report(lease, cm.Outcome.GREW, grows=draw_stages(spec.id, data))
    elif kind == "failed":
        world.fail(lease)
    elif kind == "lost" and spec.upstream:
        world.fail(lease, failure=FailureClass.INPUT_LOST, lost=(spec.upstream[-1], f"{spec.upstream[-1]}[0]"))
    elif kind == "returned":
        world.start(lease)
        world.interrupt(lease)
    else:
        world.succeed(lease)


@examples(60)
@given(data=st.data(), size=st.sampled_from([1, 2, 3, 1_000]))
def test_a_run_comes_to_its_end_whatever_is_done_about_tasks_that_go_on(data: st.DataObject, size: int):
    with short_slices(size):
        world = World(limits=TimeLimits(retain_ended_ms=10**9))
        world.worker(slots=100)
        retry = RetryPolicy(retries=1, delay_ms=1_000)
        rule = data.draw(st.sampled_from(FED_RULES))
        world.submit(
            graph(task("a"), task("b", "a", retry=retry), task("d", "a", "b", trigger_rule=rule), task("e", "d"))
        )
        held: list[LeaseGranted] = []
        for _ in range(data.draw(st.integers(5, 30))):
            held = [lease for lease in (*held, *world.turn()) if lease.fence in world.state.leases]
            with suppress(Refused, Unavailable):
                if held and data.draw(st.integers(0, 4)):
                    end_one(world, held.pop(data.draw(st.integers(0, len(held) - 1))), data)
                else:
                    disturb(world, data)
            if data.draw(st.booleans()):
                world.follow_up()
                check(world)
        for _ in range(100):
            held = [lease for lease in (*held, *world.turn()) if lease.fence in world.state.leases]
            for lease in held:
                world.succeed(lease)
            world.advance(2_000)
            for parked in [task.idx for task in world.run().tasks.values() if task.state == "needs_attention"]:
                world.client(cm.ResolveTask, run="r", task=world.run().graph.task_id(parked), exit=cm.Exit.REQUEUE)
        check(world)
        assert world.result() in RUN_TERMINAL
