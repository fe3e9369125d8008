"""Branches: what a task decided to skip is skipped whatever its rule says, until the branch is asked again."""

import pytest

from rota.core import commands as cm
from rota.core.invariants import validate
from rota.core.model import RetryPolicy
from rota.core.trigger import TriggerRule
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
