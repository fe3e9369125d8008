"""The coordinator's watch over an attempt's own time limit, for workers that do not keep it."""

from rota.core import commands as cm
from rota.core.bounds import TimeLimits
from rota.core.changes import LeaseGranted
from rota.core.decide.leases import Judgement
from rota.core.model import FailureClass, RetryPolicy
from rota.core.presence import stalled
from rota.core.states import FAILED, QUEUED, RUNNING, UP_FOR_RETRY, RunState
from rota.core.step import step
from tests.unit.core.world import World, task

TIMEOUT_MS = 60_000
GRACE_MS = TimeLimits().overrun_ms


def begun(**spec: object) -> tuple[World, LeaseGranted]:
    """A world in which worker `w`, which goes on beating, has begun the only task."""
    world = World()
    world.worker("w")
    world.submit(task("x", timeout_ms=TIMEOUT_MS, **spec))
    (granted,) = world.turn()
    world.start(granted)
    return world, granted


def test_the_grace_is_one_lease():
    assert TimeLimits().lease_ms == GRACE_MS
    assert TimeLimits(lease_ms=10_000).overrun_ms == 10_000


def test_an_attempt_that_its_worker_does_not_end_fails_as_a_timeout_after_its_limit_and_the_grace():
    world, granted = begun()
    world.advance(TIMEOUT_MS + GRACE_MS - 1)
    assert world.task("x").state is RUNNING
    world.advance(1)
    row = world.task("x")
    assert (row.state, row.failure, row.done_fence) == (FAILED, FailureClass.TIMEOUT, granted.fence)
    assert "60000 ms" in row.error and "worker w" in row.error
    assert world.result() is RunState.FAILED
    assert world.succeed(granted) == Judgement.DUPLICATE


def test_the_retries_of_timeouts_apply():
    world, _ = begun(retry=RetryPolicy(retries=0, timeout_retries=1))
    world.advance(TIMEOUT_MS + GRACE_MS)
    assert world.task("x").state in (UP_FOR_RETRY, QUEUED)
    (again,) = world.turn()
    assert again.attempt == 2
    world.start(again)
    world.advance(TIMEOUT_MS + GRACE_MS)
    assert world.task("x").state is FAILED


def test_the_watch_is_over_the_attempt_that_began_and_not_over_its_successor():
    world, first = begun()
    world.advance(TIMEOUT_MS)
    world.interrupt(first)
    (second,) = world.turn()
    world.start(second)
    world.advance(TIMEOUT_MS + GRACE_MS - 1)
    assert (world.task("x").state, world.task("x").fence) == (RUNNING, second.fence)
    world.advance(1)
    assert world.task("x").state is FAILED


def test_a_task_without_a_limit_and_one_that_ends_in_time_are_left_alone():
    world = World()
    world.worker("w", 2)
    world.submit(task("x"), "endless")
    world.submit(task("x", timeout_ms=TIMEOUT_MS), "short")
    for granted in world.turn():
        world.start(granted)
        if granted.run == "short":
            world.succeed(granted)
    world.advance(10 * TIMEOUT_MS)
    assert world.result("endless") is RunState.RUNNING
    assert ("t", "short") not in world.state.runs, "it succeeded and was archived"


def test_time_during_which_the_coordinator_did_not_run_is_added():
    world, _ = begun()
    world.advance(TIMEOUT_MS)
    world.now += GRACE_MS
    stalled(world.state, GRACE_MS)
    world.fire_due()
    world.advance(GRACE_MS - 1)
    assert world.task("x").state is RUNNING
    world.advance(1)
    assert world.task("x").state is FAILED


def test_the_watch_goes_on_after_a_restart_with_the_grace_given_once_more():
    world, granted = begun()
    world.advance(TIMEOUT_MS + GRACE_MS - 10)
    after = world.restarted()
    after.state.leases[granted.fence].confirmed = True
    after.advance(GRACE_MS - 1)
    assert after.task("x").state is RUNNING
    after.advance(1)
    assert (after.task("x").state, after.task("x").failure) == (FAILED, FailureClass.TIMEOUT)


def test_a_restart_long_before_the_limit_moves_nothing():
    world, granted = begun()
    after = world.restarted()
    after.state.leases[granted.fence].confirmed = True
    after.advance(TIMEOUT_MS + GRACE_MS - 1)
    assert after.task("x").state is RUNNING
    after.advance(1)
    assert after.task("x").state is FAILED


def test_a_pull_workers_claim_is_its_start():
    world = World()
    world.queue("agents", pull=True)
    world.worker("w", pull=True)
    world.submit(task("x", queue="agents", timeout_ms=TIMEOUT_MS))
    world.follow_up()
    world.client(cm.ClaimTask, worker="w", incarnation="i1", lease_ms=10 * TIMEOUT_MS)
    world.advance(TIMEOUT_MS + GRACE_MS - 1)
    assert world.task("x").state is RUNNING
    world.advance(1)
    assert (world.task("x").state, world.task("x").failure) == (FAILED, FailureClass.TIMEOUT)


def test_the_safety_net_finds_an_attempt_whose_timer_was_lost():
    world, _ = begun()
    world.state.timers.clear()
    world.state.armed.clear()
    world.now += TIMEOUT_MS + GRACE_MS
    world.hear("w")
    assert step(world.state, world.now, world.do) is None
    assert world.task("x").state is FAILED
