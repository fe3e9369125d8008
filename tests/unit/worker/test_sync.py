"""The worker's side of the stream: what it keeps, what it says, and when it stops by itself."""

from typing import Any

import msgspec
import pytest

from rota.core.bounds import TimeLimits
from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.ids import Fence, make_fence
from rota.core.model import Capacity, FailureClass
from rota.wire.channels import FRAME_BYTES_MAX
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.worker.sync import (
    HELD_PER_FRAME,
    RECONNECT_DOUBLINGS,
    RECONNECT_MS,
    REPORTS_PER_FRAME,
    STARTED_WAITS_MS,
    AttemptGone,
    AttemptOver,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    DrainAsked,
    Event,
    FrameCame,
    Intent,
    Left,
    Send,
    StartAttempt,
    StopAttempt,
    SyncMachine,
)

BEGIN = 1_000_000_000
LIMITS = TimeLimits()
BEAT = LIMITS.beat_ms
LEASE = LIMITS.lease_ms
SELF_STOP = LIMITS.self_stop_ms


def offer(number: int, epoch: int = 1) -> Offer:
    return Offer("t", "r", number, f"x{number}", make_fence(epoch, number), 1, "command", b"", b"", 0, LEASE)


class Bench:
    """A sync machine and the coordinator's voice."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.machine = SyncMachine("t", "w", "i1", Capacity(slots=4), LIMITS)
        self.said: list[WorkerFrame] = []
        self.session = ""
        self.number = 0

    def give(self, event: Event) -> list[Intent]:
        """One event, then a turn."""
        self.machine.offer(event, self.now)
        return self.turn()

    def turn(self) -> list[Intent]:
        intents = self.machine.turn(self.now)
        self.said += [intent.frame for intent in intents if isinstance(intent, Send)]
        return intents

    def advance(self, ms: int) -> list[Intent]:
        """Let time pass as the machine asks for it."""
        end = self.now + ms
        intents: list[Intent] = []
        while (at := self.machine.wake_at(self.now)) <= end:
            self.now = at
            intents += self.turn()
        self.now = end
        return intents

    def frame(self, **fields: Any) -> CoordinatorFrame:
        """The coordinator's next frame, which by default acknowledges everything."""
        self.number += 1
        plain: dict[str, Any] = {
            "session": self.session,
            "epoch": 1,
            "number": self.number,
            "ack": self.machine.number,
            "heard": self.machine.number,
            "beat_ms": BEAT,
            "lease_ms": LEASE,
        }
        return CoordinatorFrame(**{**plain, **fields})

    def hear(self, **fields: Any) -> list[Intent]:
        """The coordinator says something; a start is given the time that it may wait for company."""
        intents = self.give(FrameCame(self.frame(**fields)))
        return intents + self.advance(STARTED_WAITS_MS) if fields.get("start") else intents

    def connect(self) -> list[Intent]:
        """The stream opens."""
        self.turn()
        return self.give(Connected())

    def welcome(self, session: str = "1.1", **fields: Any) -> list[Intent]:
        """The first frame of a session."""
        self.session, self.number = session, 0
        return self.hear(**{"ack": 0, "heard": 0, "want_complete": True, **fields})

    def join(self) -> "Bench":
        """Connect, be welcomed, and have the empty list acknowledged."""
        self.connect()
        self.welcome()
        self.hear()
        return self

    def hold(self, *numbers: int) -> "Bench":
        """Be given leases, and have their starts acknowledged."""
        self.hear(start=tuple(offer(number) for number in numbers))
        self.hear()
        return self

    def over(self, number: int, outcome: Outcome = Outcome.SUCCESS, **fields: Any) -> list[Intent]:
        """An attempt ends."""
        return self.give(AttemptOver(make_fence(1, number), outcome, **fields))

    def gone(self, *numbers: int) -> list[Intent]:
        """Nothing is left of some attempts that were to be killed."""
        return [intent for number in numbers for intent in self.give(AttemptGone(make_fence(1, number)))]

    def reported(self) -> list[tuple[int, str]]:
        """Everything that was reported, in order."""
        return [(report.task, report.outcome.value) for frame in self.said for report in frame.reports]


