"""Leases: who may report on an attempt, until when, and what an interruption costs.

Time decides when we stop waiting for a worker; the fence alone decides whose answer counts.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import commands as cm
from rota.core.bounds import INTERRUPTIONS_MAX, OUTPUT_LOSSES_MAX, REFUSED_REPORTS_TOLD_MAX
from rota.core.changes import LeaseGranted
from rota.core.decide.leases import Input, Judgement, offer_of
from rota.core.errors import Refused
from rota.core.ids import NO_FENCE, fence_epoch, fence_number, make_fence
from rota.core.model import FailureClass, RetryPolicy
from rota.core.presence import stalled
from rota.core.reap import FELL_SILENT
from rota.core.states import (
    ASSIGNED,
    FAILED,
    NEEDS_ATTENTION,
    QUEUED,
    RUNNING,
    SKIPPED,
    SUCCESS,
    UP_FOR_RETRY,
    RunState,
)
from tests.effort import examples
from tests.unit.core.world import TENANT, World, graph, image, task


def granted_one(**spec: object) -> tuple[World, LeaseGranted]:
    """A world in which worker `w` has just been given the only task."""
    world = World()
    world.worker("w")
    world.submit(task("x", **spec))
    (granted,) = world.turn()
    return world, granted


def told(world: World, granted: LeaseGranted, **fields: object) -> str:
    """The judgement on a report that must leave the task as it was."""
    before = {key: row for key, row in image(world.state).items() if key[0] == "Task"}
    state = world.task("x").state
    judgement = world.succeed(granted, **fields)
    assert world.task("x").state is state
    assert {key: row for key, row in image(world.state).items() if key[0] == "Task"} == before
    return judgement


# The ordinary life of a lease.


def test_why_an_attempt_was_skipped_is_kept():
    world, granted = granted_one()
    world.report(granted, cm.Outcome.SKIPPED, error="nothing new\0today")
    assert (world.task("x").state, world.task("x").error) == (SKIPPED, "nothing new\ufffdtoday")


def test_a_lease_goes_from_grant_to_start_to_its_one_outcome():
    world, granted = granted_one(work=b"code", timeout_ms=5)
    row = world.task("x")
    assert (row.state, row.attempt, row.fence, row.worker) == (ASSIGNED, 1, granted.fence, "w")
    offer = offer_of(world.state.leases[granted.fence])
    assert (offer.task_id, offer.work, offer.fence, offer.attempt, offer.timeout_ms) == (
        "x",
        b"code",
        granted.fence,
        1,
        5,
    )
    assert world.start(granted) == Judgement.ACCEPTED
    assert (row.state, row.started_at) == (RUNNING, world.now)
    assert world.succeed(granted, result=b"done") == Judgement.ACCEPTED
    assert (row.state, row.result, row.fence, row.done_fence, row.worker) == (SUCCESS, b"done", 0, granted.fence, "")
    assert not world.state.leases
    assert world.result() is RunState.SUCCESS


def test_a_result_may_overtake_its_start():
    world, granted = granted_one()
    assert world.succeed(granted) == Judgement.ACCEPTED
    assert world.task("x").state is SUCCESS


def test_a_result_that_is_too_large_is_refused_and_changes_nothing():
    world, granted = granted_one()
    with pytest.raises(Refused) as caught:
        world.succeed(granted, result=b"x" * 70_000)
    assert (caught.value.code, caught.value.path) == ("field.size", "result")
    assert world.task("x").state is ASSIGNED


# Judgements, one by one.


def test_a_repeated_start_is_a_duplicate():
    world, granted = granted_one()
    world.start(granted)
    assert world.start(granted) == Judgement.DUPLICATE
    assert world.task("x").state is RUNNING


def test_a_repeated_outcome_is_a_duplicate_and_the_first_one_stands():
    world, granted = granted_one()
    world.succeed(granted, result=b"first")
    assert told(world, granted, result=b"second") == Judgement.DUPLICATE
    assert world.fail(granted) == Judgement.DUPLICATE
    assert world.task("x").result == b"first"


def test_a_late_start_of_an_attempt_that_ended_is_a_duplicate():
    world, granted = granted_one()
    world.succeed(granted)
    assert world.start(granted) == Judgement.DUPLICATE


def test_a_report_on_a_run_nobody_knows():
    world, granted = granted_one()
    assert told(world, granted, run="other") == Judgement.UNKNOWN_RUN
    assert told(world, granted, tenant="other") == Judgement.UNKNOWN_RUN


def test_a_report_on_a_task_that_never_left_none():
    world, granted = granted_one()
    assert told(world, granted, task=7) == Judgement.UNKNOWN_TASK


def test_a_report_under_a_fence_that_was_never_issued():
    world, granted = granted_one()
    assert told(world, granted, fence=granted.fence + 1) == Judgement.UNKNOWN_FENCE
    assert told(world, granted, fence=make_fence(99, 1)) == Judgement.UNKNOWN_FENCE


def test_a_report_under_no_fence_at_all_is_not_taken_for_a_duplicate():
    world, granted = granted_one()
    assert told(world, granted, fence=NO_FENCE) not in (Judgement.DUPLICATE, Judgement.ACCEPTED)


def test_a_report_by_somebody_else_than_the_holder():
    world, granted = granted_one()
    assert told(world, granted, worker="thief") == Judgement.NOT_THE_HOLDER
    assert told(world, granted, worker_tenant="other") == Judgement.NOT_THE_HOLDER


def test_a_report_by_another_incarnation_of_the_holder():
    world, granted = granted_one()
    assert told(world, granted, incarnation="i2") == Judgement.OTHER_INCARNATION


def test_a_report_on_a_lease_that_was_returned_is_under_an_old_fence():
    world, granted = granted_one()
    world.interrupt(granted)
    assert told(world, granted) == Judgement.OLD_FENCE
    (again,) = world.turn()
    assert told(world, granted) == Judgement.OLD_FENCE
    assert world.succeed(again) == Judgement.ACCEPTED


def test_a_report_on_an_earlier_attempt_after_the_task_ended():
    world, granted = granted_one(retry=RetryPolicy(retries=1))
    world.interrupt(granted)
    (again,) = world.turn()
    world.succeed(again)
    assert told(world, granted) == Judgement.ALREADY_ENDED


def test_a_second_report_that_says_something_else():
    world, granted = granted_one()
    world.succeed(granted, result=b"one")
    assert told(world, granted, result=b"one", token_hash="a claimant's") == Judgement.DUPLICATE
    assert told(world, granted, result=b"two", token_hash="a claimant's") == Judgement.OTHER_OUTCOME
    assert told(world, granted, result=b"two") == Judgement.DUPLICATE, "a worker needs no verdict"


def test_a_report_from_before_the_election_on_a_lease_that_was_given_to_another():
    world, granted = granted_one()
    after = world.restarted()
    after.hear("w")
    after.interrupt(granted)
    assert told(after, granted) == Judgement.OLD_EPOCH


def test_a_report_from_before_the_election_counts_if_the_lease_is_still_live():
    world, granted = granted_one()
    after = world.restarted()
    assert after.succeed(granted) == Judgement.ACCEPTED


def test_every_judgement_has_been_seen_here():
    assert {item.name for item in Judgement} == {
        "ACCEPTED",
        "DUPLICATE",
        "UNKNOWN_RUN",
        "UNKNOWN_TASK",
        "UNKNOWN_FENCE",
        "NOT_THE_HOLDER",
        "OTHER_INCARNATION",
        "WRONG_TOKEN",
        "ALREADY_ENDED",
        "OLD_EPOCH",
        "OLD_FENCE",
        "OTHER_OUTCOME",
    }


def test_a_flood_of_refused_reports_is_not_written():
    world, granted = granted_one()
    for _ in range(50):
        told(world, granted, worker="thief")
    assert world.state.runs[(granted.tenant, granted.run)].told == REFUSED_REPORTS_TOLD_MAX


# Interruptions and releases.


def test_an_interruption_of_started_work_costs_no_attempt_and_is_counted():
    world, granted = granted_one()
    world.start(granted)
    world.interrupt(granted)
    row = world.task("x")
    assert (row.state, row.attempt, row.interruptions, row.avoid) == (QUEUED, 0, 1, "w")
    (again,) = world.turn()
    assert (again.attempt, again.fence > granted.fence) == (1, True)


def test_a_lease_that_never_started_is_returned_without_being_counted():
    world, granted = granted_one()
    world.interrupt(granted)
    row = world.task("x")
    assert (row.state, row.attempt, row.interruptions, row.avoid) == (QUEUED, 0, 0, "")


def test_after_five_interruptions_a_task_is_parked_with_what_happened():
    world, granted = granted_one()
    for number in range(INTERRUPTIONS_MAX):
        world.start(granted)
        world.interrupt(granted, FELL_SILENT)
        if number < INTERRUPTIONS_MAX - 1:
            (granted,) = world.turn()
    row = world.task("x")
    assert (row.state, row.interruptions, row.attempt) == (NEEDS_ATTENTION, INTERRUPTIONS_MAX, 0)
    assert re.fullmatch(rf"{FELL_SILENT}; .*\b{INTERRUPTIONS_MAX}\b.*\bw", row.error)
    assert world.turn() == []
    assert world.result() is RunState.RUNNING


def test_a_release_costs_nothing_and_counts_for_nothing():
    world, granted = granted_one()
    for _ in range(2 * INTERRUPTIONS_MAX):
        world.start(granted)
        assert world.report(granted, cm.Outcome.RELEASED) == Judgement.ACCEPTED
        (granted,) = world.turn()
    row = world.task("x")
    assert (row.state, row.attempt, row.interruptions, row.avoid) == (ASSIGNED, 1, 0, "")


def test_an_interruption_does_not_use_up_the_retry_budget():
    world, granted = granted_one(retry=RetryPolicy(retries=1))
    world.start(granted)
    world.interrupt(granted)
    (granted,) = world.turn()
    world.fail(granted)
    assert world.task("x").state is UP_FOR_RETRY


# Fences.


def test_fences_grow_across_grants_and_restarts():
    world, granted = granted_one()
    fences = [granted.fence]
    for _ in range(3):
        world.interrupt(granted)
        (granted,) = world.turn()
        fences.append(granted.fence)
    after = world.restarted()
    after.hear("w")
    after.interrupt(granted)
    (granted,) = after.turn()
    fences.append(granted.fence)
    assert fences == sorted(set(fences))
    assert (fence_epoch(granted.fence), fence_number(granted.fence)) == (2, 1)


@examples(40)
@given(data=st.data())
def test_a_fence_is_never_used_twice_and_never_changes_while_its_lease_lives(data: st.DataObject):
    world = World()
    world.worker("a", slots=2)
    world.worker("b", slots=2)
    world.submit(graph(task("x", width=6, retry=RetryPolicy(retries=3))))
    seen: list[int] = []
    holders: dict[int, tuple[int, str, str]] = {}
    for _ in range(30):
        for granted in world.turn():
            assert not seen or granted.fence > seen[-1]
            seen.append(granted.fence)
            holders[granted.fence] = (granted.task, granted.worker, granted.incarnation)
        for fence, lease in world.state.leases.items():
            assert (lease.task.idx, lease.worker.row.id, lease.task.incarnation) == holders[fence]
            assert lease.task.fence == fence
        if not world.state.leases:
            break
        fence = data.draw(st.sampled_from(sorted(world.state.leases)))
        chosen = world.state.leases[fence]
        granted = LeaseGranted(
            TENANT, "r", chosen.task.idx, fence, TENANT, chosen.worker.row.id, chosen.task.incarnation, 1, 0, 0
        )
        what = data.draw(st.sampled_from(["start", "succeed", "fail", "interrupt", "release"]))
        if what == "interrupt":
            world.interrupt(granted)
        elif what == "release":
            world.report(granted, cm.Outcome.RELEASED)
        else:
            getattr(world, what)(granted)
        world.fire_due()


# Time.


def test_a_lease_ends_by_silence_at_its_very_end_and_not_a_millisecond_earlier():
    world, granted = granted_one()
    world.start(granted)
    world.silence("w")
    world.advance(world.state.limits.lease_ms - 1)
    assert world.task("x").state is RUNNING
    world.advance(1)
    assert (world.task("x").state, world.task("x").interruptions) == (QUEUED, 1)


def test_a_worker_that_goes_on_speaking_keeps_its_leases():
    world, granted = granted_one()
    world.start(granted)
    world.advance(10 * world.state.limits.lease_ms)
    assert world.task("x").state is RUNNING
    assert world.succeed(granted) == Judgement.ACCEPTED


def test_an_assignment_that_is_never_acknowledged_is_returned_after_ten_seconds():
    world, _ = granted_one()
    world.advance(world.state.limits.dispatch_ms - 1)
    assert world.task("x").state is ASSIGNED
    world.advance(1)
    assert (world.task("x").state, world.task("x").interruptions) == (QUEUED, 0)


def test_time_during_which_the_coordinator_did_not_run_ends_no_lease():
    world, granted = granted_one()
    world.start(granted)
    world.silence("w")
    world.now += 3 * world.state.limits.lease_ms
    stalled(world.state, 3 * world.state.limits.lease_ms)
    world.fire_due()
    assert world.task("x").state is RUNNING
    world.advance(world.state.limits.lease_ms)
    assert world.task("x").state is QUEUED


def test_time_during_which_the_coordinator_did_not_run_loses_no_dispatch():
    world, _ = granted_one()
    world.now += 3 * world.state.limits.dispatch_ms
    stalled(world.state, 3 * world.state.limits.dispatch_ms)
    world.fire_due()
    assert world.task("x").state is ASSIGNED
    world.advance(world.state.limits.dispatch_ms)
    assert world.task("x").state is QUEUED


def test_a_stall_before_the_grant_does_not_lengthen_the_lease():
    world = World()
    world.worker("w")
    stalled(world.state, 5_000_000)
    world.submit(task("x"))
    (granted,) = world.turn()
    world.start(granted)
    world.silence("w")
    world.advance(world.state.limits.lease_ms)
    assert world.task("x").state is QUEUED


def test_after_an_election_no_lease_ends_before_a_full_lease_time():
    world, granted = granted_one()
    world.start(granted)
    world.silence("w")
    world.advance(world.state.limits.lease_ms - 1)
    after = world.restarted()
    after.advance(world.state.limits.lease_ms - 1)
    assert after.task("x").state is RUNNING
    after.advance(1)
    assert after.task("x").state is QUEUED


def test_losing_the_stream_is_not_losing_the_lease():
    world, granted = granted_one()
    world.start(granted)
    world.disconnect("w")
    world.advance(world.state.limits.lease_ms - 1)
    assert world.succeed(granted) == Judgement.ACCEPTED


# Incarnations.


def test_a_new_incarnation_returns_what_the_old_one_held():
    world, granted = granted_one()
    world.start(granted)
    world.disconnect("w")
    world.worker("w", incarnation="i2")
    row = world.task("x")
    assert (row.state, row.attempt, row.interruptions) == (QUEUED, 0, 1)
    assert told(world, granted) == Judgement.OLD_FENCE
    (again,) = world.turn()
    assert again.incarnation == "i2"


def test_a_worker_we_lost_sight_of_is_taken_for_alive_for_two_more_beats():
    world, _ = granted_one()
    world.disconnect("w", hung_up=False)
    with pytest.raises(Refused) as caught:
        world.worker("w", incarnation="clone")
    assert caught.value.code == "worker.duplicate"
    world.now += 2 * world.state.limits.beat_ms + 1
    world.worker("w", incarnation="i2")
    assert world.task("x").state is QUEUED


def test_a_second_live_incarnation_is_refused_and_the_first_goes_on():
    world, granted = granted_one()
    with pytest.raises(Refused) as caught:
        world.worker("w", incarnation="clone")
    assert caught.value.code == "worker.duplicate"
    assert world.succeed(granted) == Judgement.ACCEPTED


def test_a_worker_that_fell_silent_for_two_beats_may_be_replaced_by_its_next_incarnation():
    world, _ = granted_one()
    world.now += 2 * world.state.limits.beat_ms
    with pytest.raises(Refused):
        world.worker("w", incarnation="i2")
    world.now += 1
    world.worker("w", incarnation="i2")
    assert world.task("x").state is QUEUED


def test_registering_again_as_it_is_changes_nothing():
    world, _ = granted_one()
    before = image(world.state)
    world.now += 1_000
    world.worker("w")
    assert image(world.state) == before


def test_a_forgotten_workers_leases_are_returned():
    world, granted = granted_one()
    world.start(granted)
    world.client(cm.ForgetWorker, worker="w")
    assert world.task("x").state is QUEUED
    assert not world.state.leases
    assert world.turn() == []


# Pull workers.


def pull_world() -> World:
    world = World()
    world.queue("agents", pull=True)
    world.worker("agent", pull=True, silence_ms=3_600_000)
    world.submit(task("x", queue="agents"))
    assert world.turn() == [], "the scheduler never claims for a pull worker"
    return world


def claim(world: World, lease_ms: int = 60_000) -> LeaseGranted | None:
    decision = world.client(cm.ClaimTask, worker="agent", incarnation="i1", lease_ms=lease_ms)
    made = [change for change in decision.changes if isinstance(change, LeaseGranted)]
    assert decision.answer == (str(made[0].fence) if made else "")
    return made[0] if made else None


def test_a_pull_worker_claims_its_task_and_a_second_claim_is_told_that_it_is_busy():
    world = pull_world()
    granted = claim(world)
    assert granted is not None
    refused = world.refusal(world.command(cm.ClaimTask, worker="agent", incarnation="i1"))
    assert refused.code == "lease.held"
    assert world.succeed(granted) == Judgement.ACCEPTED
    assert claim(world) is None


def test_a_claim_that_is_repeated_under_its_id_gets_the_same_lease():
    world = pull_world()
    first = cm.ClaimTask(tenant=TENANT, command_id="once", worker="agent", incarnation="i1")
    answer = world.do(first).answer
    again = world.do(first)
    assert (again.answer, again.changes, again.is_repeat) == (answer, [], True)
    assert len(world.state.leases) == 1


def test_a_pull_lease_ends_on_its_own_time_unless_it_is_renewed():
    world = pull_world()
    granted = claim(world, lease_ms=60_000)
    assert granted is not None
    world.start(granted)
    world.silence("agent")
    world.advance(59_999)
    world.renew(granted, 60_000)
    world.advance(59_999)
    assert world.task("x").state is RUNNING
    world.advance(1)
    assert (world.task("x").state, world.task("x").interruptions) == (QUEUED, 1)


def test_a_short_pull_lease_ends_on_time_beside_a_long_one():
    world = World()
    world.queue("agents", pull=True)
    world.worker("agent", slots=2, pull=True, silence_ms=3_600_000)
    world.submit(task("x", queue="agents", width=2))
    world.follow_up()
    long, short = claim(world, lease_ms=300_000), claim(world, lease_ms=1_000)
    assert long is not None and short is not None
    world.silence("agent")
    world.advance(999)
    assert set(world.state.leases) == {long.fence, short.fence}
    world.advance(1)
    assert set(world.state.leases) == {long.fence}


def test_a_renewal_may_shorten_a_lease():
    world = pull_world()
    granted = claim(world, lease_ms=300_000)
    assert granted is not None
    world.renew(granted, 10_000)
    world.silence("agent")
    world.advance(10_000)
    assert world.task("x").state is QUEUED


def test_the_timers_of_a_lease_do_not_multiply_with_its_renewals():
    world = pull_world()
    granted = claim(world, lease_ms=60_000)
    assert granted is not None
    for _ in range(50):
        world.advance(30_000)
        world.renew(granted, 60_000)
    assert sum(kind == "lease" for _, _, kind, _ in world.state.timers) <= 3


def test_a_lost_lease_cannot_be_renewed():
    world = pull_world()
    granted = claim(world)
    assert granted is not None
    world.interrupt(granted)
    refused = world.refusal(
        cm.RenewLease(tenant=TENANT, worker="agent", incarnation="i1", fence=granted.fence, lease_ms=60_000)
    )
    assert (refused.code, refused.path) == ("lease.lost", "fence")


def test_a_draining_worker_and_a_stranger_cannot_claim():
    world = pull_world()
    world.client(cm.DrainWorker, worker="agent")
    assert world.refusal(world.command(cm.ClaimTask, worker="agent", incarnation="i1")).code == "worker.draining"
    assert world.refusal(world.command(cm.ClaimTask, worker="who", incarnation="i1")).code == "worker.unknown"
    assert world.refusal(world.command(cm.ClaimTask, worker="agent", incarnation="old")).code == "worker.unknown"


# Inputs that were lost.


def two_stages() -> tuple[World, LeaseGranted]:
    """A producer that succeeded and a consumer that runs."""
    world = World()
    world.worker("w")
    world.submit(graph(task("make"), task("x", "make"), task("after", "x")))
    (made,) = world.turn()
    world.succeed(made, result=b"1")
    (granted,) = world.turn()
    world.start(granted)
    return world, granted


def lose(world: World, granted: LeaseGranted, *names: str) -> str:
    return world.fail(granted, failure=FailureClass.INPUT_LOST, lost=names)


def test_a_lost_input_has_its_producer_run_again_and_costs_the_consumer_nothing():
    world, granted = two_stages()
    assert lose(world, granted, "make") == Judgement.ACCEPTED
    assert world.states() == {"make": "queued", "x": "none", "after": "none"}
    assert (world.task("x").attempt, world.task("make").losses) == (0, 1)
    (made,) = world.turn()
    assert made.task == world.task("make").idx
    world.succeed(made, result=b"2")
    (granted,) = world.turn()
    assert (granted.attempt, granted.task) == (1, world.task("x").idx)


def test_an_output_that_is_lost_again_and_again_fails_its_run():
    world, granted = two_stages()
    for _ in range(OUTPUT_LOSSES_MAX):
        lose(world, granted, "make")
        (made,) = world.turn()
        world.succeed(made)
        (granted,) = world.turn()
    lose(world, granted, "make")
    world.follow_up()
    assert world.result() is RunState.FAILED
    assert re.search(rf"\bmake\b.*\b{OUTPUT_LOSSES_MAX}\b", world.run().row.reason)
    assert not world.state.leases


def test_an_input_nobody_can_name_is_an_internal_error_and_costs_an_attempt():
    world, granted = two_stages()
    lose(world, granted, "no such task")
    assert (world.task("x").state, world.task("x").failure) == (UP_FOR_RETRY, FailureClass.INTERNAL)


@pytest.mark.parametrize("blamed", ["x", "after"])
def test_a_task_cannot_go_round_for_ever_by_blaming_what_is_not_its_input(blamed: str):
    world, granted = two_stages()
    for _ in range(20):
        lose(world, granted, blamed)
        world.advance(10_000)
        again = world.turn()
        if not again:
            break
        (granted,) = again
    assert world.task("x").state is FAILED


def test_two_consumers_that_miss_the_same_input_have_it_made_once():
    world = World()
    world.worker("w", slots=2)
    world.submit(graph(task("make"), task("x", "make", width=2)))
    (made,) = world.turn()
    world.succeed(made)
    first, second = world.turn()
    lose(world, first, "make")
    lose(world, second, "make")
    assert world.states() == {"make": "queued", "x[0]": "none", "x[1]": "none"}
    assert world.task("make").losses == 1


def test_an_offer_carries_the_results_its_task_takes():
    world = World()
    world.worker("w", slots=9)
    last = task("sum", "one", "many", "other", inputs=("many", "one"))
    world.submit(graph(task("one"), task("many", width=2), task("other"), last))
    for granted in world.turn():
        name = world.run().graph.task_id(granted.task)
        world.succeed(granted, result=None if name == "many[1]" else name.encode())
    (granted,) = world.turn()
    offer = offer_of(world.state.leases[granted.fence])
    assert offer.inputs == (Input("many", (b"many[0]", None), is_group=True), Input("one", (b"one",)))
