"""The safety net: one pass over everything finds nothing on a healthy state, and finds whatever was dropped.

Each rescue is shown by taking something out of the state by hand that the engine would have relied on.
"""

import re
from collections.abc import Callable

import pytest

from rota.core import commands as cm
from rota.core.calendar import ScheduleSpec
from rota.core.changes import Change
from rota.core.invariants import validate
from rota.core.live import LiveRun
from rota.core.model import Graph, RetryPolicy
from rota.core.reap import ORPHANED
from rota.core.state import State
from rota.core.states import NONE, QUEUED, RUNNING, RunState
from rota.core.step import PHASES, step
from tests.unit.core.world import World, graph, image, short_slices, task

LATER = RetryPolicy(retries=3, delay_ms=10_000, jitter=False)


def stepped(world: World) -> list[Change]:
    """What one pass did; it must have met no error."""
    before = len(world.changes)

    def carry_out(command: cm.Command) -> None:
        world.do(command)

    assert step(world.state, world.now, carry_out) is None
    return world.changes[before:]


def forget_timers(state: State) -> None:
    """Every timer is lost."""
    state.timers.clear()
    state.armed.clear()


def unplan(world: World, run: LiveRun, name: str) -> None:
    """A task that was planned goes back to never having been looked at, without anybody having been told."""
    node = run.graph.index[name]
    row = run.tasks[run.graph.start[node]]
    assert row.state is QUEUED
    world.state.withdraw(run, row)
    del run.tasks[row.idx]
    run.moving -= 1
    run.fired[node] = 0


def lively() -> World:
    """A bit of everything, all of it as it should be."""
    world = World()
    world.worker("w", slots=3)
    world.pool("p", slots=1)
    world.submit(graph(task("a"), task("b", "a"), task("c", "b"), name="chain"), "chain")
    world.submit(graph(task("x", retry=LATER), name="retry"), "retry")
    for run in ("capped-1", "capped-2"):
        world.submit(graph(task("x", requires=(("cpu_count", "1"),)), name="capped", max_active_runs=1), run)
    world.submit(graph(task("x"), task("y"), name="paused"), "paused")
    world.client(cm.PauseRun, run="paused")
    world.submit(graph(task("x"), run_timeout_ms=900_000, name="timed"), "timed")
    spec = ScheduleSpec(every_ms=3_600_000)
    world.client(cm.PutSchedule, schedule="s", graph=graph(task("x"), name="hourly"), spec=spec)
    world.advance(1)
    for granted in world.turn():
        world.start(granted)
        if granted.run == "retry":
            world.fail(granted)
        elif granted.run == "chain":
            world.succeed(granted)
    world.turn()
    return world


# A healthy state.


def test_a_healthy_state_is_left_as_it_is():
    world = lively()
    before = image(world.state)
    assert stepped(world) == []
    assert stepped(world) == []
    assert image(world.state) == before
    assert validate(world.state, world.now) == []


def test_a_step_over_nothing_finds_nothing():
    world = World()
    assert stepped(world) == []


def test_the_phases_ask_in_an_order_that_depends_on_nothing_but_the_state():
    world = lively()
    asked = [[command for phase in PHASES for command in phase(world.state, world.now)] for _ in range(2)]
    assert asked[0] == asked[1]
    assert asked[0]


# Lost timers.


def test_a_retry_whose_timer_was_lost_is_made():
    world = World()
    world.worker()
    world.submit(task("x", retry=LATER))
    world.fail(world.turn()[0])
    forget_timers(world.state)
    world.now += 9_999
    assert stepped(world) == []
    world.now += 1
    assert stepped(world)
    assert world.task("x").state is QUEUED


def test_a_deadline_whose_timer_was_lost_is_kept():
    world = World()
    world.submit(graph(task("x"), run_timeout_ms=5_000))
    world.turn()
    forget_timers(world.state)
    world.now += 5_000
    stepped(world)
    world.follow_up()
    assert world.result() is RunState.FAILED


