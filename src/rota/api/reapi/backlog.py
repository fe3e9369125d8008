"""The actions of one caller that are under way: what is known of each, and what is to be done about it.

A machine: it is given what happened and answers with what is to be done, and waits for nothing. `driver` carries that
out. What counts is with the coordinator. This is the memory of a front end, which may end at any moment: each run is
found again by its id, and how it stands is read anew whenever something may have been missed.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from rota.api.reapi import events as ev
from rota.api.reapi.ongoing import Conclusion, Ongoing
from rota.core.ids import Digest, Millis
from rota.core.model import Queue
from rota.core.questions import RunView
from rota.core.states import RUN_TERMINAL, RunState
from rota.core.story import read_story
from rota.kinds.build.naming import OperationName
from rota.wire.builds import BuildWork

# How long an action goes on that nobody asks for, where its queue does not say so.
GRACE_MS = 60_000
# How long before a run was made its inputs were looked through, at most. Of another process's run it is not known.
WALKED_MS = 5 * 60_000
# What is said by a front end that ends a run, so that whoever reads it can tell it from a person's cancel. After the
# first stand the numbers of the operations that were cancelled: all others on that run were not asked.
NOT_WANTED = "its client has cancelled it"
NOT_ASKED_FOR = "no client has asked for it"
NUMBERS_MAX = 50
# As many may be over before they are looked through.
AGES_MIN = 100


class House(Protocol):
    """What a backlog has to know of the front end that it is in."""

    def where(self) -> str:
        """The address of this front end's content; it is what tells its runs from those of others."""
        ...

    def queue_of(self, instance: str) -> str:
        """In which queue the actions of an instance wait."""
        ...

    def is_wanted(self, tenant: str, run: str) -> bool:
        """Whether any caller of the tenant waits for a run, over whichever line."""
        ...


