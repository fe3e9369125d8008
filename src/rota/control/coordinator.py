"""A coordinator: leadership and, while it leads, a loop. Events in, intents out; no I/O, no clock, no threads.

The driver (or the simulator) carries out intents and brings back answers. When memory and disk may differ the
coordinator drops its memory: there is no second truth to reconcile.
"""

from collections import deque
from collections.abc import Iterable

from rota.control.events import (
    Answer,
    Asked,
    CloseStream,
    Commit,
    CommitOutcome,
    Committed,
    Elected,
    Event,
    FrameCame,
    HoldsSaid,
    Intent,
    Loaded,
    Overtaken,
    StreamClosed,
    Tell,
    Vacated,
    Woke,
)
from rota.control.leadership import Leadership, Role
from rota.control.loop import Ask, Loop
from rota.control.standing import Cause
from rota.control.streams import as_failure
from rota.core.bounds import TASK_RETRIES, TimeLimits, check_ladder
from rota.core.commands import RegisterWorker, Report
from rota.core.cycle import CycleSettings
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.core.load import load

UNWELCOME_MAX = 1_000


class Coordinator:
    """One coordinator process, as a machine."""

    def __init__(self, limits: TimeLimits, now: Millis, campaign_ms: Millis = 1_000) -> None:
        check_ladder(limits)
        self.limits = limits
        self.task_retries = TASK_RETRIES
        self.wake_settings = CycleSettings(starve_ms=limits.starve_ms)
        self.leadership = Leadership(limits, campaign_ms, now)
        self.loop: Loop | None = None
        self.streams: dict[int, None] = {}
        # Known from the first load on.
        self.cluster = ""
        self._commit_asked_at: Millis = 0
        self._refused: deque[Ask] = deque()
        self._lease_number = 0
        self._unwelcome: dict[RegisterWorker, str] = {}

    def handle(self, event: Event, now: Millis) -> list[Intent]:
        """Take one event; everything that follows from it is in the intents."""
        return self.handle_all((event,), now)

    def handle_all(self, events: Iterable[Event], now: Millis) -> list[Intent]:
        """Take what has arrived, in order, and then one turn for all of it."""
        intents: list[Intent] = []
        for event in events:
            intents += self._dispatch(event, now)
        if self.leadership.role is Role.LEADER or now >= self.leadership.next_at:
            intents += self.leadership.woke(now)
        if self.leadership.role not in (Role.LEADER, Role.LOADING) and (self.loop is not None or self._refused):
            intents += self._drop_loop()
        if self.loop is not None:
            self.leadership.standing.turned(now)
            self.loop.proven_until = self.leadership.proven_until
            intents += self.loop.turn(now)
            for intent in intents:
                if isinstance(intent, Commit):
                    self._commit_asked_at = now
        return intents

    def wake_at(self, now: Millis) -> Millis:
        """When to call `handle(Woke())` if nothing else happens before."""
        at = max(self.leadership.next_at, now + 1)
        return min(at, self.loop.wanted_at) if self.loop is not None else at

    def _dispatch(self, event: Event, now: Millis) -> list[Intent]:
        match event:
            case Asked():
                return self._ask(event)
            case FrameCame():
                return self._frame(event)
            case StreamClosed():
                self.streams.pop(event.stream, None)
                if self.loop is not None:
                    self.loop.streams.close(event.stream, now, hung_up=True)
                return []
            case Committed():
                return self._committed(event, now)
            case Elected():
                return self.leadership.elected(event, now)
            case HoldsSaid():
                return self.leadership.holds_said(event, now)
            case Loaded():
                return self._loaded(event, now)
            case Vacated():
                self.leadership.vacated(now)
                return []
            case Overtaken():
                if event.epoch != self.leadership.epoch:
                    return []
                return self.leadership.step_down(Cause.COMMIT_FENCED, f"another reigns: {event.error}", now)
            case Woke():
                return []

    def _ask(self, event: Asked) -> list[Intent]:
        if self.loop is None:
            return [Answer(event.token, Unavailable("leader.none"))]
        self.loop.inbox.append(Ask(event.command, event.token, event.prepared))
        return []

    def _frame(self, event: FrameCame) -> list[Intent]:
        if self.loop is None:
            return [CloseStream(event.stream)]
        self.streams[event.stream] = None
        self.loop.inbox.append((event.stream, event.frame))
        return []

    def _loaded(self, event: Loaded, now: Millis) -> list[Intent]:
        if event.records is None:
            if self.leadership.is_loading(event):
                return self.leadership.step_down(Cause.LOAD_FAILED, f"loading failed: {event.error}", now)
            return []
        if not self.leadership.loaded(event, now):
            return []
        state = load(self.leadership.epoch, self.limits, event.records, now)
        # A reload in the same reign must not issue a fence twice.
        state.lease_number = self._lease_number
        state.task_retries = self.task_retries
        state.wake_settings = self.wake_settings
        self.cluster = event.cluster
        self.loop = Loop(state, self.leadership.ticket)
        self.loop.streams.cluster = event.cluster
        self.loop.replay, self._refused = self._refused, deque()
        self.loop.streams.unwelcome = self._unwelcome
        self._lease_number = 0
        self.loop.begin(now)
        about = (("epoch", str(state.epoch)), ("runs", str(len(state.runs))), ("cluster", event.cluster))
        return [Tell("reign.began", about)]

    def _committed(self, event: Committed, now: Millis) -> list[Intent]:
        loop = self.loop
        if loop is None or event.ticket != loop.commit_ticket or loop.committing is None:
            return []
        if event.outcome is CommitOutcome.DONE:
            self.leadership.proven_at(self._commit_asked_at)
            return loop.committed(event, now)
        if event.outcome is CommitOutcome.UNAVAILABLE:
            return loop.committed(event, now)
        if event.outcome is CommitOutcome.REFUSED:
            return self._rebuild(loop, event.error, now)
        cause = Cause.COMMIT_FENCED if event.outcome is CommitOutcome.FENCED else Cause.COMMIT_UNKNOWN
        return self.leadership.step_down(cause, f"a commit was {event.outcome}: {event.error}", now)

    def _rebuild(self, loop: Loop, error: str, now: Millis) -> list[Intent]:
        """The store will not take a batch: load again and try its commands one by one; a lone culprit is refused.

        What workers said in that batch is tried again too. What they said since, they say again by themselves.
        """
        suspects = loop.asks_committing
        asks = [*(ask for ask in suspects if ask.token is None), *loop.unanswered()]
        intents: list[Intent] = [Tell("commit.refused", (("error", error),))]
        if not suspects or (loop.is_isolated and _is_last_word(suspects[0])):
            text = f"the store refused work of our own: {error}"
            return intents + self.leadership.step_down(Cause.STORE_REFUSED, text, now)
        if loop.is_isolated:
            asks = [*self._convict(suspects[0], error), *(ask for ask in asks if ask is not suspects[0])]
            if suspects[0].token is not None:
                intents.append(Answer(suspects[0].token, Refused("store.refused", error)))
        self._refused = deque(asks)
        self._lease_number = loop.state.lease_number
        self.loop = None
        intents += [CloseStream(stream) for stream in self.streams]
        self.streams.clear()
        return intents + self.leadership.reload(now)

    def _convict(self, culprit: Ask, error: str) -> list[Ask]:
        """What is done instead of a command that the store refuses: a result that cannot be kept is a failure."""
        command = culprit.command
        if isinstance(command, Report):
            return [Ask(as_failure(command, f"store.refused: {error}"))]
        if isinstance(command, RegisterWorker) and culprit.token is None:
            self._unwelcome[command] = error
            if len(self._unwelcome) > UNWELCOME_MAX:
                del self._unwelcome[next(iter(self._unwelcome))]
        return []

    def _drop_loop(self) -> list[Intent]:
        """Forget everything. Who waits for an answer is told to ask again; workers reconnect."""
        loop, self.loop = self.loop, None
        self._lease_number = 0
        intents: list[Intent] = [CloseStream(stream) for stream in self.streams]
        self.streams.clear()
        asks = [*(loop.unanswered() if loop is not None else ()), *self._refused]
        self._refused.clear()
        intents += [Answer(ask.token, Unavailable("leader.none")) for ask in asks if ask.token is not None]
        return intents


def _is_last_word(ask: Ask) -> bool:
    """Whether a report already is the failure that stands for one that was refused: there is nothing less to say."""
    command = ask.command
    return isinstance(command, Report) and command == as_failure(command, command.error)