def stopped(intents: list[Intent]) -> list[Fence]:
    return [intent.fence for intent in intents if isinstance(intent, StopAttempt)]


def kinds(intents: list[Intent]) -> list[type[Intent]]:
    return [type(intent) for intent in intents]


# Meeting a coordinator.


def test_a_new_worker_dials_at_once_and_greets_with_what_it_is():
    bench = Bench()
    assert kinds(bench.turn()) == [Connect]
    assert bench.turn() == []
    bench.give(Connected())
    (greeting,) = bench.said
    assert (greeting.number, greeting.session, greeting.epoch) == (0, "", 0)
    assert greeting.capacity == Capacity(slots=4)
    assert (greeting.tenant, greeting.worker, greeting.incarnation) == ("t", "w", "i1")


def test_the_welcome_is_answered_with_a_complete_list():
    bench = Bench()
    bench.connect()
    bench.welcome()
    frame = bench.said[-1]
    assert (frame.number, frame.complete, frame.more, frame.held, frame.session) == (1, True, False, (), "1.1")
    assert frame.capacity is None
    assert frame.ack == 1


def test_how_often_to_speak_and_how_long_a_lease_is_are_taken_from_the_welcome():
    bench = Bench()
    bench.connect()
    bench.welcome(beat_ms=700, lease_ms=4_200)
    assert (bench.machine.beat_ms, bench.machine.lease_ms) == (700, 4_200)


def test_a_refusal_is_remembered_and_is_no_welcome():
    bench = Bench()
    bench.connect()
    bench.hear(refused="worker.duplicate: another lives")
    assert bench.machine.refused.startswith("worker.duplicate")
    assert bench.machine.session == ""
    assert len(bench.said) == 1
    bench.welcome()
    assert bench.machine.refused == ""


def test_a_session_begins_with_frame_one_and_nothing_else():
    bench = Bench()
    bench.connect()
    bench.session, bench.number = "1.1", 1
    bench.hear(start=(offer(1),))
    assert bench.machine.session == ""
    assert not bench.machine.held


def test_a_worker_speaks_once_per_beat_when_it_has_nothing_to_say():
    bench = Bench().join()
    before = len(bench.said)
    bench.advance(BEAT - 1)
    assert len(bench.said) == before
    bench.advance(1)
    assert len(bench.said) == before + 1
    assert not bench.said[-1].complete
    assert bench.said[-1].reports == ()


def test_a_worker_speaks_at_once_when_it_has_something_to_report():
    bench = Bench().join().hold(1)
    before = len(bench.said)
    bench.over(1, result=b"done", salt=9)
    (frame,) = bench.said[before:]
    (report,) = frame.reports
    assert (report.outcome, report.result, report.salt, report.fence) == ("success", b"done", 9, make_fence(1, 1))
    assert (report.worker_tenant, report.worker, report.incarnation) == ("t", "w", "i1")


def test_a_worker_that_is_asked_for_a_list_gives_it_at_once():
    bench = Bench().join().hold(1, 2)
    bench.hear(want_complete=True)
    frame = bench.said[-1]
    assert frame.complete
    assert frame.held == (make_fence(1, 1), make_fence(1, 2))


def test_every_frame_says_how_many_leases_are_held_and_their_checksum():
    bench = Bench().join().hold(1, 2)
    assert (bench.said[-1].count, bench.said[-1].checksum) == (2, make_fence(1, 1) ^ make_fence(1, 2))
    bench.over(1)
    assert (bench.said[-1].count, bench.said[-1].checksum) == (1, make_fence(1, 2))
    bench.over(2)
    assert (bench.said[-1].count, bench.said[-1].checksum) == (0, 0)


