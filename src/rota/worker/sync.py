"""The worker's side of the Sync stream: what it holds, what it must still say, and when it must stop by itself.

The worker trusts a lease for as long as it knows that the coordinator heard from it: from the moment it *sent* the
newest frame that was acknowledged. At 0.8 of the lease without such news it stops its own work, before anybody could
give that work to another. Reports are kept until a frame that carried them is acknowledged, through any number of
sessions and coordinators. What the worker stops of its own accord is gone before it is said to be: until then a
lease is not handed back, and after a self-stop nothing is said at all (for a beat at most).
"""

from collections import deque

from msgspec import Struct

from rota.core.bounds import TimeLimits, self_stop_after
from rota.core.cluster import CODE, check_coordinator
from rota.core.commands import Outcome, Report
from rota.core.decide.leases import Offer
from rota.core.ids import Epoch, Fence, Incarnation, Millis, TaskId, WorkerId, derive
from rota.core.model import Capacity, FailureClass, TaskSpec
from rota.wire.frames import CoordinatorFrame, WorkerFrame

HELD_PER_FRAME = 1_000
REPORTS_PER_FRAME = 1_000
# Half of what a coordinator takes (`rota.wire.channels.FRAME_BYTES_MAX`); one report is far smaller.
REPORT_BYTES_PER_FRAME = 2 * 1024 * 1024
# For the fields of a report that are short.
_SHORT_FIELDS_BYTES = 500
RECONNECT_MS = 200
# Twice as long after each dial in vain, so often: a new coordinator leads within seconds and should not wait for hands.
RECONNECT_DOUBLINGS = 3
# A start may wait this long for company. Most short attempts end before, and both reports share a commit.
STARTED_WAITS_MS = 10
# Why everything is stopped when the coordinator was not heard for too long.
UNRENEWED = "its lease could not be renewed"


class Connected(Struct, frozen=True):
    """The stream to a coordinator is open."""


class Disconnected(Struct, frozen=True):
    """The stream is gone."""


class FrameCame(Struct, frozen=True):
    """The coordinator said something."""

    frame: CoordinatorFrame


class AttemptOver(Struct, frozen=True):
    """A runner finished."""

    fence: Fence
    outcome: Outcome
    result: bytes | None = None
    failure: FailureClass = FailureClass.USER
    error: str = ""
    resume_at: Millis = 0
    expands: tuple[tuple[str, int], ...] = ()
    lost: tuple[str, ...] = ()
    salt: int = 0
    skips: tuple[str, ...] = ()
    grows: tuple[TaskSpec, ...] = ()


class AttemptGone(Struct, frozen=True):
    """Nothing is left of an attempt that was to be killed."""

    fence: Fence


class DrainAsked(Struct, frozen=True):
    """Stop taking work; hand back at `until` what is not finished by then."""

    until: Millis


Event = Connected | Disconnected | FrameCame | AttemptOver | AttemptGone | DrainAsked


class Connect(Struct, frozen=True):
    """Open a stream to whoever leads."""


class Disconnect(Struct, frozen=True):
    """Close the stream."""


class Send(Struct, frozen=True):
    """Say something to the coordinator."""

    frame: WorkerFrame


class StartAttempt(Struct, frozen=True):
    """Run this."""

    offer: Offer


class StopAttempt(Struct, frozen=True):
    """Kill this, with everything it started; `AttemptGone` follows when none of it is left."""

    fence: Fence
    cause: str


class Left(Struct, frozen=True):
    """Draining is complete."""


Intent = Connect | Disconnect | Send | StartAttempt | StopAttempt | Left


