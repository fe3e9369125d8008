"""The actions of one caller that are under way: submitted, watched to their ends, given up when nobody asks for them.

What counts is with the coordinator. This is the memory of a front end, which may end at any moment: each run is found
again by its id, and how it stands is read anew whenever something may have been missed.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import structs

from rota.api.reapi.ongoing import Conclusion, Ongoing, Operation
from rota.client.line import FarLine
from rota.client.operating import PATIENCE_S
from rota.client.runs import Client
from rota.client.watching import Interrupted
from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.core.model import Queue
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL, RunState
from rota.core.story import read_story
from rota.kinds.build.naming import OperationName, new_name, new_run
from rota.kinds.build.scheduling import Asked, submission
from rota.wire.builds import BUILD, decode_work

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


class Backlog:
    """The runs of one caller."""

    def __init__(
        self,
        line: FarLine,
        clock: Callable[[], Millis],
        keep: Keep,
        say: Callable[[str], None],
        *,
        changed: Callable[[], None],
    ) -> None:
        """`changed` hears that other runs are under way than before, `say` of what an operator should know."""
        self._client = Client(line)
        self._line = line
        self._clock = clock
        self._keep = keep
        self._say = say
        self._changed = changed
        self._runs: dict[str, Ongoing] = {}
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

    async def submit(self, asked: Asked) -> tuple[Ongoing, Operation]:
        """Have an action carried out, or join those who asked for it before. Raises Refused or Unavailable."""
        # What happens to it must not be missed.
        await self._until_watched()
        ongoing = await self._submit(asked)
        name = new_name(asked.work.instance, ongoing.run)
        return ongoing, ongoing.operation(name)

    async def find(self, name: OperationName) -> tuple[Ongoing, Operation] | None:
        """An operation by its name, whoever began it; None if there is no such run."""
        await self._until_watched()
        run = name.run
        while run in self._successors:
            run = self._successors[run]
        ongoing = self._runs.get(run) or await self._adopt(run)
        if ongoing is None or ongoing.work.instance != name.instance:
            return None
        ongoing.asked_at = self._clock()
        await ongoing.settled()
        return ongoing, ongoing.operation(name)

    async def cancel(self, ongoing: Ongoing, operation: Operation) -> None:
        """A client wants it no more. The run ends unless others wait for it."""
        operation.is_cancelled = True
        ongoing.tell()
        if not ongoing.is_waited_for and not ongoing.is_over:
            await self._end(ongoing, NOT_WANTED)

    def attach(self, operation: Operation) -> None:
        """A client begins to listen."""
        operation.streams += 1

    def detach(self, ongoing: Ongoing, operation: Operation) -> None:
        """A client listens no more, which is no cancel."""
        operation.streams -= 1
        ongoing.asked_at = self._clock()
        self._forget(ongoing)

    def under_way(self) -> list[Ongoing]:
        """Everything that is known here, the oldest first."""
        return list(self._runs.values())

    async def _submit(self, asked: Asked) -> Ongoing:
        run = new_run(asked.work.action)
        ongoing = self._add(Ongoing(run, asked.work, self._clock(), asked))
        try:
            taken = await self._send(asked, run)
        except (Refused, Unavailable):
            # If it was made all the same, it is found again when somebody catches up.
            self._remove(ongoing)
            raise
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
            ongoing = self._add(Ongoing(run, work, self._clock()))
            await self._read(ongoing)
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
        """Nobody looks after a parked action; its client is told instead."""
        if ongoing.parked and not ongoing.is_over:
            self._conclude(ongoing, Conclusion(RunState.FAILED, error=ongoing.parked))
            await self._end(ongoing, f"parked: {ongoing.parked}")

    def _conclude(self, ongoing: Ongoing, end: Conclusion) -> None:
        if not ongoing.is_over:
            ongoing.is_over = True
            self._spawn(self._finish(ongoing, end))

    async def _finish(self, ongoing: Ongoing, end: Conclusion) -> None:
        is_for_another = end.state is RunState.CANCELLED and end.reason.startswith((NOT_WANTED, NOT_ASKED_FOR))
        if is_for_another and ongoing.is_waited_for and ongoing.asked is not None:
            try:
                # Those who wait here did not ask for it. What a person has cancelled stays so.
                await self._succeed(ongoing, ongoing.asked)
                return
            except (Refused, Unavailable) as trouble:
                end = Conclusion(RunState.FAILED, error=f"{trouble}")
        try:
            await self._keep(self._line.tenant, ongoing, end)
        except Exception as error:
            # A result that others will not find is no reason to keep it from those who wait for it.
            self._say(f"the result of {ongoing.run} was not kept: {type(error).__name__}: {error}")
        ongoing.end(end)
        self._forget(ongoing)
        self._changed()

    async def _succeed(self, ongoing: Ongoing, asked: Asked) -> None:
        """Have an action carried out by another run, for the same clients."""
        following = await self._submit(asked)
        self._successors[ongoing.run] = following.run
        self._runs.pop(ongoing.run, None)
        for number, operation in ongoing.operations.items():
            following.operations[number] = operation
        ongoing.successor = following
        ongoing.tell()

    async def _until_watched(self) -> None:
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
                # A token that was revoked, say: whoever comes with it is not let in here either.
                self._say(f"the coordinator refuses: {refused}")
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
        for view in await self._client.runs(name=BUILD, limit=1_000_000, history=False):
            if view.kind == BUILD and view.state not in RUN_TERMINAL and view.id not in self._runs:
                try:
                    self._add(Ongoing(view.id, decode_work(view.params), self._clock()))
                except msgspec.MsgspecError:
                    continue
        left = [ongoing for ongoing in self.under_way() if not ongoing.is_over]
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
                is_quiet = not (ongoing.is_over or ongoing.is_listened_to)
                grace_ms = self._grace_ms(ongoing)
                if is_quiet and now - ongoing.asked_at > grace_ms:
                    ongoing.asked_at = now
                    self._spawn(self._give_up(ongoing, grace_ms))

    def _grace_ms(self, ongoing: Ongoing) -> Millis:
        """How long it goes on though nobody asks for it; of another process's run it is not known where it waits."""
        queue = self._queues.get(ongoing.asked.queue) if ongoing.asked is not None else None
        return GRACE_MS if queue is None else queue.client_action_timeout_ms

    async def _give_up(self, ongoing: Ongoing, grace_ms: Millis) -> None:
        try:
            await self._end(ongoing, f"{NOT_ASKED_FOR} for {grace_ms // 1_000} s")
        except (Refused, Unavailable) as trouble:
            # Looked at again when it was quiet for as long.
            self._say(f"{ongoing.run} could not be cancelled: {trouble}")

    def _add(self, ongoing: Ongoing) -> Ongoing:
        self._runs[ongoing.run] = ongoing
        self._changed()
        return ongoing

    def _remove(self, ongoing: Ongoing) -> None:
        self._runs.pop(ongoing.run, None)
        for before, after in list(self._successors.items()):
            if after == ongoing.run:
                del self._successors[before]
        self._changed()

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
