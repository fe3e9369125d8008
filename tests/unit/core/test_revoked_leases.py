"""Work that may run twice at once is granted again as soon as its worker is silent, and limits count both leases."""

from rota.core import commands as cm
from rota.core.bounds import INTERRUPTIONS_MAX
from rota.core.changes import LeaseGranted, LeaseReturned
from rota.core.decide.leases import Judgement
from rota.core.invariants import validate
from rota.core.model import Pool, PoolNeed
from rota.core.presence import stalled
from rota.core.reap import REGRANTED
from rota.core.states import NEEDS_ATTENTION, QUEUED, RUNNING, SUCCESS, RunState
from tests.unit.core.world import TENANT, World, derived, graph, image, task

TIMEOUT_MS = 15_000
NEEDS = (PoolNeed(pool="p", amount=1),)


def at_work(*others: str, slots: int = 1, regrant: bool = True, pool_slots: int = 2) -> tuple[World, LeaseGranted]:
    """A world in which `w` runs the only task and falls silent; `others` are well."""
    world = World()
    world.client(cm.PutPool, pool=Pool(tenant=TENANT, name="p", slots=pool_slots))
    world.queue(worker_timeout_ms=TIMEOUT_MS)
    world.worker("w", slots)
    world.submit(graph(task("x", pools=NEEDS), regrant_when_silent=regrant))
    (granted,) = world.turn()
    world.start(granted)
    for name in others:
        world.worker(name)
    world.silence("w")
    return world, granted


def silent_for(world: World, ms: int) -> list[LeaseGranted]:
    """Time passes; what is granted after it."""
    world.advance(ms)
    granted = world.turn()
    assert validate(world.state, world.now) == []
    return granted


def used(world: World) -> tuple[int, int]:
    """What the pool counts, and what `w` has free."""
    return world.state.usage[(TENANT, "p")].taken, world.state.workers[(TENANT, "w")].slots_free


def test_another_worker_has_it_once_its_own_was_silent_for_the_time_of_its_queue():
    world, first = at_work("v")
    assert silent_for(world, TIMEOUT_MS) == []
    (second,) = silent_for(world, 1)
    assert (second.worker, second.attempt) == ("v", first.attempt)
    assert second.fence > first.fence
    assert used(world) == (2, 0), "both count until the first lease is over"


def test_the_report_of_the_first_worker_is_refused_and_ends_its_lease():
    world, first = at_work("v")
    (second,) = silent_for(world, TIMEOUT_MS + 1)
    world.hear("w")
    assert world.start(first) == Judgement.OLD_FENCE
    assert used(world) == (2, 0), "it says that it is at work"
    assert world.succeed(first, result=b"first") == Judgement.OLD_FENCE
    assert used(world) == (1, 1)
    assert world.succeed(second, result=b"second") == Judgement.ACCEPTED
    assert world.task("x").result == b"second"


def test_the_first_lease_counts_until_its_own_end():
    world, _ = at_work("v")
    (second,) = silent_for(world, TIMEOUT_MS + 1)
    world.succeed(second)
    assert world.result() is RunState.SUCCESS
    silent_for(world, world.state.limits.lease_ms - TIMEOUT_MS - 2)
    assert used(world) == (1, 0)
    silent_for(world, 1)
    assert used(world) == (0, 1)


def test_a_pool_without_room_for_both_has_the_second_wait_for_the_end_of_the_first():
    world, _ = at_work("v", pool_slots=1)
    assert silent_for(world, TIMEOUT_MS + 1) == []
    assert world.task("x").state is QUEUED
    assert silent_for(world, world.state.limits.lease_ms - TIMEOUT_MS - 2) == []
    (second,) = silent_for(world, 1)
    assert second.worker == "v"


def test_a_worker_that_is_alone_keeps_it_for_its_lease():
    world, first = at_work()
    silent_for(world, world.state.limits.lease_ms - 1)
    assert world.task("x").fence == first.fence
    world.worker("v")
    (second,) = silent_for(world, 0) or silent_for(world, 1)
    assert second.worker == "v"


def test_a_worker_that_joins_later_has_it_within_a_second():
    world, _ = at_work()
    silent_for(world, TIMEOUT_MS + 1)
    world.worker("v")
    (second,) = silent_for(world, 1_000)
    assert second.worker == "v"


def test_a_worker_that_speaks_in_time_keeps_it():
    world, first = at_work("v")
    for _ in range(5):
        assert silent_for(world, TIMEOUT_MS) == []
        world.hear("w")
    assert world.task("x").fence == first.fence