class Backlog:
    """The runs of one caller."""

    def __init__(self, tenant: str, house: House) -> None:
        self._tenant = tenant
        self._house = house
        self._runs: dict[str, Ongoing] = {}
        # Those whose end is not in the cache yet, by instance and action.
        self._shared: dict[tuple[str, Digest], Ongoing] = {}
        # By the ids under which they were known before they had to be submitted again.
        self._successors: dict[str, str] = {}
        self._queues: dict[str, Queue] = {}
        # Since when the inputs of each are in use, the longest first; some of them may be over.
        self._ages: list[tuple[Millis, str]] = []
        self._handlers: dict[type[ev.Event], Callable[..., list[ev.Intent]]] = {
            ev.Submitting: self._submitting,
            ev.Submitted: self._submitted,
            ev.NotSubmitted: self._not_submitted,
            ev.Caught: self._caught,
            ev.Adopted: self._adopt,
            ev.Told: self._told,
            ev.Seen: self._seen,
            ev.Kept: self._kept,
            ev.Replaced: self._replaced,
            ev.Cancelled: self._cancelled,
            ev.Left: self._left,
            ev.TurnedAway: self._turned_away,
            ev.Ticked: self._ticked,
        }

    def handle(self, event: ev.Event, now: Millis) -> list[ev.Intent]:
        """What is to be done about something that happened."""
        return self._handlers[type(event)](event, now)

    @property
    def oldest_at(self) -> Millis | None:
        """Since when the inputs of actions under way are in use."""
        while self._ages:
            at, run = self._ages[0]
            ongoing = self._runs.get(run)
            if ongoing is not None and not ongoing.is_over:
                return at
            heappop(self._ages)
        return None

    @property
    def under_way(self) -> list[Ongoing]:
        """Everything that is known here, the oldest first."""
        return list(self._runs.values())

    def get(self, run: str) -> Ongoing | None:
        """A run by its id, or the one that took its place."""
        return self._runs.get(self.current(run))

    def current(self, run: str) -> str:
        """The id of the run that carries out what this one was to carry out."""
        while run in self._successors:
            run = self._successors[run]
        return run

    def same(self, instance: str, action: Digest) -> Ongoing | None:
        """The run of an action under way that others may share, also one whose end has not been told yet.

        Whoever looks here first and then into the cache finds it in one of the two.
        """
        found = self._shared.get((instance, action))
        # One that is still on its way to the coordinator may be refused there.
        return found if found is not None and found.is_submitted else None

    def is_wanted(self, run: str, now: Millis) -> bool:
        """Whether a caller waits for this run here: listens, or asked not long ago, and has not cancelled."""
        ongoing = self._runs.get(run)
        if ongoing is None:
            return False
        since = now - self._grace_ms(ongoing)
        return any(
            not each.is_cancelled and (each.streams or each.asked_at > since) for each in ongoing.operations.values()
        )

    # Submissions.

    def _submitting(self, event: ev.Submitting, now: Millis) -> list[ev.Intent]:
        ongoing = self._add(Ongoing(event.run, event.asked.work, now, event.asked))
        # Until then nobody who does not find it may conclude anything from that.
        ongoing.is_submitted = False
        return []

    def _submitted(self, event: ev.Submitted, now: Millis) -> list[ev.Intent]:
        ongoing = self._runs.get(event.run)
        if ongoing is None:
            # The coordinator turned its caller away meanwhile.
            return []
        ongoing.is_submitted = True
        if event.taken == event.run:
            return []
        self._remove(ongoing)
        if event.taken in self._runs:
            return []
        return [ev.Read(self._add(Ongoing(event.taken, ongoing.work, now, ongoing.asked)))]

    def _not_submitted(self, event: ev.NotSubmitted, _now: Millis) -> list[ev.Intent]:
        ongoing = self._runs.get(event.run)
        if ongoing is not None:
            self._remove(ongoing)
        return []

    # Runs of others, and what was missed.

    def _caught(self, event: ev.Caught, now: Millis) -> list[ev.Intent]:
        self._queues = {queue.name: queue for queue in event.queues}
        for view, work in event.runs:
            # Another front end looks after its own.
            if view.id not in self._runs and work.content == self._house.where():
                self._add(_adopted(view, work, now))
        return [ev.Read(each) for each in self._runs.values() if each.is_submitted and not each.is_over]

    def _adopt(self, event: ev.Adopted, now: Millis) -> list[ev.Intent]:
        if event.view.id in self._runs:
            return []
        return [ev.Read(self._add(_adopted(event.view, event.work, now)))]

    def _told(self, event: ev.Told, now: Millis) -> list[ev.Intent]:
        ongoing = self._runs.get(event.story.run)
        if ongoing is None or ongoing.is_over:
            return []
        before, end = ongoing.stage, None
        for change in read_story(event.story):
            end = ongoing.hear(change) or end
        return self._go_on(ongoing, end, ongoing.stage is not before, now)

    def _seen(self, event: ev.Seen, now: Millis) -> list[ev.Intent]:
        ongoing = event.ongoing
        if ongoing.is_over:
            return []
        if event.view is None:
            return self._conclude(ongoing, Conclusion(RunState.FAILED, error="nothing is known of it any more"), now)
        before = ongoing.stage
        end = ongoing.read(event.view, event.task)
        return self._go_on(ongoing, end, ongoing.stage is not before, now)

    def _go_on(self, ongoing: Ongoing, end: Conclusion | None, is_new: bool, now: Millis) -> list[ev.Intent]:
        if end is not None:
            return self._conclude(ongoing, end, now)
        intents: list[ev.Intent] = [ev.Tell(ongoing)] if is_new else []
        if ongoing.parked:
            # Nobody looks after a parked action: it is ended, and its client told why.
            intents.append(ev.End(ongoing, f"parked: {ongoing.parked}"))
        return intents

    # Ends.

    def _conclude(self, ongoing: Ongoing, end: Conclusion, now: Millis) -> list[ev.Intent]:
        ongoing.is_over = True
        _note_cancelled(ongoing, end)
        # Those who wait here did not ask for it. What a person has cancelled stays so.
        if ended_for_others(end) and ongoing.asked is not None and self.is_wanted(ongoing.run, now):
            return [ev.Replace(ongoing, ongoing.asked)]
        if ongoing.is_past:
            # Its result was kept then, or has been replaced since.
            return self._tell_end(ongoing, end)
        return [ev.Keep(ongoing, end)]

    def _kept(self, event: ev.Kept, _now: Millis) -> list[ev.Intent]:
        return self._tell_end(event.ongoing, event.end)

    def _tell_end(self, ongoing: Ongoing, end: Conclusion) -> list[ev.Intent]:
        # From now on it is in the cache, or nobody wants it.
        self._unshare(ongoing)
        ongoing.end(end)
        self._forget(ongoing)
        return [ev.Tell(ongoing)]

    def _replaced(self, event: ev.Replaced, _now: Millis) -> list[ev.Intent]:
        ongoing, following = event.ongoing, event.following
        self._runs.pop(ongoing.run, None)
        self._unshare(ongoing)
        following.operations.update(ongoing.operations)
        self._successors[ongoing.run] = following.run
        ongoing.successor = following
        return [ev.Tell(ongoing)]

    def _turned_away(self, event: ev.TurnedAway, _now: Millis) -> list[ev.Intent]:
        ended = self.under_way
        for ongoing in ended:
            ongoing.end(Conclusion(RunState.FAILED, error=event.error))
            self._remove(ongoing)
        return [ev.Tell(ongoing) for ongoing in ended]

    # Clients that go.

    def _cancelled(self, event: ev.Cancelled, now: Millis) -> list[ev.Intent]:
        ongoing = event.ongoing
        event.operation.is_cancelled = True
        intents: list[ev.Intent] = [ev.Tell(ongoing)]
        if not ongoing.is_over and not self._house.is_wanted(self._tenant, ongoing.run):
            gone = [number for number, each in ongoing.operations.items() if each.is_cancelled]
            intents.append(ev.End(ongoing, f"{NOT_WANTED}: {' '.join(gone[-NUMBERS_MAX:])}"))
        return intents

    def _left(self, event: ev.Left, now: Millis) -> list[ev.Intent]:
        event.operation.streams -= 1
        event.ongoing.asked_at = event.operation.asked_at = now
        self._forget(event.ongoing)
        return []

    def _ticked(self, _event: ev.Ticked, now: Millis) -> list[ev.Intent]:
        """Give up what nobody asks for."""
        intents: list[ev.Intent] = []
        for ongoing in self._runs.values():
            if ongoing.is_over or ongoing.is_listened_to or not ongoing.is_submitted:
                continue
            grace_ms = self._grace_ms(ongoing)
            if now - ongoing.asked_at > grace_ms and not self._house.is_wanted(self._tenant, ongoing.run):
                # If that fails, it is looked at again when it was quiet for as long.
                ongoing.asked_at = now
                intents.append(ev.End(ongoing, f"{NOT_ASKED_FOR} for {grace_ms // 1_000} s"))
        return intents

    def _grace_ms(self, ongoing: Ongoing) -> Millis:
        """How long it goes on though nobody asks for it."""
        queue = self._queues.get(self._house.queue_of(ongoing.work.instance))
        return GRACE_MS if queue is None else queue.client_action_timeout_ms

    # What there is.

    def _add(self, ongoing: Ongoing) -> Ongoing:
        self._runs[ongoing.run] = ongoing
        heappush(self._ages, (ongoing.accepted_at, ongoing.run))
        if len(self._ages) > AGES_MIN + 2 * len(self._runs):
            self._ages = sorted((each.accepted_at, run) for run, each in self._runs.items())
        if ongoing.asked is not None and ongoing.asked.is_shared:
            self._shared.setdefault((ongoing.work.instance, ongoing.work.action), ongoing)
        return ongoing

    def _remove(self, ongoing: Ongoing) -> None:
        self._runs.pop(ongoing.run, None)
        self._unshare(ongoing)
        for before, after in list(self._successors.items()):
            if after == ongoing.run:
                del self._successors[before]

    def _unshare(self, ongoing: Ongoing) -> None:
        key = (ongoing.work.instance, ongoing.work.action)
        if self._shared.get(key) is ongoing:
            del self._shared[key]

    def _forget(self, ongoing: Ongoing) -> None:
        """What is over is with the coordinator; it is kept here only while somebody has to be told."""
        if ongoing.conclusion is not None and not ongoing.is_listened_to:
            self._remove(ongoing)


def ended_for_others(end: Conclusion) -> bool:
    """Whether a front end ended it for those who had cancelled it, or because nobody asked.

    It stands in the run, so it is known after any restart. Then whoever still asks for it is to have it made again.
    """
    return end.state is RunState.CANCELLED and end.reason.startswith((NOT_WANTED, NOT_ASKED_FOR))


def _note_cancelled(ongoing: Ongoing, end: Conclusion) -> None:
    """Those for whom it was ended have cancelled it, whether that was known here or not."""
    if end.reason.startswith(NOT_WANTED):
        for number in end.reason.removeprefix(NOT_WANTED).strip(": ").split():
            ongoing.operation(OperationName(ongoing.work.instance, ongoing.run, number)).is_cancelled = True


def _adopted(view: RunView, work: BuildWork, now: Millis) -> Ongoing:
    """A run that another process has submitted. Its inputs were used before it was made."""
    ongoing = Ongoing(view.id, work, now)
    ongoing.accepted_at = max(1, view.created_at - WALKED_MS)
    ongoing.is_past = view.state in RUN_TERMINAL
    return ongoing
