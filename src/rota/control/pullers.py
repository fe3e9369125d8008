"""Pull workers: their requests are their beats, and wakes are sent to those that listen."""

from typing import Protocol

from rota.control.asks import Ask
from rota.control.events import Wake
from rota.control.streams import Act
from rota.control.trouble import StoreTrouble
from rota.core.commands import BeatWorker, ClaimTask, RegisterWorker, RenewLease, Report, WithdrawClaim
from rota.core.ids import Fence, Millis
from rota.core.model import Mood
from rota.core.presence import heard_from, renew_one, take_mood, went_away
from rota.core.state import State
from rota.core.waking import found_nothing, stop_waiting, wait_for_work, wakes, woke


class Turns(Protocol):
    """The loop, as far as it is needed here."""

    state: State
    proven_until: Millis
    store_trouble: StoreTrouble

    def hold(self, act: Act) -> None:
        """Do something once everything it could have seen is durable."""
        ...


class Pullers:
    """The pull workers of one reign."""

    def __init__(self, loop: Turns) -> None:
        self.loop = loop

    def wake(self, now: Millis, *, everybody: bool = False) -> None:
        """Tell pull workers of what they could claim. What is told is durable by then."""
        if not self.loop.state.index.stirred or now > self.loop.proven_until or self.loop.store_trouble:
            return
        for wake in wakes(self.loop.state, now, everybody=everybody):
            worker, run = woke(self.loop.state, wake, now), self.loop.state.runs[wake.item]
            if worker is not None:
                told = Wake(*wake.session, run.row.id, run.row.labels, now)
                self.loop.hold(lambda told=told: (told,))

    def claimed(self, command: ClaimTask, now: Millis, *, granted: bool) -> None:
        """A claim was answered. One that found nothing may wait for a wake."""
        worker = self.loop.state.workers.get((command.tenant, command.worker))
        if worker is None or worker.row.incarnation != command.incarnation:
            return
        if not granted:
            found_nothing(self.loop.state, worker, now)
        if command.wait_ms > 0 and not granted:
            wait_for_work(worker, command, now)
        else:
            stop_waiting(worker, command.command_id)

    def withdrawn(self, command: WithdrawClaim) -> None:
        """The caller of a claim is not there any more: the session is told of work only in its turn."""
        worker = self.loop.state.workers.get((command.tenant, command.worker))
        if worker is not None and worker.row.incarnation == command.incarnation:
            stop_waiting(worker, command.claim)

    def renewed(self, fence: Fence, until: Millis, now: Millis) -> Millis:
        """A lease was renewed; the answer is until when."""
        renew_one(self.loop.state, fence, until, now)
        return until

    def registered(self, ask: Ask, command: RegisterWorker, now: Millis) -> None:
        """A greeting that is tried again has lost its stream: its worker is known, and away until it greets anew."""
        worker = self.loop.state.workers.get((command.tenant, command.worker))
        if ask.token is None and worker is not None and not worker.row.capacity.pull:
            went_away(self.loop.state, worker, now, hung_up=False)
        else:
            self.heard(command, now)
            if worker is not None and worker.row.capacity.pull:
                # Whoever begins anew is free, whatever it said before.
                take_mood(self.loop.state, worker, Mood.IDLE)

    def heard(self, command: RegisterWorker | ClaimTask | RenewLease | BeatWorker | Report, now: Millis) -> None:
        """A pull worker has no stream; each of its requests is its beat, if it is its owner who sends it."""
        tenant = command.worker_tenant if isinstance(command, Report) else command.tenant
        worker = self.loop.state.workers.get((tenant, command.worker))
        if worker is None or not worker.row.capacity.pull or worker.row.incarnation != command.incarnation:
            return
        if not isinstance(command, Report) and command.owner != worker.row.owner:
            return
        heard_from(self.loop.state, worker, now)
        if isinstance(command, BeatWorker) and command.mood is not None:
            take_mood(self.loop.state, worker, command.mood)
