"""The client for async programs: submit, wait, watch, read, cancel, ask why."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any

from msgspec import structs

from rota.client.given import GraphLike, built, declared_of, new_id, states_of
from rota.client.happenings import Happening, Names, moves_of
from rota.client.items import Items
from rota.client.line import Line
from rota.client.logs import stream_log, wall_clock
from rota.client.run_log import TaskLine, follow_run_log, read_run_log
from rota.client.steering import Steering
from rota.client.watching import Interrupted
from rota.core.commands import SubmitRun
from rota.core.errors import Refused, Unavailable, headline
from rota.core.graph import LiveGraph, graph_digest
from rota.core.history import Ended, GetEnded, GetStories
from rota.core.ids import BlobRef, CommandId, RunId, TaskId
from rota.core.model import Graph, TaskSpec
from rota.core.questions import (
    ExplainTask,
    GetRun,
    ListTasks,
    RunView,
    TasksPage,
    TaskView,
    view_task,
)
from rota.core.reasons import Reason
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL, SUCCESS, TERMINAL, RunState, TaskState
from rota.core.story import describe, is_told, show_line, story
from rota.wire.given import packed, priority_class
from rota.wire.instants import When, instant
from rota.wire.requests import AwaitRun, LogPiece, ReadBlob, ReadLog
from rota.wire.scripts import lend_main
from rota.wire.values import PICKLE, Unreadable, unpack
from rota.wire.work import StoredValue, decode_value

SHOWN_MAX = 5


class RunFailed(Exception):
    """A run did not end well; `run` is how it stood."""

    def __init__(self, run: RunView) -> None:
        self.run = run
        super().__init__(f"run {run.id} of {run.name} ended as {run.state}: {run.reason or 'no reason was given'}")


class Client(Items):
    """Talks to one coordinator as one tenant.

    `trust`: pickled results are opened, which runs code that their authors chose.
    """

    def __init__(self, line: Line, patience_s: float | None = None, *, trust: bool = False) -> None:
        super().__init__(line, patience_s)
        self.trust = trust

    async def submit(
        self,
        graph: Graph | GraphLike | TaskSpec,
        params: dict[str, Any] | None = None,
        *,
        run: str = "",
        priority: str = "normal",
        command_id: str = "",
        merge: str = "",
        labels: dict[str, str] | None = None,
        share: str = "",
        parent: str = "",
        is_new: bool = False,
    ) -> "Run":
        """Make a run. It is durable when this returns; sending the same `command_id` again makes no second one.

        While a run with the same `merge` has not ended, it is joined instead. Runs with the same `share` take their
        turns as if they were one. While its `parent` is paused, nobody is given work of a run. A graph that `is_new` is
        sent at once, without asking whether it is known.
        """
        whole, given = built(graph, params or {})
        declared, zone = declared_of(graph)
        name = run or new_id(whole.name, command_id)
        command = SubmitRun(
            tenant=self.line.tenant,
            command_id=CommandId(command_id or f"submit-{name}-{secrets.token_hex(4)}"),
            run=RunId(name),
            is_fresh=not run and not command_id,
            digest=graph_digest(whole),
            priority=priority_class(priority),
            params=packed(given),
            declared=declared,
            zone=zone,
            merge=merge,
            labels=tuple((labels or {}).items()),
            share=share,
            parent=RunId(parent),
        )
        made = None if is_new else await self._submit_known(command)
        if made is None:
            made = await self.ask(structs.replace(command, graph=whole))
        return Run(self, made, joined=made != name)

    async def _submit_known(self, command: SubmitRun) -> str | None:
        """A graph that the coordinator knows already need not travel again; None if it does not."""
        try:
            return await self.ask(command)
        except Refused as refused:
            if refused.code != "graph.unknown":
                raise
            return None

    async def trigger(
        self,
        name: str,
        params: dict[str, Any] | None = None,
        *,
        logical_date: When | None = None,
        version: int = 0,
        run: str = "",
        priority: str = "normal",
        command_id: str = "",
    ) -> "Run":
        """Make a run of a deployed workflow. Its calendar does not mind.

        `logical_date` is what the run is about, in the workflow's time zone unless it says otherwise. `version` is
        the present one unless told otherwise.
        """
        about = None if logical_date is None else instant(logical_date, await self.zone_of(name), "logical_date")
        if any(isinstance(value, str | datetime) for value in (params or {}).values()):
            await self.check_instants(name, params or {}, version)
        id = run or new_id(name, command_id)
        command = SubmitRun(
            tenant=self.line.tenant,
            command_id=CommandId(command_id or f"submit-{id}-{secrets.token_hex(4)}"),
            run=RunId(id),
            is_fresh=not run and not command_id,
            workflow=name,
            version=version,
            logical_at=about or 0,
            priority=priority_class(priority),
            params=packed(params or {}),
        )
        return Run(self, await self.ask(command))

    def run(self, id: str) -> "Run":
        """A run by its id, live or ended."""
        return Run(self, id)

    async def names(self, view: RunView, parts: Iterable[Story]) -> Names:
        """What the tasks of a run are called in these parts of its story."""
        told = list(parts)
        digests = moves_of(told)
        if not digests:
            return Names(await self._graph_if_there(view.graph))
        graphs = {digest: await self._graph_if_there(digest) for digest in dict.fromkeys(digests)}
        # What the run was of before it was moved is told at its beginning.
        return Names(graphs[digests[0]] if not told[0].number else None, graphs)

    async def learn_moves(self, names: Names, parts: Iterable[Story]) -> None:
        """Have the names of what a run is moved to in these parts of its story."""
        for digest in moves_of(parts):
            names.know(digest, await self._graph_if_there(digest))

    async def _graph_if_there(self, digest: str) -> LiveGraph | None:
        """A definition; None if it is gone, as may be one that a run was of before it was moved."""
        try:
            return await self.graph(digest)
        except Refused as refused:
            if refused.code != "graph.unknown":
                raise
            return None

    async def fetch(self, ref: BlobRef) -> bytes:
        """A large value, whole and checked."""
        content = bytearray()
        while len(content) < ref.size:
            piece: bytes = await self.ask(ReadBlob(tenant=self.line.tenant, ref=ref, offset=len(content)))
            if not piece:
                break
            content += piece
        if sha256(content).hexdigest() != ref.sha256:
            raise Refused("blob.lost", f"{ref.name} is not what was stored", path="ref")
        return bytes(content)


class Run(Steering):
    """One run, live or ended. `joined`: somebody else's, which a submission with the same key was answered with."""

    def __init__(self, client: Client, id: str, *, joined: bool = False) -> None:
        super().__init__(client, id)
        self.client = client
        self.joined = joined

    @property
    def _line(self) -> Line:
        return self.client.line

    async def status(self) -> RunView:
        """How the run stands."""
        try:
            return await self.client.ask(GetRun(tenant=self._line.tenant, run=RunId(self.id)))
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
        return await self.client.view_ended(await self._ended())

    async def wait(self, timeout_s: float | None = None, *, abandon_ms: int = 0) -> RunView:
        """Wait until the run has ended. Raises TimeoutError; the run goes on then.

        With `abandon_ms` it is cancelled when nobody has waited for it for so long, as when this program is killed.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await self._line.ask(AwaitRun(tenant=self._line.tenant, run=self.id, abandon_ms=abandon_ms))
                except Refused as refused:
                    if refused.code != "run.unknown":
                        raise
                    return await self.status()
                except Unavailable as unavailable:
                    if unavailable.code == "service.busy":
                        # Whoever has no room for a wait answers everything else.
                        await asyncio.sleep(unavailable.retry_after_ms / 1000)
                    # Patiently; raises if nobody answers for too long.
                    await self.status()

    async def result(self, task: str = "", timeout_s: float | None = None) -> Any:
        """Wait for the run, and give what a task returned: the one named, or the last one if there is only one.

        Of a mapped task it is the list of what its tasks returned. Raises RunFailed if the run did not succeed and no
        task was named.
        """
        view = await self.wait(timeout_s)
        if not task:
            if view.state is not RunState.SUCCESS:
                raise RunFailed(view)
            task = await self._only_last(view)
        found = await self.tasks(task)
        values = [await self.open(each) for each in found]
        return values[0] if found[0].id == task else values

    async def _only_last(self, view: RunView) -> str:
        graph = await self.client.graph(view.graph)
        last = [spec.id for spec, is_last in zip(graph.specs, graph.leaf, strict=True) if is_last]
        if len(last) > 1:
            names = ", ".join(last[:SHOWN_MAX]) + (" and more" if len(last) > SHOWN_MAX else "")
            text = f"run {self.id!r} has {len(last)} last tasks: {names}"
            raise Refused("field.value", text, "Name the one whose result you want.", path="task")
        return last[0]

    async def open(self, task: TaskView) -> Any:
        """What a task returned. A pickled value is opened only by a client that trusts its coordinator."""
        if task.state is not SUCCESS:
            why = f": {headline(task.error)}" if task.error else ""
            raise Refused("task.no_result", f"task {task.id!r} is {task.state}, it has no result{why}", path="task")
        if task.result is None:
            return None
        value = decode_value(task.result)
        if value.encoding == PICKLE and not self.client.trust:
            # Before it is fetched, which may take a while.
            raise _untrusted(task)
        lend_main()
        content = await self.client.fetch(value.ref) if isinstance(value, StoredValue) else value.content
        try:
            return unpack(value.encoding, content, trusted=self.client.trust)
        except Unreadable as error:
            hint = "Install what it takes: `pip install pyarrow` for Arrow tables, else a newer Rota."
            raise Refused("result.unreadable", f"the result of task {task.id!r}: {error}", hint, path="task") from error

    async def tasks(self, *names: str, states: Iterable[str] = ()) -> list[TaskView]:
        """The run's tasks, or some of them."""
        wanted = states_of(TaskState, states, "task")
        try:
            return [each async for each in self._live_tasks(names, wanted)]
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
        ended = await self._ended()
        graph = await self.client.graph_of(ended)
        views = [view_task(task, graph) for task in ended.tasks]
        for name in names:
            if name not in graph.index and all(view.id != name for view in views):
                raise Refused("task.unknown", f"run {self.id!r} has no task {name!r}", path="task")
        return [
            view
            for view in views
            if (not names or view.id in names or graph.spec(view.idx).id in names)
            and (not wanted or view.state in wanted)
        ]

    async def task(self, name: str) -> TaskView:
        """One task. The name of a mapped task, which is several, is refused."""
        found = await self.tasks(name)
        if len(found) != 1 or found[0].id != name:
            hint = f"Name one of them, such as {found[0].id}." if found else ""
            raise Refused("task.unknown", f"{name!r} is mapped, and has {len(found)} tasks", hint, path="task")
        return found[0]

    async def tasks_page(self, *, states: Iterable[str] = (), first: int = 0, limit: int = 1_000) -> TasksPage:
        """Some of the run's tasks by number, from `first` on."""
        wanted = states_of(TaskState, states, "task")
        question = ListTasks(tenant=self._line.tenant, run=RunId(self.id), states=wanted, first=first, limit=limit)
        try:
            return await self.client.ask(question)
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
        left = [view for view in await self.tasks(states=wanted) if view.idx >= first]
        return TasksPage(tuple(left[:limit]), left[limit].idx if len(left) > limit else -1)

    async def _live_tasks(self, names: tuple[str, ...], states: tuple[TaskState, ...]) -> AsyncIterator[TaskView]:
        first = 0
        while first >= 0:
            question = ListTasks(
                tenant=self._line.tenant,
                run=RunId(self.id),
                names=tuple(map(TaskId, names)),
                states=states,
                first=first,
            )
            page: TasksPage = await self.client.ask(question)
            for view in page.tasks:
                yield view
            first = page.next

    async def events(self) -> AsyncIterator[Happening]:
        """What happened and what happens, until the run has ended."""
        async for _, happened in self.told():
            for happening in happened:
                yield happening

    async def told(self, seen: int = -1) -> AsyncIterator[tuple[Story, list[Happening]]]:
        """The same commit by commit, after the one whose number was `seen`."""
        names = Names(None)
        read, created_at = -1, 0
        while True:
            watching = self._line.watch(self.id)
            try:
                view = await self.status()
                if read < 0:
                    created_at = view.created_at
                elif view.created_at != created_at:
                    # Ours has ended long ago, and its id was used again.
                    return
                stories = deque(await self._stories(view, read + 1))
                if read < 0:
                    names = await self.client.names(view, stories)
                has_ended = view.state in RUN_TERMINAL
                while stories or not has_ended:
                    if not stories:
                        stories.append(await anext(watching))
                    part = stories.popleft()
                    if part.number <= read or part.created_at != created_at:
                        continue
                    read = part.number
                    await self.client.learn_moves(names, (part,))
                    happened = list(names.read(part))
                    for happening in happened:
                        if happening.task is None and happening.state:
                            has_ended = happening.state in RUN_TERMINAL
                    if read > seen:
                        yield part, happened
                return
            except Interrupted:
                continue
            finally:
                watching.close()

    async def why(self, task: str) -> tuple[Reason, ...]:
        """Why a task waits; empty if it has ended."""
        try:
            return await self.client.ask(ExplainTask(tenant=self._line.tenant, run=RunId(self.id), task=TaskId(task)))
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
        await self.tasks(task)
        return ()

    async def story(self, task: str = "") -> list[str]:
        """What happened, told in lines."""
        view, parts, names = await self._account(task)
        lines: list[str] = []
        for at, change in story(parts):
            names.heard(change)
            if is_told(change) and (not task or names.is_about(change, task)):
                lines.append(show_line(at - view.created_at, describe(change, names.name)))
        return lines

    async def happened(self, task: str = "") -> list[Happening]:
        """The same as data: what happened so far to the run, or to one of its tasks."""
        _, parts, names = await self._account(task)
        return [each for part in parts for each in names.read(part) if not task or each.task == task]

    async def _account(self, task: str) -> tuple[RunView, list[Story], Names]:
        view = await self.status()
        if task:
            await self.task(task)
        parts = await self._stories(view, 0)
        return view, parts, await self.client.names(view, parts)

    async def logs(
        self, task: str, attempt: int = 0, *, follow: bool = False, tail_bytes: int = 0
    ) -> AsyncIterator[bytes]:
        """What an attempt printed; the newest attempt unless told otherwise.

        `follow` goes on until the attempt has ended, and waits for one that has not begun. `tail_bytes` begins so
        much before the end of what there is.
        """
        await self.check_attempt(task, attempt, follow=follow)

        async def look() -> TaskView | None:
            try:
                page: TasksPage = await self.client.ask(
                    ListTasks(tenant=self._line.tenant, run=RunId(self.id), names=(TaskId(task),))
                )
            except Refused:
                # Its run is in history.
                return None
            return page.tasks[0] if page.tasks else None

        log = ReadLog(tenant=self._line.tenant, run=self.id, task=task, attempt=attempt, tail_bytes=tail_bytes)
        async for piece in stream_log(self.client.ask, log, look, wall_clock, follow=follow):
            yield piece

    def log_lines(self, *, follow: bool = False) -> AsyncIterator[TaskLine]:
        """What all attempts of all tasks printed, line by line, task by task in the order in which they started.

        `follow` goes on until the run has ended, with lines as they come.
        """
        return follow_run_log(self) if follow else read_run_log(self)

    async def check_attempt(self, task: str, attempt: int, *, follow: bool = False) -> None:
        """Refuse an attempt that there was not; with `follow` one that may still come is waited for."""
        view = await self.task(task)
        if attempt <= view.attempt or (follow and view.state not in TERMINAL):
            return
        # One that was handed back was not counted, and has printed all the same.
        log = ReadLog(tenant=self._line.tenant, run=self.id, task=task, attempt=attempt, tail_bytes=1)
        piece: LogPiece = await self.client.ask(log)
        if not piece.content:
            count = f"{view.attempt} attempt{'s' if view.attempt != 1 else ''}" if view.attempt else "no attempt"
            text = f"task {task!r} of run {self.id!r} has had {count}, and none has the number {attempt}"
            raise Refused("attempt.unknown", text, "Leave the number out for the newest.", path="attempt")

    async def _stories(self, view: RunView, first: int) -> list[Story]:
        question = GetStories(tenant=view.tenant, run=view.id, created_at=view.created_at, first=first)
        return await self.client.ask(question)

    async def _ended(self) -> Ended:
        ended: Ended | None = await self.client.ask(GetEnded(tenant=self._line.tenant, run=RunId(self.id)))
        if ended is None:
            raise Refused("run.unknown", f"no run {self.id!r}, neither live nor in history", path="run")
        return ended


def _untrusted(task: TaskView) -> Refused:
    text = f"the result of task {task.id!r} is pickled, and opening it would run code that its author chose"
    hint = (
        "Connect with trust=True if you trust this coordinator and everybody who may run tasks there. Or have the task "
        "return numbers, text, bytes, lists, dictionaries or an Arrow table."
    )
    return Refused("result.untrusted", text, hint, path="task")