def test_an_ended_run_whose_timer_was_lost_moves_to_history():
    world = World()
    world.worker()
    world.submit(task("x"))
    world.succeed(world.turn()[0])
    forget_timers(world.state)
    world.now += world.state.limits.retain_ended_ms
    stepped(world)
    assert not world.state.runs


@pytest.mark.parametrize("started", [True, False])
def test_a_lease_whose_timer_was_lost_ends_all_the_same(started):
    world = World()
    world.worker()
    world.submit(task("x"))
    (granted,) = world.turn()
    if started:
        world.start(granted)
    world.silence()
    forget_timers(world.state)
    world.now += world.state.limits.lease_ms if started else world.state.limits.dispatch_ms
    stepped(world)
    assert world.task("x").state is QUEUED


def test_a_claimed_lease_whose_timer_was_lost_ends_all_the_same():
    world = World()
    world.queue("agents", pull=True)
    world.worker("w", pull=True)
    world.submit(task("x", queue="agents"))
    world.follow_up()
    world.client(cm.ClaimTask, worker="w", incarnation="i1", lease_ms=60_000)
    world.silence()
    forget_timers(world.state)
    world.now += 59_999
    assert stepped(world) == []
    world.now += 1
    stepped(world)
    assert world.task("x").state is QUEUED


def test_a_schedule_whose_timer_was_lost_fires():
    world = World()
    spec = ScheduleSpec(every_ms=60_000)
    world.client(cm.PutSchedule, schedule="s", graph=graph(task("x")), spec=spec)
    world.fire_due()
    forget_timers(world.state)
    world.now += 60_000
    stepped(world)
    assert len(world.state.runs) == 1


# Lost starts, cascades and countdowns.


def test_a_run_whose_start_was_forgotten_is_started():
    world = World()
    world.submit(graph(task("a"), task("b", "a")))
    world.state.starts.clear()
    stepped(world)
    assert world.result() is RunState.RUNNING


def test_a_run_that_waited_for_its_cap_is_started_although_nobody_said_that_there_is_room():
    world = World()
    world.worker()
    capped = graph(task("x"), max_active_runs=1)
    world.submit(capped, "first")
    world.submit(capped, "second")
    world.succeed(world.turn()[0])
    world.state.starts.clear()
    stepped(world)
    assert world.result("second") is RunState.RUNNING


def test_a_cascade_that_was_forgotten_goes_on():
    world = World()
    with short_slices(2):
        world.submit(graph(task("x", width=6)))
        name = next(iter(world.state.starts))
        world.do(cm.StartRuns(tenant=name[0], name=name[1]))
        world.state.continues.clear()
        while stepped(world):
            world.state.continues.clear()
    assert set(world.states().values()) == {"queued"}


def planned(*more: str) -> tuple[World, LiveRun]:
    """`a` has succeeded and `b` after it was planned; other tasks are at work."""
    world = World()
    world.worker("w", slots=1 + len(more))
    run = world.submit(graph(task("a"), task("b", "a"), *(task(name) for name in more)))
    for granted in world.turn():
        world.start(granted)
        if granted.task == 0:
            world.succeed(granted)
    return world, run


@pytest.mark.parametrize("more", [(), ("c",)], ids=["nothing else moves", "another task runs"])
def test_a_task_that_was_never_planned_is_planned(more):
    world, run = planned(*more)
    unplan(world, run, "b")
    stepped(world)
    assert world.task("b").state is QUEUED
    assert world.result() is RunState.RUNNING


@pytest.mark.parametrize("more", [(), ("c",)], ids=["nothing else moves", "another task runs"])
def test_a_countdown_that_was_lost_is_counted_again(more):
    world, run = planned(*more)
    unplan(world, run, "b")
    assert run.success is not None
    run.success[run.graph.index["b"]] = 0
    stepped(world)
    assert world.result() is RunState.RUNNING, "a run must not fail because we counted wrong"
    assert world.task("b").state is QUEUED


