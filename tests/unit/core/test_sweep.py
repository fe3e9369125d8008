"""The starvation sweep is fair: a round lists everybody, and its sweeps go through it in turn."""

from rota.core.decide.timers import SWEEP_TASKS_MAX
from rota.core.states import NEEDS_ATTENTION, QUEUED
from tests.unit.core.world import World, graph, task

TASKS = 1_000
ROUND = TASKS // SWEEP_TASKS_MAX


def starving(tasks: int = TASKS) -> World:
    """A world in which so many tasks have waited for two minutes, and nobody could ever run them."""
    world = World()
    world.worker("w", kinds=("other",))
    world.submit(graph(task("x", width=tasks)))
    world.turn()
    world.advance(world.state.limits.starve_ms)
    return world


def cycles(world: World) -> set[int]:
    return {row.cycles for row in world.run().tasks.values()}


def test_of_a_thousand_unservable_tasks_each_climbs_one_step_a_round():
    world = starving()
    for number in range(1, 4):
        for _ in range(ROUND):
            assert cycles(world) == {number - 1} or cycles(world) == {number - 1, number}
            world.sweep()
        assert cycles(world) == {number}


def test_a_thousand_unservable_tasks_are_all_parked_in_the_end():
    world = starving()
    for _ in range(10 * ROUND):
        world.sweep()
    assert {row.state for row in world.run().tasks.values()} == {NEEDS_ATTENTION}
    assert world.state.starving == []


def test_tasks_that_are_too_young_take_nobodys_place():
    world = World()
    world.worker("w", kinds=("other",))
    world.submit(graph(task("x", width=SWEEP_TASKS_MAX)), "old")
    world.turn()
    world.advance(world.state.limits.starve_ms)
    world.submit(graph(task("x", width=5 * SWEEP_TASKS_MAX, priority=9)), "young")
    world.turn()
    world.sweep()
    assert {row.cycles for row in world.run("old").tasks.values()} == {1}
    assert {row.cycles for row in world.run("young").tasks.values()} == {0}


def test_who_joins_in_the_middle_of_a_round_climbs_in_the_next():
    world = starving()
    world.sweep()
    world.submit(graph(task("x", width=3)), "late")
    world.turn()
    world.advance(world.state.limits.starve_ms)
    for _ in range(ROUND - 1):
        world.sweep()
    assert {row.cycles for row in world.run("late").tasks.values()} == {0}
    for _ in range(ROUND + 1):
        world.sweep()
    assert {row.cycles for row in world.run("late").tasks.values()} == {1}


def test_whoever_became_servable_since_the_round_began_does_not_climb():
    world = starving()
    world.sweep()
    world.worker("able")
    world.disconnect("able")
    for _ in range(2 * ROUND):
        world.sweep()
    assert sum(row.cycles for row in world.run().tasks.values()) == SWEEP_TASKS_MAX
    assert {row.state for row in world.run().tasks.values()} == {QUEUED}


def test_the_timers_of_the_loop_do_the_same():
    world = starving()
    world.state.set_timer(world.now, "sweep")
    world.advance((ROUND - 1) * world.state.limits.sweep_ms)
    assert cycles(world) == {1}
