"""Branches: what a task decided to skip is skipped whatever its rule says, until the branch is asked again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.changes import TasksReset
from rota.core.invariants import validate
from rota.core.model import RetryPolicy, TaskSpec
from rota.core.plan import Cascade
from rota.core.trigger import TriggerRule
from tests.effort import examples
from tests.unit.core.world import World, graph, short_slices, task

# pick decides between left and right; both lead to join, which takes whatever came of them.
FORK = graph(
    task("pick"),
    task("left", "pick"),
    task("right", "pick"),
    task("after_right", "right"),
    task("join", "left", "after_right", trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS),
)


def forked(world: World, *skips: str) -> None:
    """The fork, with its decision made."""
    world.worker("w", slots=5)
    world.submit(FORK)
    (pick,) = world.turn()
    world.succeed(pick, skips=skips)


def finish(world: World) -> None:
    """Everything that can run succeeds."""
    while granted := world.turn():
        for each in granted:
            world.succeed(each)


def test_what_a_branch_decided_against_is_skipped_and_the_rest_runs():
    world = World()
    forked(world, "right")
    assert world.states() == {
        "pick": "success",
        "left": "queued",
        "right": "skipped",
        "after_right": "skipped",
        "join": "none",
    }
    finish(world)
    assert world.states()["join"] == "success"
    assert world.result() == "success"


def test_a_task_is_skipped_at_once_while_its_other_upstreams_are_still_at_work():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("slow"), task("pick"), task("x", "slow", "pick")))
    slow, pick = world.turn()
    world.succeed(pick, skips=("x",))
    assert world.states()["x"] == "skipped"
    world.succeed(slow)
    assert world.states()["x"] == "skipped"


@pytest.mark.parametrize("rule", list(TriggerRule), ids=str)
def test_no_trigger_rule_outweighs_a_branch(rule: TriggerRule):
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("pick"), task("mid", "pick"), task("x", "mid", trigger_rule=rule)))
    (pick, *others) = world.turn()
    if others:
        # `always` has not waited for anything.
        return
    world.succeed(pick, skips=("mid", "x"))
    assert world.states() == {"pick": "success", "mid": "skipped", "x": "skipped"}


def test_what_is_not_below_a_branch_cannot_be_skipped_by_it():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("pick"), task("below", "pick"), task("beside"), task("later", "beside")))
    pick, beside = world.turn()
    world.succeed(pick, skips=("later", "beside", "pick", "no such task", "below", "below"))
    assert world.task("pick").skips == ("below",)
    world.succeed(beside)
    finish(world)
    assert world.states() == {"pick": "success", "below": "skipped", "beside": "success", "later": "success"}


def test_a_failed_branch_decides_nothing():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("pick", retry=RetryPolicy(retries=1, jitter=False)), task("x", "pick")))
    (pick,) = world.turn()
    world.fail(pick, skips=("x",))
    assert world.states()["x"] == "none"
    world.advance(1)
    finish(world)
    assert world.states()["x"] == "success"


def test_a_skipped_task_that_is_cleared_is_skipped_again_unless_its_branch_is_cleared_too():
    world = World()
    forked(world, "right")
    finish(world)
    world.client(cm.ClearTasks, run="r", tasks=("right",), downstream=False)
    finish(world)
    assert world.states()["right"] == "skipped"
    world.client(cm.ClearTasks, run="r", tasks=("pick",))
    (pick,) = world.turn()
    world.succeed(pick, skips=("left",))
    finish(world)
    assert world.states() == {
        "pick": "success",
        "left": "skipped",
        "right": "success",
        "after_right": "success",
        "join": "success",
    }


def test_a_decision_survives_a_restart_and_is_found_again_by_planning_from_scratch():
    world = World()
    forked(world, "right")
    finish(world)
    world.client(cm.ClearTasks, run="r", tasks=("right",), downstream=False)
    again = world.restarted()
    again.worker("w", slots=5)
    finish(again)
    assert again.states()["right"] == "skipped"
    assert validate(again.state, again.now) == []


def test_a_group_whose_width_nobody_knows_is_skipped_as_one_task():
    world = World()
    world.worker("w", slots=5)
    world.submit(graph(task("pick"), task("each", "pick", width=0), task("end", "each")))
    (pick,) = world.turn()
    world.succeed(pick, skips=("each",))
    finish(world)
    assert world.states() == {"pick": "success", "each[0]": "skipped", "end": "skipped"}


def test_a_long_list_of_skips_goes_through_in_slices():
    with short_slices(3):
        world = World()
        world.worker("w", slots=5)
        names = [f"x{number}" for number in range(20)]
        world.submit(graph(task("pick"), *(task(name, "pick") for name in names)))
        (pick,) = world.turn()
        world.succeed(pick, skips=tuple(names[1:]))
        finish(world)
        assert [name for name, state in world.states().items() if state == "skipped"] == names[1:]
        assert world.result() == "success"


@pytest.mark.parametrize("size", [1, 1_000])
@pytest.mark.parametrize("below", list(TriggerRule), ids=str)
@pytest.mark.parametrize("rule", list(TriggerRule), ids=str)
def test_what_is_left_out_is_skipped_also_if_a_failure_came_first(rule: TriggerRule, below: TriggerRule, size: int):
    found: list[dict[str, str]] = []
    has_started = False
    for order in (("pick", "bad"), ("bad", "pick")):
        world = World()
        world.worker("w", slots=9)
        with short_slices(size):
            world.submit(
                graph(
                    task("bad"),
                    task("pick"),
                    task("x", "bad", "pick", trigger_rule=rule, width=2),
                    task("y", "x", trigger_rule=below),
                    task("last", "y", trigger_rule=TriggerRule.ALL_DONE),
                )
            )
            granted = {world.run().graph.task_id(one.task): one for one in world.turn()}
            for name in order:
                if name == "bad":
                    world.fail(granted["bad"])
                else:
                    passed_over = ("none", "upstream_failed")
                    has_started |= any(world.states()[id] not in passed_over for id in ("x[0]", "x[1]", "y"))
                    world.succeed(granted["pick"], skips=("x",))
                world.follow_up()
                assert validate(world.state, world.now) == []
            for name in ("x[0]", "x[1]", "y"):
                if name in granted:
                    world.succeed(granted[name])
            finish(world)
        found.append(world.states())
    if not has_started:
        assert found[0] == found[1]
        assert (found[0]["x[0]"], found[0]["x[1]"]) == ("skipped", "skipped")


def test_a_failure_is_overruled_while_its_cascade_is_being_written_down():
    world = World()
    world.worker("w", slots=9)
    with short_slices(2):
        world.submit(graph(task("bad"), task("pick"), task("x", "bad", "pick", width=5), task("y", "x")))
        bad, pick = world.turn()
        world.fail(bad)
        assert "none" in world.states().values()
        world.succeed(pick, skips=("x",))
        world.follow_up()
    assert {world.states()[f"x[{number}]"] for number in range(5)} == {"skipped"}
    assert world.states()["y"] == "skipped"
    assert world.result() == "success"
    assert validate(world.state, world.now) == []


@st.composite
def blocked_tasks(draw: st.DrawFn) -> list[TaskSpec]:
    """Tasks below a failure, or a branch, or both; what a branch may leave out among them."""
    specs: list[TaskSpec] = []
    for number in range(draw(st.integers(1, 6))):
        above = ["bad", "pick", *(spec.id for spec in specs)]
        upstream = draw(st.lists(st.sampled_from(above), min_size=1, max_size=3, unique=True))
        rule = draw(st.sampled_from([*TriggerRule, *[TriggerRule.ALL_SUCCESS] * 8]))
        specs.append(task(f"n{number}", *upstream, trigger_rule=rule, width=draw(st.integers(1, 4))))
    return specs


@examples(150)
@given(specs=blocked_tasks(), size=st.integers(1, 4), is_behind=st.booleans(), data=st.data())
def test_failures_are_overruled_a_slice_at_a_time_to_the_same_end(
    specs: list[TaskSpec], size: int, is_behind: bool, data: st.DataObject
):
    skips = tuple(data.draw(st.lists(st.sampled_from([spec.id for spec in specs]), min_size=1, unique=True)))
    found: list[dict[str, str]] = []
    has_started = False
    for tasks in (1_000, size):
        world = World()
        world.worker("w", slots=100)
        with short_slices(tasks):
            world.submit(graph(task("bad"), task("pick"), *specs))
            granted = {world.run().graph.task_id(one.task): one for one in world.turn()}
            world.fail(granted.pop("bad"))
            if not is_behind:
                world.follow_up()
            # What has started is not left out, and in short slices it may not have started yet.
            has_started |= any(
                state in ("queued", "assigned") for name, state in world.states().items() if name != "pick"
            )
            before = len(world.changes)
            world.succeed(granted.pop("pick"), skips=skips)
            world.follow_up()
            resets = [change for change in world.changes[before:] if isinstance(change, TasksReset)]
            assert all(len(change.tasks) <= tasks for change in resets)
            assert validate(world.state, world.now) == []
            for each in granted.values():
                world.succeed(each)
            finish(world)
        assert world.result() in ("success", "failed")
        found.append(world.states())
    assert found[0] == found[1] or (has_started and is_behind)


def test_a_branch_that_nothing_failed_before_looks_at_no_task_below(monkeypatch: pytest.MonkeyPatch):
    looked_at: list[int] = []
    overrule = Cascade._overrule
    monkeypatch.setattr(Cascade, "_overrule", lambda cascade, node: looked_at.append(node) or overrule(cascade, node))
    world = World()
    forked(world, "right")
    finish(world)
    assert world.result() == "success"
    assert looked_at == []