def test_reports_that_fill_a_message_come_in_parts_with_a_list():
    bench = Bench().join()
    total = 2 * REPORTS_PER_FRAME + 1
    before = len(bench.said)
    bench.hear(start=tuple(offer(number) for number in range(1, total + 1)))
    parts = bench.said[before:]
    assert [len(part.reports) for part in parts] == [REPORTS_PER_FRAME, REPORTS_PER_FRAME, 1]
    assert [part.more for part in parts] == [True, True, False]
    assert sum(len(part.held) for part in parts) == total, "a count would not be true before the last of them"
    assert len(bench.machine.unacked) == 3


def test_reports_with_large_results_come_in_frames_that_a_coordinator_takes():
    bench = Bench().join()
    total, result = 100, b"x" * (64 * 1024)
    bench.hear(start=tuple(offer(number) for number in range(1, total + 1)))
    before = len(bench.said)
    for number in range(1, total + 1):
        bench.machine.offer(AttemptOver(make_fence(1, number), Outcome.SUCCESS, result=result), bench.now)
    bench.hear(want_complete=True)
    parts = bench.said[before:]
    assert [report.fence for part in parts for report in part.reports] == [
        make_fence(1, n) for n in range(1, total + 1)
    ]
    assert len(parts) > 1
    assert all(len(msgspec.msgpack.encode(part)) <= FRAME_BYTES_MAX for part in parts)
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]


def test_a_long_list_comes_in_parts_with_the_reports_in_the_first():
    bench = Bench().join()
    total = 2 * HELD_PER_FRAME + 1
    bench.hear(start=tuple(offer(number) for number in range(1, total + 2)))
    bench.machine.offer(AttemptOver(make_fence(1, total + 1), Outcome.SUCCESS), bench.now)
    before = len(bench.said)
    bench.hear(want_complete=True)
    parts = bench.said[before:]
    assert [len(part.held) for part in parts] == [HELD_PER_FRAME, HELD_PER_FRAME, 1]
    assert [part.more for part in parts] == [True, True, False]
    assert all(part.complete and part.count == total for part in parts)
    assert [len(part.reports) for part in parts] == [1, 0, 0]


# Attempts.


def test_a_start_is_begun_and_reported():
    bench = Bench().join()
    intents = bench.hear(start=(offer(1),))
    assert StartAttempt(offer(1)) in intents
    assert bench.reported() == [(1, "started")]


def test_the_start_and_the_end_of_a_short_attempt_share_a_frame():
    bench = Bench().join()
    before = len(bench.said)
    bench.give(FrameCame(bench.frame(start=(offer(1), offer(2)))))
    assert len(bench.said) == before
    bench.over(1)
    (frame,) = bench.said[before:]
    assert [(report.task, report.outcome.value) for report in frame.reports] == [
        (1, "started"),
        (2, "started"),
        (1, "success"),
    ]


def test_a_start_that_comes_twice_is_begun_once():
    bench = Bench().join().hold(1)
    assert not [intent for intent in bench.hear(start=(offer(1),)) if isinstance(intent, StartAttempt)]


def test_a_stop_kills_and_takes_back_what_was_not_said_yet():
    bench = Bench().join().hold(1, 2)
    bench.give(Disconnected())
    bench.over(2)
    bench.connect()
    bench.welcome("1.2", stop=(make_fence(1, 1), make_fence(1, 2)))
    assert bench.machine.held == {}
    assert (2, "success") not in bench.reported()


def test_a_stop_of_something_unknown_does_nothing():
    bench = Bench().join()
    assert stopped(bench.hear(stop=(make_fence(1, 9),))) == []


def test_the_end_of_an_attempt_that_is_not_held_any_more_is_not_reported():
    bench = Bench().join().hold(1)
    bench.hear(stop=(make_fence(1, 1),))
    bench.over(1)
    assert (1, "success") not in bench.reported()


