"""The coordinator's driver: events to the machine, its intents to the store, the workers and whoever asked.

It takes no decision. Everything that arrives in one pass of the event loop is given to the machine together, so that
it shares a turn and a commit.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec import structs

from rota.alarm import Alarm
from rota.control.coordinator import Coordinator
from rota.control.duties.driver import Duties, Duty
from rota.control.events import (
    Answer,
    Asked,
    AskHolds,
    CloseStream,
    Commit,
    CommitOutcome,
    Committed,
    Elect,
    Elected,
    Escalate,
    Event,
    FrameCame,
    HoldsSaid,
    Intent,
    Level,
    Load,
    Loaded,
    Overtaken,
    Publish,
    Release,
    Send,
    StreamClosed,
    Tell,
    Vacated,
    Wake,
    Woke,
)
from rota.control.following.driver import Following
from rota.control.graph_preparation.driver import prepare
from rota.control.leadership import Role
from rota.control.loop import Loop
from rota.control.recorder import Recorder, RecorderFeed
from rota.control.standing import Heartbeat
from rota.core.bounds import HISTORY_KEPT_MS, TimeLimits
from rota.core.cluster import cluster_id
from rota.core.commands import ClientCommand, Command
from rota.core.errors import Refused, Unavailable
from rota.core.history import HistoryQuery
from rota.core.ids import Millis, WorkerKey
from rota.core.questions import Question
from rota.core.records import Story
from rota.ports import Candidate, CommitUnknown, Fenced, SharedStore, Store, StoreRefused
from rota.wire.frames import CoordinatorFrame, WorkerFrame

if TYPE_CHECKING:
    # Its library takes a tenth of a second to import, which an embedded coordinator need not wait for.
    from rota.control.telemetry import Telemetry

TIDY_EVERY_S = 5.0

# A frame for a worker, or None when its stream is closed.
Outlet = Callable[[CoordinatorFrame | None], None]
# What became durable, or None when that is not known any more: whoever watches reads the story and watches anew.
Watcher = Callable[[list[Story] | None], None]
# A wake, or None when nobody can tell of any more: whoever waits asks for work, and listens anew.
Waker = Callable[[Wake | None], None]
Listener = Callable[[Tell | Escalate], None]


def ignore(said: Tell | Escalate) -> None:
    """Nobody listens."""


class CoordinatorDriver:
    """One coordinator in this process."""

    def __init__(
        self,
        store: Store,
        limits: TimeLimits,
        clock: Callable[[], Millis],
        *,
        who: Candidate,
        listener: Listener = ignore,
        keep_ms: Millis = HISTORY_KEPT_MS,
        telemetry: "Telemetry | None" = None,
        shared: SharedStore | None = None,
    ) -> None:
        """`shared` is the store again, if there are other coordinators that may lead."""
        self.store = store
        self._shared = shared
        self.clock = clock
        self.who = who
        self.keep_ms = keep_ms
        self.machine = Coordinator(limits, clock())
        self.failed: BaseException | None = None
        self.telemetry = telemetry
        if telemetry is not None:
            telemetry.attach(self.machine, clock)
        self._feed: RecorderFeed | None = None
        self._listener = listener
        self._events: deque[Event] = deque()
        # Salts are no secrets. Asking the system for each would give the other threads our turn.
        self._chance = Random(secrets.randbits(128))  # noqa: S311 - likewise
        self._answers: dict[int, asyncio.Future[tuple[object, object]]] = {}
        self._outlets: dict[int, Outlet] = {}
        self._watchers: dict[int, Watcher] = {}
        self._wakers: dict[WorkerKey, dict[int, Waker]] = {}
        self._number = 0
        self._running: dict[asyncio.Task[None], None] = {}
        self._alarm = Alarm(self._pump)
        self._pumping = False
        self._stopped = False
        self._standing = asyncio.Event()
        self._trouble: Refused | Unavailable | None = None
        self._loop: Loop | None = None
        self._changed: list[Callable[[], None]] = []
        self._following = Following(shared, self._tell)
        self._duties = Duties(self.machine.leadership.standing, self._tell)
        self._duties.add("tidy", self._tidy)

    # Life.

    def start(self) -> None:
        """Begin to stand for election; call inside a running event loop."""
        self._following.start(lambda: self._post(Vacated()))
        self._post(Woke())

    async def reigns(self) -> bool:
        """Whether this coordinator leads, once that is known: False after an election that another one won.

        Raises what kept it from leading if that was the store, or an error of our own.
        """
        await self._standing.wait()
        if self.failed is not None:
            raise self.failed
        if self._trouble is not None and not self.is_leader:
            raise self._trouble
        return self.is_leader

    @property
    def is_leader(self) -> bool:
        """Whether this coordinator has loaded its state and answers."""
        return self.machine.loop is not None and self.machine.leadership.role is Role.LEADER

    @property
    def leader(self) -> Candidate | None:
        """Who leads, as far as that is known here."""
        return self.who if self.is_leader else self._following.leader

    def heartbeat(self) -> Heartbeat:
        """Whether the loop is alive, and when it turned last."""
        return self.machine.leadership.standing.heartbeat(self.clock())

    async def look_into_store(self) -> None:
        """See whether the store answers, in the cheapest way; raises what it meets."""
        if self._shared is not None:
            await self._shared.leader()
        else:
            await self.store.history(HistoryQuery(tenant="", limit=1))

    def check_leads(self) -> None:
        """Raise `leader.elsewhere` or `leader.none` if another coordinator should be asked instead of this one."""
        if self._following.is_one_of_several and not self.is_leader:
            raise self._following.elsewhere()

    def on_reign(self, name: str, duty: Duty) -> None:
        """Have something done in every reign, from now on: it is cancelled when the reign ends."""
        self._duties.add(name, duty)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Be told whenever this coordinator begins or ceases to lead."""
        self._changed.append(changed)

    @property
    def cluster(self) -> str:
        """The cluster id of the store; empty until this coordinator has led once."""
        return self.machine.cluster

    @property
    def trouble(self) -> Refused | Unavailable | None:
        """What keeps this coordinator from leading, if it is its store."""
        return self._trouble

    @property
    def is_stopped(self) -> bool:
        """Whether nobody is answered here any more, and never again."""
        return self._stopped or self.failed is not None

    async def stop(self) -> None:
        """Answer nobody any more, let a commit that is under way end, and give the lock back."""
        self._stopped = True
        self._standing.set()
        self._alarm.stop()
        await self._duties.stop()
        await self._following.stop()
        while self._running:
            await asyncio.wait(list(self._running))
        self._end_all()
        # An election may have been won after the machine had been heard for the last time.
        won = [event.epoch for event in self._events if isinstance(event, Elected)]
        for epoch in (self.machine.leadership.epoch, *won):
            if epoch:
                await self._release(Release(epoch))

    def fail(self, error: BaseException) -> None:
        """Stop because of an error of ours. That is safe: nothing was acknowledged that is not durable."""
        if self.failed is None:
            self.failed = error
            self._standing.set()
            self._end_all()
            self._tell(Tell("coordinator.failed", (("error", f"{type(error).__name__}: {error}"),)))

    # What others use.

    async def ask(self, request: Command | Question) -> tuple[object, object]:
        """Carry out a command or answer a question: the word and its detail. Raises Refused or Unavailable."""
        ((value, detail),) = await self.ask_all((request,))
        if isinstance(value, Refused | Unavailable):
            raise value
        return value, detail

    async def ask_all(self, requests: Sequence[Command | Question]) -> list[tuple[object, object]]:
        """Several at once, so that they share a turn and a commit; what is refused is among the answers."""
        if self.is_stopped:
            raise self._gone()
        prepared = [await prepare(request) for request in requests]
        if self.is_stopped:
            raise self._gone()
        loop = asyncio.get_running_loop()
        asked: dict[int, asyncio.Future[tuple[object, object]]] = {}
        for request, graph in zip(requests, prepared, strict=True):
            salted = request
            if isinstance(request, ClientCommand) and not request.salt:
                salted = structs.replace(request, salt=self._chance.getrandbits(63))
            self._number += 1
            asked[self._number] = self._answers[self._number] = future = loop.create_future()
            if isinstance(graph, Refused):
                future.set_result((graph, None))
            else:
                self._post(Asked(self._number, salted, graph))
        try:
            return [await future for future in asked.values()]
        finally:
            for token in asked:
                self._answers.pop(token, None)

    def open_stream(self, outlet: Outlet) -> int:
        """A worker's stream: what it is told goes to `outlet`, what it says comes by `hear`."""
        self._number += 1
        self._outlets[self._number] = outlet
        return self._number

    def hear(self, stream: int, frame: WorkerFrame) -> None:
        """A worker said something."""
        if stream in self._outlets:
            self._post(FrameCame(stream, frame))

    def close_stream(self, stream: int) -> None:
        """A worker's stream is gone."""
        if self._outlets.pop(stream, None) is not None:
            self._post(StreamClosed(stream))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Be told what happened, commit by commit; the answer ends it."""
        self._number += 1
        number = self._number
        self._watchers[number] = watcher

        def end() -> None:
            self._watchers.pop(number, None)

        return end

    def on_wake(self, worker: WorkerKey, waker: Waker) -> Callable[[], None]:
        """Be told of the wakes of a pull worker; None when this coordinator leads no longer. The answer ends it."""
        self._number += 1
        number = self._number
        self._wakers.setdefault(worker, {})[number] = waker

        def end() -> None:
            wakers = self._wakers.get(worker, {})
            wakers.pop(number, None)
            if not wakers:
                self._wakers.pop(worker, None)

        return end

    def set_recorder(self, recorder: Recorder | None) -> None:
        """Attach a recorder of metrics, which is told what happens from now on; None takes it away."""
        self._feed = None if recorder is None else RecorderFeed(recorder, self.machine)

    # The machine.

    def _post(self, event: Event) -> None:
        self._events.append(event)
        if not self._pumping and not self._stopped:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        if self._stopped or self.failed is not None:
            return
        events, self._events = self._events or (Woke(),), deque()
        now = self.clock()
        began = perf_counter()
        try:
            for intent in self.machine.handle_all(events, now):
                self._carry_out(intent)
        except Exception as error:  # an error of ours
            self.fail(error)
            return
        if self.telemetry is not None:
            self.telemetry.turned(perf_counter() - began)
        self._record(lambda feed: feed.turned())
        if self._loop is not self.machine.loop:
            self._change_reigns()
        if self.is_leader:
            self._trouble = None
            self._standing.set()
        self._rest(now)

    def _change_reigns(self) -> None:
        if self._loop is not None:
            # Its last commit may be durable and was never told.
            self._lose_watchers()
            if self.telemetry is not None:
                self.telemetry.keep(self._loop)
            self._duties.end()
        self._loop = self.machine.loop
        self._following.changed(is_leader=self._loop is not None)
        if self._loop is not None:
            self._duties.begin()
        for away_ms in self.machine.leadership.standing.take_reacquires():
            if self.telemetry is not None:
                self.telemetry.reacquired(away_ms / 1000)
            self._record(lambda feed, away_ms=away_ms: feed.reacquired(away_ms / 1000))
        for changed in self._changed:
            changed()

    def _record(self, tell: Callable[[RecorderFeed], None]) -> None:
        """Tell the recorder. One that raises is detached: scheduling does not depend on what measures it."""
        if self._feed is not None:
            try:
                tell(self._feed)
            except Exception as error:  # another program's code
                self._feed = None
                text = f"{type(error).__name__}: {error}"
                self._tell(Tell("recorder.failed", (("error", text),), Level.ERROR))

    def _rest(self, now: Millis) -> None:
        wake_at = self.machine.wake_at(now)
        if self._pumping:
            return
        if wake_at <= now:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)
        else:
            self._alarm.set(wake_at, now)

    def _end_all(self) -> None:
        for future in self._answers.values():
            if not future.done():
                future.set_result((self._gone(), None))
        for stream in list(self._outlets):
            self._close(stream)
        self._lose_watchers()

    def _lose_watchers(self) -> None:
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers.values():
            watcher(None)
        wakers, self._wakers = self._wakers, {}
        for group in wakers.values():
            for waker in group.values():
                waker(None)

    def _gone(self) -> Unavailable:
        cause = f": {type(self.failed).__name__}: {self.failed}" if self.failed is not None else ""
        return Unavailable("leader.none", f"this coordinator has stopped{cause}.")

    def _tell(self, said: Tell | Escalate) -> None:
        """Whoever listens is not ours; an error there must not stop us."""
        try:
            self._listener(said)
        except Exception as error:
            context = {"message": "a listener of the coordinator failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _carry_out(self, intent: Intent) -> None:
        match intent:
            case Send():
                outlet = self._outlets.get(intent.stream)
                if outlet is not None:
                    outlet(intent.frame)
            case Answer():
                future = self._answers.get(intent.token)
                if future is not None and not future.done():
                    future.set_result((intent.value, intent.detail))
            case Publish():
                for watcher in list(self._watchers.values()):
                    watcher(intent.stories)
            case Commit():
                self._run(self._commit(intent))
            case CloseStream():
                self._close(intent.stream)
            case Elect():
                self._run(self._elect(intent))
            case AskHolds():
                self._run(self._ask_holds(intent))
            case Load():
                self._run(self._load(intent))
            case Release():
                self._run(self._release(intent))
            case Tell() | Escalate():
                self._tell(intent)
            case Wake():
                for waker in list(self._wakers.get((intent.tenant, intent.worker), {}).values()):
                    waker(intent)

    def _close(self, stream: int) -> None:
        outlet = self._outlets.pop(stream, None)
        if outlet is not None:
            outlet(None)

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(lambda done: self._running.pop(done, None))

    # The store.

    async def _elect(self, intent: Elect) -> None:
        try:
            epoch = await self.store.elect(self.who)
        except Exception as error:  # whatever the store meets is an election that was not won
            self._post(Elected(intent.ticket, None, _words(error)))
            self._hindered(error)
            await self._following.lost()
            return
        if epoch is None:
            await self._following.lost()
        else:
            self._following.won()
        self._post(Elected(intent.ticket, epoch))
        if epoch is None:
            self._trouble = None
            self._standing.set()

    async def _ask_holds(self, intent: AskHolds) -> None:
        try:
            self._post(HoldsSaid(intent.ticket, await self.store.holds(intent.epoch)))
        except Exception as error:  # errors count as not held
            self._post(HoldsSaid(intent.ticket, False, _words(error)))

    async def _load(self, intent: Load) -> None:
        try:
            cluster = cluster_id(await self.store.identity())
            records = [record async for record in self.store.load(intent.epoch)]
        except Exception as error:  # the machine steps down and tells why
            self._post(Loaded(intent.ticket, None, _words(error)))
            self._hindered(error)
            return
        self._post(Loaded(intent.ticket, records, cluster=cluster))

    def _hindered(self, error: Exception) -> None:
        """The store keeps this coordinator from leading; whoever waits for that hears why."""
        known = isinstance(error, Refused | Unavailable)
        self._trouble = error if known else Unavailable("store.unavailable", f"{type(error).__name__}: {error}.")
        self._standing.set()

    async def _release(self, intent: Release) -> None:
        try:
            await self.store.release(intent.epoch)
        except Exception as error:  # a lock that cannot be given back ends with its process
            self._tell(Tell("release.failed", (("error", f"{error}"),)))

    async def _commit(self, intent: Commit) -> None:
        outcome, text, code = CommitOutcome.DONE, "", ""
        began = perf_counter()
        try:
            await self.store.commit(intent.epoch, intent.batch)
        except Fenced as error:
            outcome, text = CommitOutcome.FENCED, str(error)
        except StoreRefused as error:
            outcome, text = CommitOutcome.REFUSED, str(error)
        except Unavailable as error:
            outcome, text, code = CommitOutcome.UNAVAILABLE, error.reason, error.code
        except CommitUnknown as error:
            outcome, text = CommitOutcome.UNKNOWN, str(error)
        except Exception as error:  # the store has no such word: what it did is not known
            outcome, text = CommitOutcome.UNKNOWN, f"{type(error).__name__}: {error}"
        if self.telemetry is not None:
            self.telemetry.committed(intent.batch, perf_counter() - began)
        # Not in the next pass: whoever waits has waited for this.
        self._events.append(Committed(intent.ticket, outcome, text, code))
        self._pump()

    async def _tidy(self) -> None:
        """Housekeeping, a slice at a time."""
        epoch = self.machine.leadership.epoch
        while True:
            try:
                while await self.store.tidy(epoch, self.clock(), self.keep_ms):
                    await asyncio.sleep(0)
            except Fenced as fenced:
                self._post(Overtaken(epoch, f"{fenced}"))
            except Exception as error:  # it may be stopped anywhere and done again
                self._tell(Tell("tidy.failed", (("error", f"{error}"),)))
            await asyncio.sleep(TIDY_EVERY_S)


def _words(error: BaseException) -> str:
    """What an error says; some say nothing, such as a time limit, and are errors all the same."""
    return f"{error}" or type(error).__name__