def test_work_that_must_not_run_twice_waits_for_the_end_of_its_lease():
    world, first = at_work("v", regrant=False)
    assert silent_for(world, world.state.limits.lease_ms - 1) == []
    assert world.task("x").fence == first.fence
    (second,) = silent_for(world, 1)
    assert second.worker == "v"
    assert used(world)[0] == 1


def test_time_during_which_the_coordinator_did_not_run_is_no_silence():
    world, first = at_work("v")
    world.now += 3 * TIMEOUT_MS
    stalled(world.state, 3 * TIMEOUT_MS)
    world.hear("v")
    world.fire_due()
    assert world.task("x").fence == first.fence
    (second,) = silent_for(world, TIMEOUT_MS + 1)
    assert second.worker == "v"


def test_after_an_election_it_is_not_granted_again_before_its_worker_could_come_back():
    world, first = at_work("v")
    world.advance(TIMEOUT_MS - 1)
    after = world.restarted()
    after.hear("v")
    after.advance(after.state.limits.lease_ms - 1)
    after.turn()
    assert (after.task("x").state, after.task("x").fence) == (RUNNING, first.fence)


def test_an_election_forgets_no_revoked_lease():
    world, first = at_work("v")
    silent_for(world, TIMEOUT_MS + 1)
    after = world.restarted()
    assert derived(after.state) == derived(world.state)
    assert image(after.state) == image(world.state)
    assert used(after) == (2, 0)
    after.hear("v")
    after.state.leases[after.task("x").fence].confirmed = True
    silent_for(after, after.state.limits.lease_ms)
    assert used(after) == (1, 1)
    assert first.fence not in after.state.revoked


def test_what_a_worker_does_not_hold_any_more_counts_no_longer():
    for end in ("absence", "restart", "struck off"):
        world, first = at_work("v")
        silent_for(world, TIMEOUT_MS + 1)
        match end:
            case "absence":
                world.interrupt(first, "not held any more")
            case "restart":
                world.worker("w", incarnation="i2")
            case _:
                world.client(cm.ForgetWorker, worker="w")
        assert world.state.usage[(TENANT, "p")].taken == 1, end
        assert world.state.revoked == {}, end
        assert validate(world.state, world.now) == [], end
        assert world.task("x").state is not QUEUED, f"{end}: the second lease is as it was"


def test_it_is_an_interruption_and_so_bounded():
    world, granted = at_work("v")
    worker = "w"
    for number in range(1, INTERRUPTIONS_MAX + 1):
        world.silence(worker)
        other = "v" if worker == "w" else "w"
        world.beating[(TENANT, other)] = None
        world.hear(other)
        world.advance(2 * world.state.limits.lease_ms)
        assert world.task("x").interruptions == number
        if number == INTERRUPTIONS_MAX:
            break
        (granted,) = world.turn()
        world.start(granted)
        worker = granted.worker
    assert world.task("x").state is NEEDS_ATTENTION
    assert validate(world.state, world.now) == []


def test_a_run_with_a_revoked_lease_is_archived_after_the_end_of_that():
    world, _ = at_work("v")
    (second,) = silent_for(world, TIMEOUT_MS + 1)
    world.succeed(second)
    world.state.retain_ms = lambda run: 0  # pyright: ignore[reportAttributeAccessIssue] - sooner than the lease's end
    world.advance(1)
    world.do(cm.Tick(tenant="", kind="archive", key=(TENANT, "r")))
    assert (TENANT, "r") in world.state.runs
    world.advance(world.state.limits.lease_ms + world.state.limits.retain_ended_ms + world.state.limits.beat_ms)
    assert (TENANT, "r") not in world.state.runs


def test_the_story_says_why_it_was_taken_back():
    world, first = at_work("v")
    silent_for(world, TIMEOUT_MS + 1)
    (returned,) = [change for change in world.changes if isinstance(change, LeaseReturned)]
    assert (returned.fence, returned.cause, returned.revoked) == (first.fence, REGRANTED, True)


def test_of_two_results_one_counts():
    world, first = at_work("v")
    (second,) = silent_for(world, TIMEOUT_MS + 1)
    assert world.succeed(second, result=b"2") == Judgement.ACCEPTED
    assert world.succeed(first, result=b"1") == Judgement.ALREADY_ENDED
    assert (world.task("x").state, world.task("x").result) == (SUCCESS, b"2")
    assert used(world)[1] == 1