def test_everything_a_runner_says_is_in_the_report():
    bench = Bench().join().hold(1)
    bench.over(
        1, Outcome.FAILED, failure=FailureClass.INPUT_LOST, error="gone", lost=("up",), expands=(("m", 3),), resume_at=5
    )
    (report,) = bench.said[-1].reports
    assert (report.failure, report.error, report.lost, report.expands, report.resume_at) == (
        FailureClass.INPUT_LOST,
        "gone",
        ("up",),
        (("m", 3),),
        5,
    )


# Reports are kept until they are acknowledged.


def test_a_report_is_not_said_twice_in_a_session():
    bench = Bench().join().hold(1)
    bench.over(1)
    bench.advance(2 * BEAT)
    assert bench.reported().count((1, "success")) == 1


def test_a_report_that_was_not_acknowledged_is_said_again_in_the_next_session_before_the_list_and_before_newer_ones():
    bench = Bench().join().hold(1, 2)
    bench.over(1)
    bench.give(Disconnected())
    bench.over(2)
    bench.advance(BEAT)
    bench.give(Connected())
    bench.welcome("1.2")
    frame = bench.said[-1]
    assert [(report.task, report.outcome) for report in frame.reports] == [(1, "success"), (2, "success")]
    assert frame.complete
    assert frame.held == ()


def test_a_report_is_kept_through_any_number_of_sessions_and_reigns():
    bench = Bench().join().hold(1)
    bench.over(1)
    for reign in range(2, 7):
        bench.give(Disconnected())
        bench.advance(BEAT)
        bench.give(Connected())
        bench.welcome(f"{reign}.1", epoch=reign)
        assert [report.task for report in bench.said[-1].reports] == [1]
    bench.hear(epoch=6)
    bench.give(Disconnected())
    bench.advance(BEAT)
    bench.give(Connected())
    bench.welcome("7.1", epoch=7)
    assert bench.said[-1].reports == ()


def test_being_heard_is_not_being_durable():
    bench = Bench().join().hold(1)
    durable = bench.machine.number
    bench.over(1)
    bench.hear(ack=durable)
    assert bench.machine.unacked
    bench.hear()
    assert not bench.machine.unacked


# Renewal and self-stop.


def test_a_lease_is_trusted_from_when_the_newest_frame_heard_was_sent():
    bench = Bench().join().hold(1)
    bench.advance(BEAT)
    sent_at = bench.now
    assert bench.said[-1].number == bench.machine.number
    bench.now += 3_000
    bench.hear()
    assert bench.machine.renewed_at == sent_at
    assert bench.machine.stop_at() == sent_at + SELF_STOP


def test_a_frame_that_was_not_heard_renews_nothing():
    bench = Bench().join().hold(1)
    renewed_at = bench.machine.renewed_at
    heard = bench.machine.number
    bench.advance(BEAT)
    bench.hear(ack=heard, heard=heard)
    assert bench.machine.renewed_at == renewed_at


def test_a_lease_outlives_an_outage_of_the_store_because_being_heard_renews():
    bench = Bench().join().hold(1)
    durable = bench.machine.number
    for _ in range(20):
        bench.advance(BEAT)
        bench.hear(ack=durable)
    assert list(bench.machine.held) == [make_fence(1, 1)]


def test_neither_the_greeting_nor_the_welcome_renews_anything():
    bench = Bench().join().hold(1)
    renewed_at = bench.machine.renewed_at
    bench.give(Disconnected())
    bench.advance(BEAT)
    bench.give(Connected())
    bench.welcome("1.2")
    assert bench.machine.renewed_at == renewed_at


def test_parts_of_a_list_before_the_last_renew_nothing():
    bench = Bench().join()
    bench.hear(start=tuple(offer(number) for number in range(1, HELD_PER_FRAME + 2)))
    bench.hear()
    renewed_at = bench.machine.renewed_at
    bench.now += 1_000
    bench.hear(want_complete=True)
    last = bench.machine.number
    bench.hear(ack=last - 1, heard=last - 1)
    assert bench.machine.renewed_at == renewed_at
    bench.hear(ack=last, heard=last)
    assert bench.machine.renewed_at == bench.now


