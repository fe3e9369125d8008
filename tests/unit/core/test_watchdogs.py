"""No state without a watchdog, and no watchdog that nobody calls."""

from collections.abc import Callable

import pytest

from rota.core import commands as cm
from rota.core import watchdogs
from rota.core.decide import DECIDERS
from rota.core.decide.timers import TICKS
from rota.core.model import RetryPolicy
from rota.core.place import place
from rota.core.states import (
    ASSIGNED,
    NEEDS_ATTENTION,
    QUEUED,
    RUN_TERMINAL,
    RUNNING,
    TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
    TaskState,
)
from rota.core.watchdogs import RUN_STATE_WATCHDOG, STATE_WATCHDOG
from tests.unit.core.world import World, task

HOUR_MS = 3_600_000


def test_every_task_state_that_is_not_an_end_has_a_watchdog():
    assert set(STATE_WATCHDOG) == set(TaskState) - TERMINAL
    assert all(STATE_WATCHDOG.values())


def test_every_run_state_that_is_not_an_end_has_a_watchdog():
    assert set(RUN_STATE_WATCHDOG) == set(RunState) - RUN_TERMINAL
    assert all(RUN_STATE_WATCHDOG.values())


def test_every_watchdog_is_called_for_a_timer_or_a_command_or_by_the_loop():
    named = [dog for table in (STATE_WATCHDOG, RUN_STATE_WATCHDOG) for dogs in table.values() for dog in dogs]
    called = [*TICKS.values(), *DECIDERS.values(), place]
    assert [dog.__name__ for dog in named if dog not in called] == []
    assert all(getattr(watchdogs, dog.__name__) is dog for dog in named), "each is named where it is defined"


def silent(world: World) -> World:
    """The world after every worker has fallen silent."""
    for tenant, name in list(world.beating):
        world.silence(name, tenant=tenant)
    return world


def unservable() -> World:
    world = World()
    world.worker("w", kinds=("other",))
    world.submit(task("x"))
    world.turn()
    world.state.set_timer(world.now, "sweep")
    return world


def assigned() -> World:
    world = World()
    world.worker("w")
    world.submit(task("x"))
    world.turn()
    return silent(world)


def claimed() -> World:
    world = World()
    world.queue("agents", pull=True)
    world.worker("w", pull=True)
    world.submit(task("x", queue="agents"))
    world.follow_up()
    world.client(cm.ClaimTask, worker="w", incarnation="i1")
    return silent(world)


def running() -> World:
    world = World()
    world.worker("w")
    world.submit(task("x"))
    (granted,) = world.turn()
    world.start(granted)
    return silent(world)


def endless() -> World:
    world = World()
    world.worker("w")
    world.submit(task("x", timeout_ms=1_000))
    (granted,) = world.turn()
    world.start(granted)
    return world


def cooling() -> World:
    world = World()
    world.worker("w")
    world.submit(task("x", retry=RetryPolicy(retries=1, delay_ms=1_000)))
    (granted,) = world.turn()
    world.fail(granted)
    return silent(world)


def rescheduled() -> World:
    world = World()
    world.worker("w")
    world.submit(task("x"))
    (granted,) = world.turn()
    world.report(granted, cm.Outcome.RESCHEDULE, resume_at=world.now + 1_000)
    return silent(world)


@pytest.mark.parametrize(
    ("state", "make"),
    [
        (QUEUED, unservable),
        (ASSIGNED, assigned),
        (RUNNING, claimed),
        (RUNNING, running),
        (RUNNING, endless),
        (UP_FOR_RETRY, cooling),
        (UP_FOR_RESCHEDULE, rescheduled),
    ],
    ids=["unservable", "assigned", "claimed", "running", "endless", "cooling", "rescheduled"],
)
def test_a_task_that_everybody_forgot_is_moved_on(state: TaskState, make: Callable[[], World]):
    world = make()
    row = world.task("x")
    assert row.state is state
    world.advance(HOUR_MS)
    assert row.state is not state


def test_a_parked_task_is_listed_until_a_person_decides():
    world = unservable()
    world.advance(HOUR_MS)
    assert world.task("x").state is NEEDS_ATTENTION
    world.client(cm.ResolveTask, run="r", task="x", exit=cm.Exit.FAIL)
    assert world.result() is RunState.FAILED
