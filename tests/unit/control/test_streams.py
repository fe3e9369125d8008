"""Streams: how a session begins, what is concluded from a worker's frames and from what they leave out, how it ends."""

import msgspec
import pytest

from rota.control.events import CloseStream, Commit, FrameCame, Send, StreamClosed
from rota.core import commands as cm
from rota.core.bounds import TimeLimits
from rota.core.decide.leases import Offer
from rota.core.model import FailureClass, TaskSpec
from rota.core.states import RunState, TaskState
from tests.unit.control.stage import TENANT, UNAVAILABLE, Speaker, Stage, reigning

BEAT = TimeLimits().beat_ms
STARTED = cm.Outcome.STARTED
SUCCESS = cm.Outcome.SUCCESS


def working(slots: int = 1) -> tuple[Stage, Speaker, Offer]:
    """A leader, a worker, and an attempt that it has begun."""
    stage = reigning()
    worker = Speaker(stage, slots=slots).join()
    stage.submit("r")
    offer = worker.take()
    worker.start(offer)
    return stage, worker, offer


def again(stage: Stage, worker: Speaker, *held: Offer, stream: int = 2) -> Speaker:
    """The same worker on a new stream, holding what it says it holds."""
    other = Speaker(
        stage, worker.name, stream=stream, slots=worker.capacity.slots, incarnation=worker.incarnation, epoch=1
    )
    other.held = {offer.fence: offer for offer in held}
    return other


# The beginning.


def test_a_greeting_is_welcomed_when_the_registration_is_durable_and_not_before():
    stage = reigning()
    stage.withheld = (Commit,)
    worker = Speaker(stage).greet()
    assert worker.hear() == []
    stage.end_commit()
    (welcome,) = worker.hear()
    assert (welcome.number, welcome.ack, welcome.want_complete, welcome.refused) == (1, 0, True, "")
    assert (welcome.epoch, welcome.beat_ms, welcome.lease_ms) == (1, BEAT, 30_000)
    assert welcome.session


def test_until_its_complete_list_is_here_a_worker_gets_no_work():
    stage = reigning()
    worker = Speaker(stage).greet()
    stage.submit("r")
    stage.advance(1_000)
    assert stage.states() == [TaskState.QUEUED]
    worker.present()
    assert stage.states() == [TaskState.ASSIGNED]


def test_a_list_in_parts_counts_when_its_last_part_is_here():
    stage, worker, offer = working(slots=3)
    for run in ("s", "t"):
        stage.submit(run, name=run)
    worker.beat()
    first, second, third = worker.held.values()
    assert first == offer
    lease = stage.loop.state.leases[first.fence]
    other = again(stage, worker, first, second, third).greet()
    ends_at = lease.expires_at
    stage.advance(2_000)
    other.say(complete=True, more=True, held=(first.fence,))
    other.say(complete=True, more=True, held=(second.fence,))
    assert len(stage.loop.state.leases) == 3
    assert lease.expires_at == ends_at, "part of a first list renews nothing"
    other.say(complete=True, held=(third.fence,))
    assert len(stage.loop.state.leases) == 3
    assert lease.expires_at > ends_at


def test_work_that_finished_while_nobody_could_hear_of_it_counts_because_reports_are_judged_before_the_list():
    stage, worker, offer = working()
    worker.hang_up()
    other = again(stage, worker).greet()
    other.present(other.word(offer, SUCCESS))
    assert stage.result() is RunState.SUCCESS
    assert stage.task().interruptions == 0


def test_the_same_holds_across_a_change_of_coordinators():
    stage, worker, offer = working()
    stage.disk.release(1)
    stage.advance(5_000)
    assert stage.loop.state.epoch == 2
    other = again(stage, worker).greet()
    other.present(other.word(offer, SUCCESS))
    assert stage.result() is RunState.SUCCESS


def test_running_work_is_confirmed_by_the_list_after_a_change_of_coordinators():
    stage, worker, offer = working()
    stage.disk.release(1)
    stage.advance(5_000)
    lease = stage.loop.state.leases[offer.fence]
    assert not lease.confirmed
    other = again(stage, worker, offer).greet()
    other.present()
    assert lease.confirmed
    assert stage.task().fence == offer.fence
    stage.advance(1_000)
    other.succeed(offer)
    assert stage.result() is RunState.SUCCESS