def test_a_worker_that_cannot_renew_stops_everything_at_eight_tenths_of_the_lease():
    bench = Bench().join().hold(1, 2)
    bench.give(Disconnected())
    ends_at = bench.machine.renewed_at + SELF_STOP
    assert stopped(bench.advance(ends_at - 1 - bench.now)) == []
    intents = bench.advance(1)
    assert stopped(intents) == [make_fence(1, 1), make_fence(1, 2)]
    assert bench.machine.held == {}


def test_results_from_before_a_self_stop_stay_in_the_outbox_and_starts_do_not():
    bench = Bench().join().hold(1)
    bench.give(Disconnected())
    bench.over(1)
    bench.advance(LEASE)
    bench.give(Connected())
    bench.welcome("1.2")
    assert [(report.task, report.outcome) for report in bench.said[-1].reports] == [(1, "success")]


def test_after_a_self_stop_the_next_frame_is_a_complete_list():
    bench = Bench().join().hold(1)
    heard = bench.machine.number
    for _ in range(4):
        bench.advance(BEAT)
        bench.hear(ack=heard, heard=heard)
    bench.now = bench.machine.stop_at()
    before = len(bench.said)
    assert stopped(bench.turn()) == [make_fence(1, 1)]
    bench.gone(1)
    assert (bench.said[before].complete, bench.said[before].held) == (True, ())


def test_after_a_self_stop_nothing_is_said_before_the_work_is_gone():
    bench = Bench().join().hold(1, 2, 3)
    bench.now += LEASE
    # It was frozen for a lease. Meanwhile an attempt ended, and a frame came in which the coordinator asks for a list.
    bench.machine.offer(AttemptOver(make_fence(1, 3), Outcome.SUCCESS), bench.now)
    bench.machine.offer(FrameCame(bench.frame(want_complete=True)), bench.now)
    intents = bench.turn()
    assert stopped(intents) == [make_fence(1, 1), make_fence(1, 2)]
    assert Send not in kinds(intents)
    assert Send not in kinds(bench.gone(1))
    (frame,) = [intent.frame for intent in bench.gone(2) if isinstance(intent, Send)]
    assert (frame.complete, frame.held) == (True, ())
    assert [(report.task, report.outcome) for report in frame.reports] == [(3, "success")]


def test_what_cannot_be_killed_silences_a_worker_for_a_beat_and_no_longer():
    bench = Bench().join().hold(1)
    bench.now = bench.machine.stop_at()
    bench.hear(ack=0, heard=0)
    before = len(bench.said)
    assert Send not in kinds(bench.advance(BEAT - 1))
    bench.advance(1)
    assert bench.said[before].complete


def test_a_start_that_comes_after_the_workers_own_time_is_not_begun():
    bench = Bench().join().hold(1)
    bench.advance(SELF_STOP)
    bench.connect()
    bench.welcome("1.2")
    intents = bench.hear(start=(offer(2),), ack=0, heard=0)
    assert not [intent for intent in intents if isinstance(intent, StartAttempt)]
    assert bench.machine.held == {}


# Frames in their order, and reigns.


def test_an_older_reign_is_not_obeyed():
    bench = Bench()
    bench.connect()
    bench.welcome("5.1", epoch=5)
    bench.hear(epoch=5)
    bench.hear(epoch=4, start=(offer(1),), stop=())
    assert bench.machine.held == {}
    assert bench.machine.epoch == 5


def test_a_welcome_of_an_older_reign_is_no_welcome():
    bench = Bench()
    bench.connect()
    bench.welcome("5.1", epoch=5)
    bench.give(Disconnected())
    bench.advance(BEAT)
    bench.give(Connected())
    assert bench.said[-1].epoch == 5, "the greeting says how far this worker has come"
    bench.welcome("4.1", epoch=4)
    assert bench.machine.session == ""
    bench.number = 0
    bench.welcome("6.1", epoch=6)
    assert (bench.machine.session, bench.machine.epoch) == ("6.1", 6)


