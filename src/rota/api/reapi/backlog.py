"""The actions of one caller that are under way: submitted, watched to their ends, given up when nobody asks for them.

What counts is with the coordinator. This is the memory of a front end, which may end at any moment: each run is found
again by its id, and how it stands is read anew whenever something may have been missed.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec import structs

from rota.api.reapi.ongoing import Conclusion, Ongoing, Operation
from rota.client.line import FarLine
from rota.client.operating import PATIENCE_S
from rota.client.runs import Client
from rota.client.watching import Interrupted
from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Digest, Millis
from rota.core.model import Queue
from rota.core.questions import RunView
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL, RunState
from rota.core.story import read_story
from rota.kinds.build.naming import OperationName, new_name, new_run
from rota.kinds.build.scheduling import Asked, submission
from rota.wire.builds import BUILD, BuildWork, decode_work

# How long an action goes on that nobody asks for, where its queue does not say so.
GRACE_MS = 60_000
# How often it is looked who has been given up.
LOOK_EVERY_S = 1.0
# How soon a coordinator that is away is looked for again.
AGAIN_S = 0.2
# And one that does not let this caller in.
REFUSED_S = 10.0
# How many runs are read at once by who has missed something.
READ_AT_ONCE = 100

# What is said by a front end that ends a run, so that those who wait at another one can tell it from a person's cancel.
NOT_WANTED = "its client has cancelled it"
NOT_ASKED_FOR = "no client has asked for it"

# Given the end of a tenant's run before its clients are: the action cache is written.
Keep = Callable[[str, Ongoing, Conclusion], Awaitable[None]]
# How long before a run was made its inputs were looked through, at most. Of another process's run it is not known.
WALKED_MS = 5 * 60_000


class House(Protocol):
    """What a backlog has to know of the front end that it is in."""

    def changed(self, at: Millis) -> None:
        """An action that was accepted then is under way, or is no more."""
        ...

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

    def __init__(
        self,
        line: FarLine,
        clock: Callable[[], Millis],
        keep: Keep,
        say: Callable[[str], None],
        house: House,
    ) -> None:
        """`say` hears of what an operator should know."""
        self._client = Client(line)
        self._line = line
        self._clock = clock
        self._keep = keep
        self._say = say
        self._house = house
        self._runs: dict[str, Ongoing] = {}
        # Those whose end is not in the cache yet, by instance and action.
        self._shared: dict[tuple[str, Digest], Ongoing] = {}
        # By the ids under which they were known before they had to be submitted again.
        self._successors: dict[str, str] = {}
        self._queues: dict[str, Queue] = {}
        self._watched = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._runs

    @property
    def oldest_at(self) -> Millis | None:
        """When the oldest action under way was accepted."""
        return next((each.accepted_at for each in self._runs.values() if not each.is_over), None)

    def start(self) -> None:
        """Begin to watch."""
        self._spawn(self._watch())
        self._spawn(self._look_after())

    async def close(self) -> None:
        """Watch no more. The runs go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._line.close()

    def is_wanted(self, run: str) -> bool:
        """Whether a caller waits for this run here."""
        ongoing = self._runs.get(run)
        return ongoing is not None and self._is_wanted_here(ongoing)

    async def ready(self) -> None:
        """Wait until everything is known that is under way. Raises Unavailable."""
        await self._until_watched()

    async def submit(self, asked: Asked) -> tuple[Ongoing, Operation]:
        """Have an action carried out, or join those who asked for it before. Raises Refused or Unavailable."""
        # What happens to it must not be missed.
        await self._until_watched()
        ongoing = await self._submit(asked)
        return ongoing, self.join(ongoing)

    def same(self, instance: str, action: Digest) -> Ongoing | None:
        """The run of an action under way that others may share, also one whose end has not been told yet.

        Whoever looks here first and then into the cache finds it in one of the two.
        """
        found = self._shared.get((instance, action))
        # One that is still on its way to the coordinator may be refused there.
        return found if found is not None and found.is_submitted else None

    def join(self, ongoing: Ongoing) -> Operation:
        """One more client waits for a run."""
        return ongoing.operation(new_name(ongoing.work.instance, ongoing.run))

    async def find(self, name: OperationName) -> tuple[Ongoing, Operation] | None:
        """An operation by its name, whoever began it; None if there is no such run."""
        await self._until_watched()
        run = name.run
        while run in self._successors:
            run = self._successors[run]
        ongoing = self._runs.get(run) or await self._adopt(run)
        if ongoing is None or ongoing.work.instance != name.instance:
            return None
        await ongoing.settled()
        operation = ongoing.operation(name)
        ongoing.asked_at = operation.asked_at = self._clock()
        return ongoing, operation

    async def cancel(self, ongoing: Ongoing, operation: Operation) -> None:
        """A client wants it no more. The run ends unless others wait for it."""
        operation.is_cancelled = True
        ongoing.tell()
        if not ongoing.is_over and not self._house.is_wanted(self._line.tenant, ongoing.run):
            await self._end(ongoing, NOT_WANTED)

    def attach(self, operation: Operation) -> None:
        """A client begins to listen."""
        operation.streams += 1

    def detach(self, ongoing: Ongoing, operation: Operation) -> None:
        """A client listens no more, which is no cancel."""
        operation.streams -= 1
        ongoing.asked_at = operation.asked_at = self._clock()
        self._forget(ongoing)

    def under_way(self) -> list[Ongoing]:
        """Everything that is known here, the oldest first."""
        return list(self._runs.values())

    async def _submit(self, asked: Asked) -> Ongoing:
        run = new_run(asked.work.action)
        ongoing = self._add(Ongoing(run, asked.work, self._clock(), asked))
        # Until then nobody who does not find it may conclude anything from that.
        ongoing.is_submitted = False
        try:
            taken = await self._send(asked, run)
        except (Refused, Unavailable):
            # If it was made all the same, it is found again when somebody catches up.
            self._remove(ongoing)
            raise
        finally:
            # Also if its client has gone: then it is looked after like any other that nobody asks for.
            ongoing.is_submitted = True
        if taken == run:
            return ongoing
        self._remove(ongoing)
        joined = self._runs.get(taken)
        if joined is None:
            joined = self._add(Ongoing(taken, asked.work, self._clock(), asked))
            await self._read(joined)
        return joined

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
            work = decode_work(view.params)
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            return None
        except msgspec.MsgspecError:
            return None
        if view.kind != BUILD:
            return None
        ongoing = self._runs.get(run)
        if ongoing is None:
            ongoing = self._add(self._adopted(view, work))
            # Its result was kept then, or has been replaced since.
            ongoing.is_past = view.state in RUN_TERMINAL
            try:
                await self._read(ongoing)
            except BaseException:
                self._remove(ongoing)
                raise
        return ongoing

    def _adopted(self, view: RunView, work: BuildWork) -> Ongoing:
        """A run that another process has submitted. Its inputs were used before it was made."""
        ongoing = Ongoing(view.id, work, self._clock())
        ongoing.accepted_at = max(1, view.created_at - WALKED_MS)
        return ongoing

    async def _read(self, ongoing: Ongoing) -> None:
        """See how a run stands."""
        run = self._client.run(ongoing.run)
        try:
            view, tasks = await run.status(), await run.tasks()
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            self._conclude(ongoing, Conclusion(RunState.FAILED, error="nothing is known of it any more"))
            return
        ongoing.read(view, tasks[0] if tasks else None, lambda end: self._conclude(ongoing, end))
        await self._unpark(ongoing)

    async def _end(self, ongoing: Ongoing, reason: str) -> None:
        command_id = f"cancel-{ongoing.run}-{secrets.token_hex(4)}"
        command = CancelRun(tenant=self._line.tenant, command_id=command_id, run=ongoing.run, reason=reason)
        try:
            await self._client.ask(command)
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            # It has ended long ago.
            await self._read(ongoing)

    async def _unpark(self, ongoing: Ongoing) -> None:
        """Nobody looks after a parked action: it is ended, and its client told why."""
        if ongoing.parked and not ongoing.is_over:
            await self._end(ongoing, f"parked: {ongoing.parked}")

    def _conclude(self, ongoing: Ongoing, end: Conclusion) -> None:
        if not ongoing.is_over:
            ongoing.is_over = True
            self._spawn(self._finish(ongoing, end))

    async def _finish(self, ongoing: Ongoing, end: Conclusion) -> None:
        is_for_another = end.state is RunState.CANCELLED and end.reason.startswith((NOT_WANTED, NOT_ASKED_FOR))
        if is_for_another and ongoing.asked is not None and self._is_wanted_here(ongoing):
            try:
                # Those who wait here did not ask for it. What a person has cancelled stays so.
                await self._succeed(ongoing, ongoing.asked)
                return
            except (Refused, Unavailable) as trouble:
                end = Conclusion(RunState.FAILED, error=f"{trouble}")
        try:
            if not ongoing.is_past:
                await self._keep(self._line.tenant, ongoing, end)
        except Exception as error:
            # A result that others will not find is no reason to keep it from those who wait for it.
            self._say(f"the result of {ongoing.run} was not kept: {type(error).__name__}: {error}")
        # From now on it is in the cache, or nobody wants it.
        self._unshare(ongoing)
        ongoing.end(end)
        self._forget(ongoing)
        self._house.changed(ongoing.accepted_at)

    async def _succeed(self, ongoing: Ongoing, asked: Asked) -> None:
        """Have an action carried out by another run, for the same clients."""
        following = await self._submit(asked)
        self._successors[ongoing.run] = following.run
        self._runs.pop(ongoing.run, None)
        self._unshare(ongoing)
        for number, operation in ongoing.operations.items():
            following.operations[number] = operation
        ongoing.successor = following
        ongoing.tell()

    async def _until_watched(self) -> None:
        if self._watched.is_set():
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._watched.wait()
        except TimeoutError:
            raise Unavailable("leader.none", "no coordinator answers.") from None

    async def _watch(self) -> None:
        """Hear of everything, for ever; what was missed is read."""
        while True:
            try:
                connection = await self._line.connect()
                watching = connection.watch("")
            except Unavailable as away:
                self._say(f"no coordinator: {away}")
                await asyncio.sleep(AGAIN_S)
                continue
            except Refused as refused:
                # A token that was revoked, say: whoever comes with it is not let in here either, and nothing will be
                # heard of what was begun with it.
                self._say(f"the coordinator refuses: {refused}")
                for ongoing in self.under_way():
                    ongoing.is_over = True
                    ongoing.end(Conclusion(RunState.FAILED, error=f"{refused}"))
                    self._remove(ongoing)
                await asyncio.sleep(REFUSED_S)
                continue
            try:
                await self._catch_up()
                self._watched.set()
                async for story in watching:
                    self._hear(story)
            except Interrupted:
                pass
            except (Refused, Unavailable) as away:
                self._say(f"the watch broke off: {away}")
                await asyncio.sleep(AGAIN_S)
            finally:
                self._watched.clear()
                watching.close()

    async def _catch_up(self) -> None:
        """Take on what others have submitted, and see how everything stands."""
        self._queues = {queue.name: queue for queue in await self._client.queues()}
        unfinished = [state for state in RunState if state not in RUN_TERMINAL]
        for view in await self._client.runs(name=BUILD, states=unfinished, limit=1_000_000, history=False):
            if view.kind == BUILD and view.id not in self._runs:
                try:
                    work = decode_work(view.params)
                except msgspec.MsgspecError:
                    continue
                # Another front end looks after its own.
                if work.content == self._house.where():
                    self._add(self._adopted(view, work))
        left = [ongoing for ongoing in self.under_way() if ongoing.is_submitted and not ongoing.is_over]
        for first in range(0, len(left), READ_AT_ONCE):
            await asyncio.gather(*map(self._read, left[first : first + READ_AT_ONCE]))

    def _hear(self, story: Story) -> None:
        ongoing = self._runs.get(story.run)
        if ongoing is None or ongoing.is_over:
            return
        for change in read_story(story):
            ongoing.hear(change, lambda end, about=ongoing: self._conclude(about, end))
        if ongoing.parked:
            self._spawn(self._unpark(ongoing))

    async def _look_after(self) -> None:
        """Give up what nobody asks for."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = self._clock()
            for ongoing in self.under_way():
                if ongoing.is_over or ongoing.is_listened_to or not ongoing.is_submitted:
                    continue
                grace_ms = self._grace_ms(ongoing)
                is_late = now - ongoing.asked_at > grace_ms
                if is_late and not self._house.is_wanted(self._line.tenant, ongoing.run):
                    ongoing.asked_at = now
                    self._spawn(self._give_up(ongoing, grace_ms))

    def _grace_ms(self, ongoing: Ongoing) -> Millis:
        """How long it goes on though nobody asks for it."""
        queue = self._queues.get(self._house.queue_of(ongoing.work.instance))
        return GRACE_MS if queue is None else queue.client_action_timeout_ms

    def _is_wanted_here(self, ongoing: Ongoing) -> bool:
        """Whether a client listens, or asked not long ago, and has not cancelled."""
        since = self._clock() - self._grace_ms(ongoing)
        return any(
            not each.is_cancelled and (each.streams or each.asked_at > since) for each in ongoing.operations.values()
        )

    async def _give_up(self, ongoing: Ongoing, grace_ms: Millis) -> None:
        try:
            await self._end(ongoing, f"{NOT_ASKED_FOR} for {grace_ms // 1_000} s")
        except (Refused, Unavailable) as trouble:
            # Looked at again when it was quiet for as long.
            self._say(f"{ongoing.run} could not be cancelled: {trouble}")

    def _add(self, ongoing: Ongoing) -> Ongoing:
        self._runs[ongoing.run] = ongoing
        if ongoing.asked is not None and ongoing.asked.is_shared:
            self._shared.setdefault((ongoing.work.instance, ongoing.work.action), ongoing)
        self._house.changed(ongoing.accepted_at)
        return ongoing

    def _remove(self, ongoing: Ongoing) -> None:
        self._runs.pop(ongoing.run, None)
        self._unshare(ongoing)
        for before, after in list(self._successors.items()):
            if after == ongoing.run:
                del self._successors[before]
        self._house.changed(ongoing.accepted_at)

    def _unshare(self, ongoing: Ongoing) -> None:
        key = (ongoing.work.instance, ongoing.work.action)
        if self._shared.get(key) is ongoing:
            del self._shared[key]

    def _forget(self, ongoing: Ongoing) -> None:
        """What is over is with the coordinator; it is kept here only while somebody has to be told."""
        if ongoing.conclusion is not None and not ongoing.is_listened_to:
            self._remove(ongoing)

    def _spawn(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say(f"{type(error).__name__}: {error}")