def test_the_greeting_alone_renews_nothing():
    stage, worker, offer = working()
    ends_at = stage.loop.state.leases[offer.fence].expires_at
    stage.advance(3_000)
    again(stage, worker, offer).greet()
    assert stage.loop.state.leases[offer.fence].expires_at == ends_at


def test_a_frame_before_any_greeting_closes_the_stream():
    stage = reigning()
    worker = Speaker(stage)
    assert worker.say() == []
    assert worker.is_closed()


def test_a_second_greeting_on_a_stream_is_a_copy():
    stage = reigning()
    worker = Speaker(stage).greet()
    worker.greet()
    assert len(worker.hear()) == 1
    worker.present()
    worker.greet()
    assert len(stage.loop.streams.sessions) == 1
    assert worker.beat()


def test_a_new_stream_of_the_same_worker_ends_the_older_session():
    stage, worker, offer = working()
    other = again(stage, worker, offer).greet()
    assert worker.is_closed()
    assert not other.is_closed()
    other.present()
    assert stage.task().fence == offer.fence
    assert list(stage.loop.streams.sessions) == [2]


def test_two_streams_of_one_worker_that_greet_during_one_commit_do_not_both_get_a_session():
    stage = reigning()
    stage.withheld = (Commit,)
    first = Speaker(stage, stream=1).greet()
    Speaker(stage, stream=2).greet()
    stage.end_commit()
    assert list(stage.loop.streams.sessions) == [2]
    assert first.is_closed()


def test_a_stream_that_closed_before_its_welcome_gets_no_session():
    stage = reigning()
    stage.withheld = (Commit,)
    worker = Speaker(stage).greet()
    worker.hang_up()
    stage.end_commit()
    assert not stage.loop.streams.sessions
    assert worker.hear() == []


# Who it is.


def test_a_second_live_incarnation_is_refused_and_its_stream_closed():
    stage, worker, offer = working()
    clone = Speaker(stage, stream=2, incarnation="i2").greet()
    (refusal,) = clone.hear()
    assert refusal.refused.startswith("worker.duplicate")
    assert refusal.session == ""
    assert clone.is_closed()
    assert not worker.is_closed()
    assert stage.task().fence == offer.fence


def test_a_clone_is_refused_for_two_beats_after_we_lost_sight_of_the_worker():
    stage, worker, _ = working()
    worker.hear()
    stage.give(FrameCame(1, worker.frame(number=99)))
    assert worker.is_closed()
    stage.advance(2 * BEAT)
    assert Speaker(stage, stream=2, incarnation="i2").greet().hear()[0].refused
    stage.advance(1)
    assert not Speaker(stage, stream=3, incarnation="i2").greet().hear()[0].refused


def test_a_worker_that_hung_up_may_come_back_as_another_incarnation_at_once():
    stage, worker, offer = working()
    worker.hang_up()
    reborn = Speaker(stage, stream=2, incarnation="i2").greet()
    assert not reborn.hear()[0].refused
    assert stage.task().state is TaskState.QUEUED
    assert (stage.task().attempt, stage.task().interruptions) == (0, 1)
    late = reborn.word(offer, SUCCESS, salt=1)
    reborn.present(msgspec.structs.replace(late, incarnation="i1"))
    assert stage.result() is RunState.RUNNING, "nobody speaks for another incarnation"


def test_a_worker_that_has_heard_of_a_later_reign_is_sent_away():
    stage = reigning()
    worker = Speaker(stage, epoch=2).greet()
    assert worker.is_closed()
    assert "epoch.overtaken" in stage.told()
    assert not stage.loop.state.workers


# Frames in their order.


def test_a_copy_of_a_frame_is_ignored():
    stage, worker, offer = working()
    worker.hear()
    frame = worker.frame(reports=(worker.word(offer, SUCCESS),))
    stage.give(FrameCame(1, frame))
    stage.give(FrameCame(1, frame))
    stage.rest()
    assert stage.loop.tally.stale_reports == {}
    assert not worker.is_closed()
    assert stage.result() is RunState.SUCCESS


def test_a_frame_that_skips_a_number_ends_the_session():
    stage, worker, offer = working()
    worker.hear()
    worker.number += 1
    worker.say(reports=(worker.word(offer, SUCCESS),))
    assert worker.is_closed()
    assert not stage.loop.streams.sessions
    assert stage.task().state is TaskState.RUNNING, "what came after the gap was not taken in"