def test_a_copy_of_a_frame_is_ignored():
    bench = Bench().join()
    frame = bench.frame(start=(offer(1),))
    bench.give(FrameCame(frame))
    bench.over(1)
    assert not [intent for intent in bench.give(FrameCame(frame)) if isinstance(intent, StartAttempt)]
    assert bench.machine.held == {}


def test_a_gap_ends_the_session_and_takes_nothing_in():
    bench = Bench().join()
    bench.number += 1
    intents = bench.hear(start=(offer(1),))
    assert Disconnect in kinds(intents)
    assert bench.machine.held == {}
    assert not bench.machine.is_connected


def test_a_frame_of_another_session_is_ignored():
    bench = Bench().join()
    bench.hear(session="0.9", start=(offer(1),))
    assert bench.machine.held == {}
    assert bench.machine.is_connected


# Silence and dialling.


def test_three_silent_beats_on_an_open_stream_mean_that_it_is_broken():
    bench = Bench().join().hold(1)
    heard_at = bench.now
    assert Disconnect not in kinds(bench.advance(3 * BEAT - 1))
    assert Disconnect in kinds(bench.advance(1))
    assert bench.now == heard_at + 3 * BEAT
    assert list(bench.machine.held) == [make_fence(1, 1)], "attempts go on"


def test_a_greeting_that_nobody_answers_is_given_up_after_three_beats():
    bench = Bench()
    bench.connect()
    assert Disconnect in kinds(bench.advance(3 * BEAT))


