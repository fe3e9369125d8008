"""asyncio around a backlog: carries its intents to the coordinator, the cache and those who wait; decides nothing."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import msgspec
from msgspec import structs

from rota.api.reapi import backlog
from rota.api.reapi import events as ev
from rota.api.reapi.ongoing import Conclusion, Ongoing, Operation
from rota.client.line import FarLine
from rota.client.operating import PATIENCE_S
from rota.client.runs import Client
from rota.client.watching import Interrupted
from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.ids import CommandId, Digest, Millis, RunId
from rota.core.model import Queue
from rota.core.questions import RunView
from rota.core.states import RUN_TERMINAL, RunState
from rota.kinds.build.naming import OperationName, new_name, new_run
from rota.kinds.build.scheduling import Asked, submission
from rota.wire.builds import BUILD, BuildWork, decode_work

# How often it is looked whether what has ended can be told; nobody depends on it, since everybody is told.
SETTLE_S = 30.0
# How often it is looked who has been given up.
LOOK_EVERY_S = 1.0
# How soon a coordinator that is away is looked for again.
AGAIN_S = 0.2
# And one that does not let this caller in.
REFUSED_S = 10.0
# How long it may be away before that is worth a word: who starts with us, or again, is there sooner.
AWAY_MS = 5_000
# How many runs are read at once by who has missed something.
READ_AT_ONCE = 100

# Given the end of a tenant's run before its clients are: the action cache is written.
Keep = Callable[[str, Ongoing, Conclusion], Awaitable[None]]


class House(backlog.House, Protocol):
    """The front end that it is in."""

    def changed(self, at: Millis) -> None:
        """Inputs are in use since then, or are not any more."""
        ...


class BacklogDriver:
    """The runs of one caller, over its line to the coordinator."""

    def __init__(
        self,
        line: FarLine,
        clock: Callable[[], Millis],
        keep: Keep,
        say: Callable[[str], None],
        house: House,
    ) -> None:
        """`say` hears of what an operator should know."""
        self._backlog = backlog.Backlog(line.tenant, house)
        self._client = Client(line)
        self._line = line
        self._clock = clock
        self._keep = keep
        self._say = say
        self._house = house
        self._in_use_since: Millis | None = None
        # Who waits for something new of a run.
        self._bells: dict[Ongoing, dict[asyncio.Future[bool], None]] = {}
        self._watched = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def queues(self) -> tuple[Queue, ...]:
        """The queues that are defined. Raises Refused, Unavailable."""
        return await self._client.queues()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._backlog.under_way

    @property
    def oldest_at(self) -> Millis | None:
        """Since when inputs are in use."""
        return self._backlog.oldest_at

    def start(self) -> None:
        """Begin to watch."""
        self._spawn(self._watch())
        self._spawn(self._tick())

    async def close(self) -> None:
        """Watch no more. The runs go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._line.close()

    # What is asked of it.

    def is_wanted(self, run: str) -> bool:
        """Whether a caller waits for this run here."""
        return self._backlog.is_wanted(run, self._clock())

    def under_way(self) -> list[Ongoing]:
        """Everything that is known here, the oldest first."""
        return self._backlog.under_way

    def same(self, instance: str, action: Digest) -> Ongoing | None:
        """See `Backlog`."""
        return self._backlog.same(instance, action)

    async def ready(self) -> None:
        """Wait until everything is known that is under way. Raises Unavailable."""
        if self._watched.is_set():
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._watched.wait()
        except TimeoutError:
            raise Unavailable("leader.none", "no coordinator answers.") from None

    async def submit(self, asked: Asked) -> tuple[Ongoing, Operation]:
        """Have an action carried out, or join those who asked for it before. Raises Refused or Unavailable."""
        # What happens to it must not be missed.
        await self.ready()
        ongoing = await self._submit(asked)
        return ongoing, self.join(ongoing)

    def join(self, ongoing: Ongoing) -> Operation:
        """One more client waits for a run."""
        return ongoing.operation(new_name(ongoing.work.instance, ongoing.run))

    async def find(self, name: OperationName) -> tuple[Ongoing, Operation] | None:
        """An operation by its name, whoever began it; None if there is no such run."""
        await self.ready()
        run = self._backlog.current(name.run)
        ongoing = self._backlog.get(run) or await self._adopt(run)
        if ongoing is None or ongoing.work.instance != name.instance:
            return None
        while not ongoing.is_settled:
            await self.has_changed(ongoing, SETTLE_S)
        while ongoing.successor is not None:
            ongoing = ongoing.successor
        operation = ongoing.operation(name)
        ongoing.asked_at = operation.asked_at = self._clock()
        return ongoing, operation

    async def replace(self, ongoing: Ongoing, asked: Asked) -> Ongoing:
        """Have an action carried out by another run, for the same clients. Raises Refused or Unavailable."""
        following = await self._submit(asked)
        self._handle(ev.Replaced(ongoing, following))
        return following

    async def cancel(self, ongoing: Ongoing, operation: Operation) -> None:
        """A client wants it no more. The run ends unless others wait for it."""
        for intent in self._decide(ev.Cancelled(ongoing, operation)):
            await self._carry_out(intent)

    def attach(self, operation: Operation) -> None:
        """A client begins to listen."""
        operation.streams += 1

    def detach(self, ongoing: Ongoing, operation: Operation) -> None:
        """A client listens no more."""
        self._handle(ev.Left(ongoing, operation))

    async def has_changed(self, ongoing: Ongoing, within_s: float) -> bool:
        """Wait until there is something new to be told; no if there was nothing for so long.

        To be asked right after looking, so that nothing is missed. Every action is waited for twice or more, so this is
        a future and a timer, and not a task.
        """
        loop = asyncio.get_running_loop()
        bell: asyncio.Future[bool] = loop.create_future()
        bells = self._bells.setdefault(ongoing, {})
        bells[bell] = None
        timer = loop.call_later(within_s, _ring, bell, False)
        try:
            return await bell
        finally:
            timer.cancel()
            bells.pop(bell, None)
            if not bells and self._bells.get(ongoing) is bells:
                del self._bells[ongoing]

    # What happens, and what is done about it.

    def _decide(self, event: ev.Event) -> list[ev.Intent]:
        intents = self._backlog.handle(event, self._clock())
        oldest = self._backlog.oldest_at
        if oldest != self._in_use_since:
            before, self._in_use_since = self._in_use_since, oldest
            self._house.changed(min(at for at in (before, oldest) if at is not None))
        return intents

    def _handle(self, event: ev.Event) -> None:
        """What nobody waits for is carried out beside; what is to be told, at once."""
        for intent in self._decide(event):
            if isinstance(intent, ev.Tell):
                self._ring(intent.ongoing)
            else:
                self._spawn(self._carry_out_beside(intent))

    async def _carry_out_beside(self, intent: ev.Intent) -> None:
        try:
            await self._carry_out(intent)
        except (Refused, Unavailable) as trouble:
            self._say(f"{intent.ongoing.run} is looked at again, {type(intent).__name__.lower()} failed: {trouble}")

    async def _carry_out(self, intent: ev.Intent) -> None:
        """Raises Refused or Unavailable."""
        ongoing = intent.ongoing
        match intent:
            case ev.Tell():
                self._ring(ongoing)
            case ev.Read():
                await self._read(ongoing)
            case ev.End():
                await self._end(ongoing, intent.reason)
            case ev.Keep():
                await self._put(ongoing, intent.end)
            case ev.Replace():
                try:
                    await self.replace(ongoing, intent.asked)
                except (Refused, Unavailable) as trouble:
                    self._handle(ev.Kept(ongoing, Conclusion(RunState.FAILED, error=f"{trouble}")))

    def _ring(self, ongoing: Ongoing) -> None:
        for bell in self._bells.pop(ongoing, ()):
            _ring(bell, True)

    async def _submit(self, asked: Asked) -> Ongoing:
        run = taken = new_run(asked.work.action)
        self._handle(ev.Submitting(run, asked))
        try:
            taken = await self._send(asked, run)
        except (Refused, Unavailable):
            self._handle(ev.NotSubmitted(run))
            raise
        except asyncio.CancelledError:
            # Its client has gone. It is looked after like any other that nobody asks for.
            self._handle(ev.Submitted(run, run))
            raise
        for intent in self._decide(ev.Submitted(run, taken)):
            await self._carry_out(intent)
        ongoing = self._backlog.get(taken)
        if ongoing is None:
            raise Unavailable("leader.none", "the coordinator does not let this caller in any more.")
        return ongoing

    async def _send(self, asked: Asked, run: str) -> str:
        command, graph = submission(asked, run)
        try:
            return await self._client.ask(command)
        except Refused as refused:
            if refused.code != "graph.unknown":
                raise
        return await self._client.ask(structs.replace(command, graph=graph))

    async def _adopt(self, run: str) -> Ongoing | None:
        """Look after a run that another process has submitted."""
        try:
            view = await self._client.run(run).status()
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            return None
        for _, work in _builds([view]):
            intents = self._decide(ev.Adopted(view, work))
            ongoing = self._backlog.get(run)
            for intent in intents:
                try:
                    await self._carry_out(intent)
                except BaseException:
                    self._handle(ev.NotSubmitted(run))
                    raise
            return ongoing
        return None

    async def _read(self, ongoing: Ongoing) -> None:
        """See how a run stands."""
        run = self._client.run(ongoing.run)
        try:
            view, tasks = await run.status(), await run.tasks()
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            self._handle(ev.Seen(ongoing, None))
            return
        self._handle(ev.Seen(ongoing, view, tasks[0] if tasks else None))

    async def _end(self, ongoing: Ongoing, reason: str) -> None:
        command_id = f"cancel-{ongoing.run}-{secrets.token_hex(4)}"
        command = CancelRun(
            tenant=self._line.tenant, command_id=CommandId(command_id), run=RunId(ongoing.run), reason=reason
        )
        try:
            await self._client.ask(command)
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            # It has ended long ago.
            await self._read(ongoing)

    async def _put(self, ongoing: Ongoing, end: Conclusion) -> None:
        try:
            await self._keep(self._line.tenant, ongoing, end)
        except Exception as error:
            # A result that others will not find is no reason to keep it from those who wait for it.
            self._say(f"the result of {ongoing.run} was not kept: {type(error).__name__}: {error}")
        self._handle(ev.Kept(ongoing, end))

    # Hearing of it.

    async def _watch(self) -> None:
        """Hear of everything, for ever; what was missed is read."""
        away = _Away(self._say)
        while True:
            try:
                connection = await self._line.connect()
                watching = connection.watch("")
            except Unavailable as trouble:
                away.again(trouble, self._clock())
                await asyncio.sleep(AGAIN_S)
                continue
            except Refused as refused:
                # A token that was revoked, say: whoever comes with it is not let in here either.
                self._say(f"the coordinator refuses: {refused}")
                self._handle(ev.TurnedAway(f"{refused}"))
                await asyncio.sleep(REFUSED_S)
                continue
            away.is_back()
            try:
                await self._catch_up()
                self._watched.set()
                async for story in watching:
                    self._handle(ev.Told(story))
            except Interrupted:
                pass
            except (Refused, Unavailable) as trouble:
                self._say(f"the watch broke off: {trouble}")
                await asyncio.sleep(AGAIN_S)
            finally:
                self._watched.clear()
                watching.close()

    async def _catch_up(self) -> None:
        """Take on what others have submitted, and see how everything stands."""
        queues = await self._client.queues()
        unfinished = [state for state in RunState if state not in RUN_TERMINAL]
        views = await self._client.runs(name=BUILD, states=unfinished, limit=1_000_000, history=False)
        intents = self._decide(ev.Caught(tuple(_builds(views)), tuple(queues)))
        for first in range(0, len(intents), READ_AT_ONCE):
            await asyncio.gather(*map(self._carry_out, intents[first : first + READ_AT_ONCE]))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._handle(ev.Ticked())

    def _spawn(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say(f"{type(error).__name__}: {error}")


class _Away:
    """A coordinator that does not answer: told once, and not at all if it is back soon."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since: Millis | None = None
        self._is_told = False

    def again(self, trouble: Unavailable, now: Millis) -> None:
        """In vain."""
        self._since = now if self._since is None else self._since
        if not self._is_told and now - self._since >= AWAY_MS:
            self._is_told = True
            self._say(f"no coordinator: {trouble}")

    def is_back(self) -> None:
        """It answers."""
        self._since, self._is_told = None, False


def _ring(bell: "asyncio.Future[bool]", is_new: bool) -> None:
    if not bell.done():
        bell.set_result(is_new)


def _builds(views: list[RunView]) -> Iterator[tuple[RunView, BuildWork]]:
    """Those that are runs of actions."""
    for view in views:
        if view.kind == BUILD:
            try:
                yield view, decode_work(view.params)
            except msgspec.MsgspecError:
                continue