def test_a_frame_of_another_session_is_ignored():
    stage, worker, offer = working()
    worker.hear()
    stage.give(FrameCame(1, worker.frame(session="0.0", reports=(worker.word(offer, SUCCESS),))))
    assert stage.task().state is TaskState.RUNNING
    assert not worker.is_closed()


def test_a_worker_speaks_only_for_itself():
    stage, worker, offer = working()
    other = Speaker(stage, "v", stream=2).join()
    forged = worker.word(offer, SUCCESS)
    other.say(reports=(forged,))
    assert stage.task().state is TaskState.RUNNING
    other.say(reports=(msgspec.structs.replace(forged, worker="v"),))
    assert stage.task().state is TaskState.RUNNING
    assert stage.loop.tally.stale_reports == {"not_the_holder": 1}


def test_every_frame_is_answered_and_the_acknowledgement_means_durable():
    stage, worker, offer = working()
    stage.withheld = (Commit,)
    worker.hear()
    heard = worker.number
    assert worker.report(offer, SUCCESS) == []
    stage.end_commit()
    (answer,) = worker.hear()
    assert (answer.ack, answer.heard) == (heard + 1, heard + 1)


def test_during_an_outage_of_the_store_a_worker_hears_that_it_was_heard_and_no_more():
    stage, worker, offer = working()
    stage.withheld = (Commit,)
    before = worker.number
    worker.report(offer, SUCCESS)
    stage.end_commit(UNAVAILABLE, "disk full")
    ends_at = stage.loop.state.workers[(TENANT, "w")].seen_at
    stage.advance(100)
    (answer,) = worker.beat()
    assert (answer.heard, answer.ack) == (before + 2, before)
    assert stage.loop.state.workers[(TENANT, "w")].seen_at > ends_at


# Starts and stops.


def test_no_worker_hears_of_a_lease_before_the_grant_is_durable():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.withheld = (Commit,)
    stage.submit("r")
    stage.rest()
    assert stage.task().fence
    assert [offer for frame in worker.hear() for offer in frame.start] == []
    stage.end_commit()
    (offer,) = [offer for frame in worker.hear() for offer in frame.start]
    assert offer.fence == stage.task().fence


def beat_for(stage: Stage, worker: Speaker, ms: int) -> None:
    """Let time pass with a worker that goes on speaking."""
    end = stage.now + ms
    while stage.now < end:
        stage.advance(min(stage.limits.beat_ms, end - stage.now))
        worker.beat()


def test_an_attempt_beyond_its_time_limit_is_stopped_where_it_runs():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r", TaskSpec(id="x", timeout_ms=60_000))
    offer = worker.take()
    worker.start(offer)
    beat_for(stage, worker, 60_000 + stage.limits.overrun_ms)
    assert (stage.task().state, stage.task().failure) == (TaskState.FAILED, FailureClass.TIMEOUT)
    beat_for(stage, worker, 30_000)
    frames = stage.frames[worker.stream]
    assert [fence for frame in frames for fence in frame.stop] == [offer.fence]
    assert not any(frame.want_complete for frame in frames[2:]), "what was stopped is counted as such on both sides"


def test_a_worker_that_ends_an_attempt_for_its_time_limit_itself_is_not_told_to_stop_it():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r", TaskSpec(id="x", timeout_ms=60_000))
    offer = worker.take()
    worker.start(offer)
    worker.report(offer, cm.Outcome.FAILED, failure=FailureClass.TIMEOUT)
    beat_for(stage, worker, 120_000)
    assert not any(frame.stop for frame in stage.frames[worker.stream])


def test_a_lease_that_is_taken_back_is_stopped_where_it_runs():
    stage, worker, offer = working()
    stage.ask(cm.CancelRun(tenant=TENANT, command_id="c", run="r"))
    stage.rest()
    assert [fence for frame in worker.hear() for fence in frame.stop] == [offer.fence]
    worker.beat()
    assert not any(frame.want_complete for frame in worker.beat())


def test_a_lease_that_is_taken_back_before_it_was_sent_is_never_started():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.withheld = (Commit,)
    stage.submit("r")
    stage.rest()
    stage.ask(cm.CancelRun(tenant=TENANT, command_id="c", run="r"))
    stage.end_commit()
    while stage.waits(Commit):
        stage.end_commit()
    assert stage.result() is RunState.CANCELLED
    worker.hear()
    assert worker.held == {}