def test_a_run_that_nothing_moves_is_failed_in_the_end_and_says_why():
    world = World()
    run = world.submit(graph(task("a"), task("b", "a")))
    world.turn()
    unplan(world, run, "a")
    run.fired[run.graph.index["a"]] = 1
    world.now += world.state.limits.orphan_ms - 1
    assert stepped(world) == []
    assert world.result() is RunState.RUNNING
    world.now += 1
    stepped(world)
    assert world.result() is RunState.FAILED
    assert re.fullmatch(rf"{ORPHANED}: .*\b1\b.*: b", run.row.reason)
    assert world.state.decided["orphan_reaped"] == 1


def test_what_is_held_on_purpose_is_left_alone():
    world = World()
    world.worker()
    world.submit(task("x", retry=LATER))
    world.fail(world.turn()[0])
    world.client(cm.PauseRun, run="r")
    world.now += 60_000
    assert stepped(world) == []
    world.client(cm.PauseRun, run="r", paused=False)
    stepped(world)
    assert world.task("x").state is QUEUED


def test_matching_looks_at_everything_once_more():
    world = World()
    world.submit(task("x"))
    world.follow_up()
    world.worker()
    world.state.index.fresh.clear()
    world.state.index.hungry.clear()
    assert world.place() == []
    stepped(world)
    assert len(world.place()) == 1


def test_nobody_is_called_an_orphan_while_the_coordinator_settles():
    world = World()
    run = world.submit(graph(task("a"), task("b", "a")))
    world.turn()
    unplan(world, run, "a")
    run.fired[run.graph.index["a"]] = 1
    kinds = [command.kind for command in PHASES[-1](world.state, world.now) if isinstance(command, cm.Tick)]
    assert "orphan" not in kinds
    settled = world.now + world.state.limits.settle_ms
    kinds = [command.kind for command in PHASES[-1](world.state, settled) if isinstance(command, cm.Tick)]
    assert "orphan" in kinds


# Errors.


def asks_for(kind: str) -> Callable[[cm.Command], bool]:
    return lambda command: isinstance(command, cm.Tick) and command.kind == kind


def test_every_phase_runs_even_if_an_earlier_one_failed_and_the_first_error_is_handed_back():
    world = lively()
    seen: list[str] = []

    def carry_out(command: cm.Command) -> None:
        kind = command.kind if isinstance(command, cm.Tick) else type(command).__name__
        seen.append(kind)
        if kind in ("review", "schedule"):
            raise ValueError(kind)

    error = step(world.state, world.now, carry_out)
    assert isinstance(error, ValueError)
    assert str(error) == "review"
    assert seen == ["review", "StartRuns", "schedule", "worker"]


@pytest.mark.parametrize("broken", ["review", "schedule", "worker"])
def test_an_error_of_one_phase_keeps_no_other_from_its_rescue(broken):
    world = World()
    world.worker()
    world.submit(graph(task("a"), task("b", "a"), name="waits"), "waits")
    world.state.starts.clear()
    meets = asks_for(broken)

    def carry_out(command: cm.Command) -> None:
        if meets(command):
            raise ValueError(broken)
        world.do(command)

    step(world.state, world.now, carry_out)
    assert world.result("waits") is RunState.RUNNING


def test_matching_is_woken_even_if_a_phase_failed():
    world = World()
    world.submit(task("x"))
    world.follow_up()
    world.worker()
    world.state.index.fresh.clear()
    world.state.index.hungry.clear()

    def carry_out(command: cm.Command) -> None:
        raise ValueError("always")

    assert step(world.state, world.now, carry_out) is not None
    assert len(world.place()) == 1


def test_a_step_may_be_made_at_any_time_in_the_life_of_a_run():
    world = World()
    world.worker("w", slots=2)
    whole: Graph = graph(task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c"))
    world.submit(whole)
    assert stepped(world), "it may start a run that is about to start"
    for _ in range(8):
        assert stepped(world) == []
        for granted in world.turn():
            assert stepped(world) == []
            world.start(granted)
            assert world.run().tasks[granted.task].state is RUNNING
            world.succeed(granted)
            assert stepped(world) == []
    assert world.result() is RunState.SUCCESS
    assert NONE.value not in world.states().values()