def test_dialling_again_waits_longer_each_time_and_never_longer_than_a_beat():
    bench = Bench()
    waits = []
    bench.connect()
    for _ in range(9):
        bench.give(Disconnected())
        began = bench.now
        while Connect not in kinds(bench.turn()):
            bench.now = bench.machine.wake_at(bench.now)
        waits.append(bench.now - began)
        bench.give(Connected())
    for step, wait in enumerate(waits):
        least = min(RECONNECT_MS << min(step, RECONNECT_DOUBLINGS), BEAT * 2 // 3)
        assert least <= wait <= least * 3 // 2 <= BEAT


def test_workers_that_lost_the_same_coordinator_do_not_all_dial_at_once():
    waits: list[int] = []
    for number in range(50):
        machine = SyncMachine("t", f"w{number}", f"i{number}", Capacity(), LIMITS)
        machine.offer(Disconnected(), BEGIN)
        waits.append(machine.wake_at(BEGIN) - BEGIN)
        again = SyncMachine("t", f"w{number}", f"i{number}", Capacity(), LIMITS)
        again.offer(Disconnected(), BEGIN)
        assert again.wake_at(BEGIN) == machine.wake_at(BEGIN), "the same incarnation waits as long, so a seed replays"
    assert len(set(waits)) > 20


def test_with_short_leases_dialling_again_keeps_to_the_shorter_beat():
    bench = Bench()
    bench.connect()
    bench.welcome(beat_ms=150, lease_ms=900)
    bench.give(Disconnected())
    assert 100 <= bench.machine.wake_at(bench.now) - bench.now <= 150


def test_a_welcome_makes_the_next_dial_quick_again():
    bench = Bench()
    bench.connect()
    for _ in range(5):
        bench.give(Disconnected())
        bench.advance(BEAT)
        bench.give(Connected())
    bench.welcome()
    bench.give(Disconnected())
    assert RECONNECT_MS <= bench.machine.wake_at(bench.now) - bench.now <= RECONNECT_MS * 3 // 2


def test_a_machine_always_wants_to_be_woken_later_than_now():
    bench = Bench().join().hold(1)
    bench.give(DrainAsked(bench.now - 5))
    for _ in range(20):
        assert bench.machine.wake_at(bench.now) > bench.now
        bench.now = bench.machine.wake_at(bench.now)
        bench.turn()


# Draining.


def test_a_draining_worker_says_so_and_lets_its_attempts_finish():
    bench = Bench().join().hold(1)
    bench.give(DrainAsked(bench.now + 10_000))
    bench.advance(BEAT)
    assert bench.said[-1].leaving
    assert list(bench.machine.held) == [make_fence(1, 1)]
    bench.over(1)
    assert bench.reported()[-1] == (1, "success")


def test_a_draining_worker_hands_back_what_is_not_finished_by_its_deadline():
    bench = Bench().join().hold(1, 2)
    bench.give(DrainAsked(bench.now + 2_000))
    bench.over(1)
    intents = bench.advance(2_000)
    assert stopped(intents) == [make_fence(1, 2)]
    assert bench.reported()[-1] == (1, "success")
    bench.gone(2)
    assert bench.reported()[-2:] == [(1, "success"), (2, "released")]
    assert bench.machine.held == {}


def test_a_lease_is_held_and_renewed_until_what_is_handed_back_is_gone():
    bench = Bench().join().hold(1)
    bench.give(DrainAsked(bench.now))
    intents = bench.advance(BEAT)
    assert stopped(intents) == [], "it is killed once"
    assert bench.said[-1].count == 1
    assert Left not in kinds(bench.hear())
    bench.gone(1)
    assert bench.said[-1].count == 0
    assert Left in kinds(bench.hear())


def test_what_the_coordinator_takes_back_while_it_dies_is_not_handed_back():
    bench = Bench().join().hold(1)
    bench.give(DrainAsked(bench.now))
    bench.hear(stop=(make_fence(1, 1),))
    assert Left in kinds(bench.gone(1))
    assert (1, "released") not in bench.reported()


def test_a_draining_worker_hands_back_offers_that_still_arrive():
    bench = Bench().join().hold(1)
    bench.give(DrainAsked(bench.now + 60_000))
    intents = bench.hear(start=(offer(2),))
    assert StartAttempt not in kinds(intents)
    assert bench.reported()[-1] == (2, "released")


def test_a_worker_leaves_only_when_all_its_reports_are_acknowledged():
    bench = Bench().join().hold(1)
    bench.give(DrainAsked(bench.now))
    bench.gone(1)
    durable = bench.machine.number - 1
    assert Left not in kinds(bench.turn())
    assert Left not in kinds(bench.hear(ack=durable, heard=durable))
    assert Left not in kinds(bench.hear(ack=durable))
    assert Left in kinds(bench.hear())


def test_a_worker_that_loses_its_stream_while_draining_does_not_leave_with_reports_unsaid():
    bench = Bench().join().hold(1)
    bench.give(DrainAsked(bench.now))
    bench.gone(1)
    bench.give(Disconnected())
    assert Left not in kinds(bench.advance(LEASE))
    bench.give(Connected())
    bench.welcome("1.2")
    assert bench.said[-1].reports[-1].outcome is Outcome.RELEASED
    assert Left in kinds(bench.hear())


def test_an_idle_worker_that_is_asked_to_drain_leaves_at_once():
    bench = Bench().join()
    assert Left in kinds(bench.give(DrainAsked(bench.now + 60_000)))


@pytest.mark.parametrize("number", [1, 5, 17])
def test_every_lease_ends_in_exactly_one_report_whatever_was_lost_on_the_way(number):
    bench = Bench().join().hold(*range(1, number + 1))
    for each in range(1, number + 1):
        if each % 3 == 0:
            bench.give(Disconnected())
            bench.advance(BEAT)
            bench.give(Connected())
            bench.welcome(f"1.{each}")
        bench.over(each)
        if each % 4 == 0:
            bench.hear()
    bench.hear()
    ended = {task for task, outcome in bench.reported() if outcome == "success"}
    assert ended == set(range(1, number + 1))
    assert not bench.machine.unacked
    assert not bench.machine.outbox
