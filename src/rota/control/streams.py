"""Streams: what workers say and are told, over one session each.

The loop decides and commits; this part knows who is connected, what each worker has been sent, and what may be
concluded from what it says and from what it leaves out.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import structs

from rota.control.events import CloseStream, Intent, Level, Send, Tell
from rota.control.sessions import Session
from rota.control.trouble import StoreTrouble
from rota.core.changes import LeaseGranted
from rota.core.cluster import check_worker
from rota.core.commands import Command, Outcome, RegisterWorker, Report, ReturnLease
from rota.core.decide import Decision
from rota.core.decide.leases import offer_of
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Fence, Millis, WorkerKey
from rota.core.model import FailureClass
from rota.core.presence import heard_from, leaves, renew_all, went_away
from rota.core.state import State
from rota.wire.frames import CoordinatorFrame, WorkerFrame

Act = Callable[[], Sequence[Intent]]


def as_failure(report: Report, error: str) -> Report:
    """A report that cannot be taken, as the failure that it is taken for instead."""
    return structs.replace(
        report,
        outcome=Outcome.FAILED,
        failure=FailureClass.FATAL,
        error=error,
        result=None,
        resume_at=0,
        expands=(),
        lost=(),
        skips=(),
        grows=(),
    )


class Host(Protocol):
    """What streams need of the loop they belong to."""

    state: State
    proven_until: Millis
    store_trouble: StoreTrouble
    work: int

    def carry_out(self, command: Command, now: Millis) -> Decision | Refused | Unavailable | None:
        """Decide and apply one command."""
        ...

    def tried(self, command: Command) -> None:
        """The open batch holds what a worker said; if the store refuses it, this is tried again by itself."""
        ...

    def hold(self, act: Act) -> None:
        """Do something once everything it could have seen is durable."""
        ...


class Streams:
    """All connected push workers."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.sessions: dict[int, Session] = {}
        self.by_worker: dict[WorkerKey, Session] = {}
        self.greeted: dict[int, str] = {}
        self._newest: dict[WorkerKey, str] = {}
        self.speaking: dict[int, Session] = {}
        self.unsent: dict[Fence, None] = {}
        # Greetings that the store would not take, with what it said; the coordinator keeps them over a reload.
        self.unwelcome: dict[RegisterWorker, str] = {}
        # The cluster of this coordinator; workers of another one are refused.
        self.cluster = ""
        self._number = 0

    # What workers are told.

    def say(self, now: Millis) -> list[Intent]:
        """Frames for everyone who is owed one.

        A deposed coordinator must not keep a worker's hopes up: no proof of leadership, no word.
        """
        if not self.speaking or now > self.host.proven_until:
            return []
        speaking, self.speaking = self.speaking, {}
        intents: list[Intent] = []
        state = self.host.state
        for session in speaking.values():
            frame = session.say(state.epoch, state.beat_ms, state.limits.lease_ms, self.cluster)
            if frame is not None and self.sessions.get(session.stream) is session:
                intents.append(Send(session.stream, frame))
        return intents

    def starter(self, change: LeaseGranted) -> Act:
        """Send a lease to its worker, once it is durable."""
        self.unsent[change.fence] = None

        def act() -> Sequence[Intent]:
            self.unsent.pop(change.fence, None)
            session = self.by_worker.get((change.worker_tenant, change.worker))
            lease = self.host.state.leases.get(change.fence)
            if session is not None and lease is not None and session.incarnation == change.incarnation:
                session.starts.append(offer_of(lease))
                self.speaking[session.stream] = session
            return ()

        return act

    def stopper(self, worker: WorkerKey, fence: Fence) -> Act:
        """Take a lease back from its worker, if it may have it."""

        def act() -> list[Intent]:
            session = self.by_worker.get(worker)
            if session is not None and session.knows(fence):
                session.stops.append(fence)
                self.speaking[session.stream] = session
            return []

        return act

    # What workers say.

    def close(self, stream: int, now: Millis, *, hung_up: bool) -> None:
        """A stream ended. The worker keeps its leases until their time is over."""
        self.greeted.pop(stream, None)
        session = self.sessions.pop(stream, None)
        if session is None or self.by_worker.get(session.worker) is not session:
            return
        del self.by_worker[session.worker]
        if self._newest.get(session.worker) == session.name:
            del self._newest[session.worker]
        worker = self.host.state.workers.get(session.worker)
        if worker is not None:
            went_away(self.host.state, worker, now, hung_up=hung_up)

    def take(self, stream: int, frame: WorkerFrame, now: Millis) -> list[Intent]:
        """A frame came on a stream."""
        if frame.number == 0 and (refused := check_worker(frame.cluster, self.cluster, has_token=True)):
            # Before the epochs are compared: those of two clusters have nothing to do with each other.
            return self._refuse_cluster(stream, frame, refused)
        if frame.epoch > self.host.state.epoch:
            # The worker has heard from a later reign than ours.
            return [Tell("epoch.overtaken", (("epoch", str(frame.epoch)),)), CloseStream(stream)]
        session = self.sessions.get(stream)
        if session is None:
            return self._greet(stream, frame, now) if frame.number == 0 else [CloseStream(stream)]
        if frame.session != session.name or frame.number <= session.heard:
            return []
        if not session.is_next(frame):
            self.close(stream, now, hung_up=False)
            return [CloseStream(stream)]
        self._hear(session, frame, now)
        return []

    def take_part(self, stream: int, frame: WorkerFrame, room: int, now: Millis) -> WorkerFrame:
        """Carry out the first reports of a frame too long for one turn; what is left is a frame like it."""
        session = self.sessions.get(stream)
        if session is None or frame.session != session.name or not session.is_next(frame):
            return structs.replace(frame, reports=())
        session.advance(frame.ack)
        for report in frame.reports[:room]:
            self._carry_out_report(session, report, now)
        return structs.replace(frame, reports=frame.reports[room:])

    def _greet(self, stream: int, frame: WorkerFrame, now: Millis) -> list[Intent]:
        if frame.capacity is None or stream in self.greeted:
            return []
        command = RegisterWorker(
            tenant=frame.tenant, worker=frame.worker, incarnation=frame.incarnation, capacity=frame.capacity
        )
        error = self.unwelcome.get(command)
        outcome = Refused("store.refused", error) if error is not None else self.host.carry_out(command, now)
        if not isinstance(outcome, Decision):
            text = str(outcome) if outcome is not None else "the scheduler met an error"
            self._turn_away(stream, text, outcome.code if outcome is not None else "")
            return []
        if outcome.changes:
            self.host.tried(command)
        key = (frame.tenant, frame.worker)
        old = self.by_worker.get(key)
        intents: list[Intent] = []
        if old is not None:
            self.close(old.stream, now, hung_up=False)
            intents.append(CloseStream(old.stream))
        self._number += 1
        session = Session(stream, f"{self.host.state.epoch}.{self._number}", key, frame.incarnation)
        # Until its complete list is here nothing is known about the worker but its name.
        went_away(self.host.state, self.host.state.workers[key], now, hung_up=False)
        self.greeted[stream] = session.name
        self._newest[key] = session.name

        def act() -> list[Intent]:
            if self._newest.get(key) != session.name:
                self.greeted.pop(stream, None)
                return [CloseStream(stream)]
            if self.greeted.get(stream) == session.name:
                self.sessions[stream] = session
                self.by_worker[key] = session
                self.speaking[stream] = session
            return []

        self.host.hold(act)
        return intents

    def _turn_away(self, stream: int, text: str, code: str) -> None:
        refusal = CoordinatorFrame(session="", epoch=self.host.state.epoch, number=1, refused=text, code=code)
        self.host.hold(lambda: [Send(stream, refusal), CloseStream(stream)])

    def _refuse_cluster(self, stream: int, frame: WorkerFrame, refused: Refused) -> list[Intent]:
        """Refuse a worker of another cluster: nothing that it says counts here, and nothing is sent to it."""
        if stream in self.sessions or stream in self.greeted:
            return []
        self._turn_away(stream, str(refused), refused.code)
        about = (("cause", refused.code), ("worker", frame.worker), ("named", frame.cluster), ("cluster", self.cluster))
        return [Tell("worker.refused", about, Level.WARNING)]

    def _hear(self, session: Session, frame: WorkerFrame, now: Millis) -> None:
        session.hear(frame)
        for report in frame.reports:
            self._carry_out_report(session, report, now)
        worker = self.host.state.workers.get(session.worker)
        if worker is None or worker.row.incarnation != session.incarnation:
            return
        if frame.complete:
            held = session.collect(frame)
            if held is not None:
                session.adopt(held)
                self._reconcile(session, held, now)
        elif session.is_ready and not session.agrees(frame):
            session.want_complete = True
        if session.is_ready and now <= self.host.proven_until:
            renew_all(self.host.state, worker, now)
            if frame.leaving:
                leaves(self.host.state, worker, now)
            else:
                heard_from(self.host.state, worker, now)
        if self.host.store_trouble:
            # Nothing can be acknowledged, but the worker may know that it was heard: leases outlive a full disk.
            self.speaking[session.stream] = session
        number = frame.number

        def acknowledge() -> list[Intent]:
            session.acknowledge(number)
            self.speaking[session.stream] = session
            return []

        self.host.hold(acknowledge)

    def _carry_out_report(self, session: Session, report: Report, now: Millis) -> None:
        self.host.work += 1
        if (report.worker_tenant, report.worker) != session.worker or report.incarnation != session.incarnation:
            return
        outcome = self.host.carry_out(report, now)
        if isinstance(outcome, Refused) and report.outcome is not Outcome.STARTED:
            # The worker is done with the attempt and will not say it again: a result we cannot take is a failure.
            report = as_failure(report, str(outcome))
            outcome = self.host.carry_out(report, now)
        if isinstance(outcome, Decision) and outcome.changes:
            self.host.tried(report)
        if isinstance(outcome, Decision) and report.outcome is not Outcome.STARTED:
            session.drop(report.fence)

    def _reconcile(self, session: Session, held: tuple[Fence, ...], now: Millis) -> None:
        """Compare a worker's complete list with the leases it should hold."""
        worker = self.host.state.workers[session.worker]
        listed = dict.fromkeys(held)
        for fence, lease in [*worker.leases.items(), *worker.revoked.items()]:
            if fence in listed:
                lease.confirmed = True
            elif not session.is_on_its_way(fence) and fence not in self.unsent:
                self.host.carry_out(
                    ReturnLease(tenant=lease.run.row.tenant, fence=fence, cause="not held any more"), now
                )
        for fence in listed:
            lease = self.host.state.leases.get(fence)
            if lease is None or lease.worker is not worker or lease.task.incarnation != session.incarnation:
                session.stops.append(fence)