# Absence.


def test_a_lease_missing_from_a_complete_list_is_returned_unspent():
    stage, worker, offer = working()
    worker.held.clear()
    worker.present()
    assert stage.task().fence != offer.fence
    assert stage.task().attempt <= 1
    assert stage.loop.state.runs[(TENANT, "r")].row.state is RunState.RUNNING


def test_the_absence_of_a_lease_that_is_on_its_way_means_nothing():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r")
    fence = stage.task().fence
    unread = worker.frame(complete=True)
    stage.give(FrameCame(1, unread))
    stage.rest()
    assert stage.task().fence == fence, "the list was made before the start was read"
    worker.say(complete=True, held=(), count=0, checksum=0)
    assert stage.task().fence != fence, "the worker has read the start and does not hold it"


def test_the_absence_of_a_grant_that_is_not_durable_yet_means_nothing():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.withheld = (Commit,)
    stage.submit("r")
    stage.rest()
    fence = stage.task().fence
    worker.present()
    stage.end_commit()
    while stage.waits(Commit):
        stage.end_commit()
    assert stage.task().fence == fence
    worker.hear()
    assert list(worker.held) == [fence]


def test_a_listed_lease_that_is_not_this_workers_is_answered_with_stop():
    stage, _, offer = working()
    other = Speaker(stage, "v", stream=2, epoch=1)
    other.held = {offer.fence: offer, 12345: offer}
    other.greet()
    frames = other.present()
    assert [fence for frame in frames for fence in frame.stop] == [offer.fence, 12345]
    assert stage.task().fence == offer.fence


@pytest.mark.parametrize("wrong", [{"count": 7}, {"checksum": 99}], ids=["count", "checksum"])
def test_a_count_that_disagrees_asks_for_a_complete_list_and_ends_nothing(wrong):
    stage, worker, offer = working()
    (frame,) = worker.say(**wrong)
    assert frame.want_complete
    assert stage.task().fence == offer.fence
    assert not worker.present()[-1].want_complete
    assert not worker.beat()[-1].want_complete


def test_counts_agree_through_an_ordinary_life():
    stage = reigning()
    worker = Speaker(stage, slots=3).join()
    for run in "abcde":
        stage.submit(run, name=run)
    for _ in range(6):
        worker.beat()
        for offer in list(worker.held.values()):
            worker.start(offer)
            worker.succeed(offer)
        assert not any(frame.want_complete for frame in worker.beat())
    assert [stage.result(run) for run in "abcde"] == [RunState.SUCCESS] * 5


def test_a_start_that_the_worker_did_not_begin_is_found_by_its_count_and_returned():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r")
    offer = worker.take()
    worker.held.clear()
    assert worker.beat()[-1].want_complete
    worker.present()
    assert stage.task().fence != offer.fence
    assert stage.task().interruptions == 0


# Renewal, silence and the end.


def test_each_frame_renews_all_confirmed_leases():
    stage, worker, offer = working()
    for _ in range(12):
        stage.advance(BEAT)
        worker.beat()
    assert stage.task().fence == offer.fence
    assert stage.loop.state.leases[offer.fence].expires_at == stage.now + stage.limits.lease_ms


def test_losing_the_stream_is_not_losing_the_worker():
    stage, worker, offer = working()
    worker.hang_up()
    stage.advance(stage.limits.lease_ms - 1)
    assert stage.task().fence == offer.fence
    stage.advance(1 + stage.limits.dispatch_ms)
    assert stage.task().state is TaskState.QUEUED
    assert (stage.task().attempt, stage.task().interruptions) == (0, 1)


def test_a_report_after_the_lease_has_ended_changes_nothing_and_is_acknowledged():
    stage, worker, offer = working()
    stage.advance(stage.limits.lease_ms + stage.limits.dispatch_ms)
    assert stage.task().state is TaskState.QUEUED
    worker.hear()
    number = worker.number
    answers = worker.say(reports=(worker.word(offer, SUCCESS),), count=0, checksum=0)
    assert stage.loop.tally.stale_reports == {"old_fence": 1}
    assert stage.result() is RunState.RUNNING
    assert answers[-1].ack == number + 1