class SyncMachine:
    """One worker process in one incarnation."""

    def __init__(
        self,
        tenant: str,
        worker: WorkerId,
        incarnation: Incarnation,
        capacity: Capacity,
        limits: TimeLimits,
        cluster: str = "",
    ) -> None:
        """Without a cluster the worker joins that of the first coordinator that welcomes it, and no other."""
        self.cluster = cluster
        self.tenant = tenant
        self.worker = worker
        self.incarnation = incarnation
        self.capacity = capacity
        self.beat_ms = limits.beat_ms
        self.lease_ms = limits.lease_ms
        self.epoch = Epoch(0)
        self.held: dict[Fence, Offer] = {}
        # What this worker itself has decided to kill, and of which something may still be there.
        self.dying: dict[Fence, None] = {}
        self.outbox: list[Report] = []
        self.unacked: deque[tuple[int, tuple[Report, ...]]] = deque()
        self.sent_at: deque[tuple[int, Millis]] = deque()
        self.renewed_at: Millis = 0
        self.session = ""
        self.is_connected = False
        self.is_connecting = False
        self.number: int = 0
        self.heard: int = 0
        self.want_complete = False
        self.drain_until: Millis | None = None
        self.refused = ""
        self._beat_at: Millis = 0
        self._report_at: Millis = 0
        self.heard_at: Millis = 0
        self._connect_at: Millis = 0
        self._failures = 0
        self._dials = 0
        self._silent_until: Millis = 0
        self._intents: list[Intent] = []

    # Events.

    def offer(self, event: Event, now: Millis) -> None:
        """Take one event; `turn` says what follows."""
        match event:
            case Connected():
                self._connected(now)
            case Disconnected():
                self._disconnected(now)
            case FrameCame():
                self._hear(event.frame, now)
            case AttemptOver():
                self._over(event, now)
            case AttemptGone():
                self._gone(event.fence, now)
            case DrainAsked():
                self.drain_until = event.until

    def turn(self, now: Millis) -> list[Intent]:
        """What to do now."""
        if not self.is_connected and not self.is_connecting and now >= self._connect_at:
            self.is_connecting = True
            self._intents.append(Connect())
        if self.held and now >= self.stop_at():
            self._stop_all(UNRENEWED, now)
        if self.is_connected and now >= self._patience_ends():
            self._hang_up(now)
        if self.drain_until is not None:
            self._drain(now)
        if self.session and now >= self._silent_until and (self.want_complete or now >= self._speak_at()):
            self._speak(now)
        intents, self._intents = self._intents, []
        return intents

    def wake_at(self, now: Millis) -> Millis:
        """When `turn` must be called again if nothing else happens before."""
        at = now + self.lease_ms
        if self.is_connected:
            at = min(at, self._patience_ends())
        if self.session:
            at = min(at, max(self._speak_at(), self._silent_until))
        elif not self.is_connected and not self.is_connecting:
            at = min(at, self._connect_at)
        if self.held:
            at = min(at, self.stop_at())
        if self.drain_until is not None and any(fence not in self.dying for fence in self.held):
            at = min(at, self.drain_until)
        return max(at, now + 1)

    def stop_at(self) -> Millis:
        """When this worker stops its own work unless it hears that it was heard."""
        return self.renewed_at + self_stop_after(self.lease_ms)

    def _speak_at(self) -> Millis:
        """When there is something to say: the next beat, or a report that should not wait for it."""
        return min(self._beat_at, self._report_at) if self.outbox else self._beat_at

    def _patience_ends(self) -> Millis:
        """When silence on an open stream counts as a broken one: every frame is acknowledged, so three beats do."""
        return self.heard_at + 3 * self.beat_ms

    # The stream.

    def _hang_up(self, now: Millis) -> None:
        self._intents.append(Disconnect())
        self._disconnected(now)

    def _connected(self, now: Millis) -> None:
        self.is_connected, self.is_connecting = True, False
        self.session = ""
        self.number = 0
        self.heard = 0
        self.heard_at = now
        self.sent_at.clear()
        self._requeue_unacked()
        self._intents.append(Send(self._frame(0, capacity=self.capacity)))

    def _disconnected(self, now: Millis) -> None:
        self.is_connected = self.is_connecting = False
        self.session = ""
        # Never slower than a beat, half of its delay included: a new coordinator must be found well before the work has
        # to be stopped. Workers that lost the same coordinator in the same moment must not all dial in the same moment.
        delay = min(self.beat_ms * 2 // 3, RECONNECT_MS << min(self._failures, RECONNECT_DOUBLINGS))
        self._failures += 1
        self._dials += 1
        self._connect_at = now + delay + derive(self._dials, "dial", self.incarnation) % (delay // 2 + 1)

    def _requeue_unacked(self) -> None:
        """What no coordinator is known to have taken in is said again, before anything newer."""
        again = [report for _, reports in self.unacked for report in reports]
        self.unacked.clear()
        self.outbox = again + self.outbox
        self._report_at = 0

    def _hear(self, frame: CoordinatorFrame, now: Millis) -> None:
        if frame.code == CODE:
            # Whatever its epoch: those of two clusters have nothing to do with each other.
            self.refused = frame.refused
            return
        if not self.session and self.is_connected and frame.number == 1 and not frame.refused:
            refused = check_coordinator(self.cluster, frame.cluster)
            if refused is not None:
                self.refused = str(refused)
                self._hang_up(now)
                return
        if frame.epoch < self.epoch:
            return
        if frame.refused:
            self.refused = frame.refused
            return
        if not self.session:
            if not self.is_connected or frame.number != 1:
                return
            self._adopt(frame, now)
        if frame.session != self.session or frame.number <= self.heard:
            return
        if frame.number != self.heard + 1:
            # Something was lost on the way. Only a new session can tell both sides what.
            self._hang_up(now)
            return
        self.heard = frame.number
        self.heard_at = now
        self._acknowledged(frame.ack, frame.heard)
        self.want_complete = self.want_complete or frame.want_complete
        for fence in frame.stop:
            self._stop(fence, "the coordinator took it back")
        for offer in frame.start:
            self._start(offer, now)

    def _adopt(self, frame: CoordinatorFrame, now: Millis) -> None:
        self.epoch = frame.epoch
        self.cluster = frame.cluster
        self.session = frame.session
        self.refused = ""
        self._failures = 0
        self.beat_ms = frame.beat_ms or self.beat_ms
        self.lease_ms = frame.lease_ms or self.lease_ms
        self.want_complete = True
        self._beat_at = now

    def _acknowledged(self, durable: int, heard: int) -> None:
        while self.unacked and self.unacked[0][0] <= durable:
            self.unacked.popleft()
        while self.sent_at and self.sent_at[0][0] <= heard:
            self.renewed_at = max(self.renewed_at, self.sent_at.popleft()[1])

    # Attempts.

    def _start(self, offer: Offer, now: Millis) -> None:
        if offer.fence in self.held:
            return
        if self.drain_until is not None:
            self._report_at = now
            self.outbox.append(self._report(offer, Outcome.RELEASED))
            return
        if now >= self.stop_at():
            # Too old to be trusted. It is not held, so the next count tells the coordinator.
            return
        self.held[offer.fence] = offer
        if not self.outbox:
            self._report_at = now + STARTED_WAITS_MS
        self.outbox.append(self._report(offer, Outcome.STARTED))
        self._intents.append(StartAttempt(offer))

    def _stop(self, fence: Fence, cause: str) -> None:
        if self.held.pop(fence, None) is not None:
            self._intents.append(StopAttempt(fence, cause))
        self.outbox = [report for report in self.outbox if report.fence != fence]

    def _stop_all(self, cause: str, now: Millis) -> None:
        for fence in list(self.held):
            self._stop(fence, cause)
            self.dying[fence] = None
        self.want_complete = True
        # The list will say that none of this is held. What cannot be killed must not silence the worker for ever.
        self._silent_until = now + self.beat_ms

    def _gone(self, fence: Fence, now: Millis) -> None:
        if fence not in self.dying:
            return
        del self.dying[fence]
        offer = self.held.pop(fence, None)
        if offer is not None:
            self._report_at = now
            self.outbox.append(self._report(offer, Outcome.RELEASED))
        if not self.dying:
            self._silent_until = 0

    def _over(self, event: AttemptOver, now: Millis) -> None:
        offer = self.held.pop(event.fence, None)
        if offer is None:
            return
        self._report_at = now
        self.outbox.append(
            Report(
                tenant=offer.tenant,
                run=offer.run,
                task=offer.task,
                worker_tenant=self.tenant,
                worker=self.worker,
                incarnation=self.incarnation,
                fence=event.fence,
                outcome=event.outcome,
                salt=event.salt,
                result=event.result,
                failure=event.failure,
                error=event.error,
                resume_at=event.resume_at,
                expands=tuple((TaskId(name), width) for name, width in event.expands),
                lost=tuple(map(TaskId, event.lost)),
                skips=tuple(map(TaskId, event.skips)),
                grows=event.grows,
            )
        )

    def _report(self, offer: Offer, outcome: Outcome) -> Report:
        return Report(
            tenant=offer.tenant,
            run=offer.run,
            task=offer.task,
            worker_tenant=self.tenant,
            worker=self.worker,
            incarnation=self.incarnation,
            fence=offer.fence,
            outcome=outcome,
        )

    def _drain(self, now: Millis) -> None:
        assert self.drain_until is not None, "only a draining worker hands back"
        if now >= self.drain_until:
            for fence in self.held:
                if fence not in self.dying:
                    self.dying[fence] = None
                    self._intents.append(StopAttempt(fence, "the worker is stopping"))
        if not self.held and not self.dying and not self.outbox and not self.unacked:
            self._intents.append(Left())

    # Speaking.

    def _speak(self, now: Millis) -> None:
        self._beat_at = now + self.beat_ms
        reports, self.outbox = tuple(self.outbox), []
        # Counts are true after the last part only, so what comes in parts comes with a list.
        fitting = _count_fitting(reports)
        if not self.want_complete and fitting == len(reports):
            self._send(now, reports)
            return
        self.want_complete = False
        fences = list(self.held)
        while len(fences) > HELD_PER_FRAME or fitting < len(reports):
            part, fences = fences[:HELD_PER_FRAME], fences[HELD_PER_FRAME:]
            said, reports = reports[:fitting], reports[fitting:]
            fitting = _count_fitting(reports)
            self._send(now, said, complete=True, more=True, held=tuple(part))
        self._send(now, reports, complete=True, held=tuple(fences))

    def _send(
        self,
        now: Millis,
        reports: tuple[Report, ...],
        *,
        complete: bool = False,
        more: bool = False,
        held: tuple[Fence, ...] = (),
    ) -> None:
        self.number += 1
        if reports:
            self.unacked.append((self.number, reports))
        if not more:
            # Neither the greeting nor part of a list renews anything: the coordinator has not seen the whole list.
            self.sent_at.append((self.number, now))
        frame = self._frame(self.number, reports=reports, complete=complete, more=more, held=held)
        self._intents.append(Send(frame))

    def _frame(
        self,
        number: int,
        *,
        capacity: Capacity | None = None,
        reports: tuple[Report, ...] = (),
        complete: bool = False,
        more: bool = False,
        held: tuple[Fence, ...] = (),
    ) -> WorkerFrame:
        checksum = 0
        for fence in self.held:
            checksum ^= fence
        return WorkerFrame(
            tenant=self.tenant,
            worker=self.worker,
            incarnation=self.incarnation,
            epoch=self.epoch,
            number=number,
            session=self.session,
            ack=self.heard,
            capacity=capacity,
            complete=complete,
            more=more,
            held=held,
            reports=reports,
            count=len(self.held),
            checksum=checksum,
            leaving=self.drain_until is not None,
            cluster=self.cluster if number == 0 else "",
        )


def _count_fitting(reports: tuple[Report, ...]) -> int:
    """How many of the reports, from the first on, fit into one frame; at least one if there are any."""
    size = 0
    for count, report in enumerate(reports[:REPORTS_PER_FRAME]):
        size += _bytes_of(report)
        if count and size > REPORT_BYTES_PER_FRAME:
            return count
    return min(len(reports), REPORTS_PER_FRAME)


def _bytes_of(report: Report) -> int:
    """About how many bytes a report takes in a frame."""
    names = sum(map(len, (*report.lost, *report.skips))) + sum(len(name) for name, _ in report.expands)
    grown = sum(_SHORT_FIELDS_BYTES + len(spec.work) + 4 * sum(map(len, spec.upstream)) for spec in report.grows)
    return _SHORT_FIELDS_BYTES + len(report.result or b"") + 4 * (len(report.error) + names) + grown