def test_a_repeated_result_is_a_duplicate_and_costs_nothing():
    stage, worker, offer = working()
    worker.succeed(offer)
    worker.succeed(offer)
    assert stage.loop.tally.stale_reports == {}
    assert stage.result() is RunState.SUCCESS


def test_a_start_that_nobody_acknowledges_is_returned_after_the_dispatch_limit():
    stage = reigning()
    worker = Speaker(stage).join()
    stage.submit("r")
    first = stage.task().fence
    for _ in range(3):
        stage.advance(BEAT)
        worker.beat()
    assert first in [fence for frame in stage.frames[1] for fence in frame.stop]
    assert stage.task().interruptions == 0


def test_a_leaving_worker_keeps_what_it_has_and_gets_no_more():
    stage, worker, offer = working(slots=2)
    worker.say(leaving=True)
    stage.submit("s", name="s")
    stage.rest()
    assert stage.states("s") == [TaskState.QUEUED]
    for _ in range(8):
        stage.advance(BEAT)
        worker.say(leaving=True)
    assert stage.task("r").fence == offer.fence
    worker.say(reports=(worker.word(offer, cm.Outcome.RELEASED),), leaving=True, count=0, checksum=0)
    assert (stage.task("r").attempt, stage.task("r").interruptions) == (0, 0)


def test_a_coordinator_without_proof_says_nothing_renews_nothing_and_grants_nothing():
    stage, worker, offer = working(slots=2)
    loop = stage.loop
    lease = loop.state.leases[offer.fence]
    ends_at = lease.expires_at
    stage.now += 1_000
    loop.proven_until = stage.now - 1
    worker.hear()
    loop.inbox.append((1, worker.frame()))
    intents = loop.turn(stage.now)
    assert [intent for intent in intents if isinstance(intent, Send)] == []
    assert lease.expires_at == ends_at
    loop.carry_out(
        cm.SubmitRun(tenant=TENANT, command_id="s", run="s", digest=loop.state.runs[(TENANT, "r")].row.graph), stage.now
    )
    loop.turn(stage.now)
    assert stage.states("s") == [TaskState.QUEUED]
    loop.proven_until = stage.now
    assert any(isinstance(intent, Send) for intent in loop.turn(stage.now)), "what was owed is said when it is proven"


def test_stepping_down_closes_every_stream():
    stage = reigning()
    workers = [Speaker(stage, f"w{number}", stream=number).join() for number in (1, 2, 3)]
    stage.disk.release(1)
    stage.advance(2_000)
    assert all(worker.is_closed() for worker in workers)
    assert stage.give(StreamClosed(1)) == []


def test_a_drained_worker_gets_no_new_work_and_finishes_what_it_has():
    stage, worker, offer = working(slots=2)
    stage.ask(cm.DrainWorker(tenant=TENANT, command_id="d", worker="w"))
    stage.submit("s", name="s")
    worker.succeed(offer)
    assert stage.result("r") is RunState.SUCCESS
    assert stage.states("s") == [TaskState.QUEUED]
    stage.ask(cm.DrainWorker(tenant=TENANT, command_id="u", worker="w", draining=False))
    worker.succeed(worker.take())
    assert stage.result("s") is RunState.SUCCESS


def test_a_struck_off_worker_loses_its_work_and_is_not_believed_any_more():
    stage, worker, offer = working()
    stage.ask(cm.ForgetWorker(tenant=TENANT, command_id="f", worker="w"))
    assert stage.task().state is TaskState.QUEUED
    worker.succeed(offer)
    assert stage.result() is RunState.RUNNING
    assert CloseStream(1) not in stage.log
    back = Speaker(stage, stream=2).join()
    (offer,) = back.held.values()
    back.succeed(offer)
    assert stage.result() is RunState.SUCCESS


def test_a_chain_of_tasks_goes_through_one_worker_without_waiting_for_beats():
    stage = reigning()
    worker = Speaker(stage).join()
    names = [f"n{number}" for number in range(6)]
    chain = [TaskSpec(id=name, upstream=(names[at - 1],) if at else ()) for at, name in enumerate(names)]
    stage.submit("r", *chain)
    for _ in names:
        offer = worker.take() if not worker.held else next(iter(worker.held.values()))
        worker.start(offer)
        worker.succeed(offer)
    assert stage.result() is RunState.SUCCESS
    assert stage.now == stage.run().ended_at == stage.run().created_at
