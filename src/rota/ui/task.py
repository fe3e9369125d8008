"""The page of a task: why it waits, how it went, what it printed, and its story."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from rota.client.runs import Run
from rota.core.errors import Refused, Unavailable
from rota.core.questions import RunView, TaskView
from rota.core.records import Story
from rota.core.states import CANCELLED, FAILED, TERMINAL, UPSTREAM_FAILED
from rota.ui.acts.tasks import task_offers
from rota.ui.live import Ear, keep_current
from rota.ui.logs import follow, read_end
from rota.ui.missing import note_near
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Fragment, Renderer
from rota.ui.telling import Tale, go_on, read_tale
from rota.ui.visits import Page, Visit, go_to, show
from rota.ui.words import command, live_url, run_url
from rota.wire.views import show_result

# Reasons change with what others do: workers that come and go, pools that empty.
LOOK_EVERY_S = 1.0
# What has ended changes only if it is told to run again.
OVER_EVERY_S = 60.0
# One that printed nothing so far may have a log that is on its way.
UNSAID_EVERY_S = 5.0
# So many events wait for a browser to take them; whoever makes them waits too.
EVENTS_WAITING_MAX = 8
# Of what a task waited for so many are asked about, and so many of those that went wrong are named.
CAUSES_ASKED_MAX = 50
CAUSES_SHOWN = 5
BAD = (FAILED, UPSTREAM_FAILED, CANCELLED)
FRAGMENTS = {
    "head": "task_head.html",
    "why": "task_why.html",
    "facts": "task_facts.html",
    "attempts": "task_attempts.html",
    "unsaid": "task_unsaid.html",
    "story": "story.html",
}


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which attempt's log; the newest if none is named. `whole`: it is told from its first line on."""

    attempt: int = 0
    whole: int = 0


class TaskPages:
    """The page, its log as a file, and what keeps it current."""

    def __init__(self, renderer: Renderer, memory: Memory) -> None:
        self._renderer = renderer
        self._memory = memory

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        path = "/runs/{run}/tasks/{task}"
        return (
            Page(path=path, serve=self.show, summary="A task", query=TaskFilter),
            Page(path=f"{path}/log", serve=self.log, summary="All that an attempt printed", query=TaskFilter),
            Page(path=f"/live{path}", serve=self.live, summary="What changes of a task", query=TaskFilter),
        )

    async def show(self, visit: Visit) -> Response:
        """The page."""
        reader = Reader(visit.client, self._memory)
        try:
            found = await reader.find_task(visit.path["run"], visit.path["task"])
        except Refused as refused:
            await note_near(reader, visit.path["run"], refused)
            raise
        if found is None:
            return go_to(f"{run_url(visit.path['run'], group=visit.path['task'])}#tasks")
        run, view, task = await _find(reader, visit)
        tale = await read_tale(reader, view, task.id)
        given = await self._read(visit, reader, run, view, task, tale)
        text, is_cut = await read_end(run, task.id, given["attempt"]) if given["attempt"] else ("", False)
        fragments = self._renderer.fragments(FRAGMENTS, given)
        more = {"live": live_url(visit.url), "log": text, "log_is_cut": is_cut}
        return show(self._renderer.page("task.html", fragments, {**given, **more}))

    async def log(self, visit: Visit) -> Response:
        """The whole log, as text."""
        run, _, task = await _find(Reader(visit.client, self._memory), visit)
        await run.check_attempt(task.id, visit.query.attempt)
        return visit.stream_text(run.logs(task.id, visit.query.attempt))

    async def live(self, visit: Visit) -> Response:
        """What changes of it, and what it prints."""
        reader = Reader(visit.client, self._memory)
        run, _, _ = await _find(reader, visit)
        return visit.stream(_Following(self, visit, reader, run).events())

    async def look(
        self, visit: Visit, reader: Reader, run: Run, view: RunView, task: TaskView, tale: Tale
    ) -> list[Fragment]:
        """All but the log."""
        return self._renderer.fragments(FRAGMENTS, await self._read(visit, reader, run, view, task, tale))

    async def _read(
        self, visit: Visit, reader: Reader, run: Run, view: RunView, task: TaskView, tale: Tale
    ) -> dict[str, Any]:
        newest = _newest(task, tale)
        attempt = _attempt(visit, newest)
        chosen = ("--attempt", attempt) if visit.query.attempt else ()
        return {
            "visit": visit,
            "offers": task_offers(visit, view, task),
            "run": view,
            "task": task,
            "reasons": () if task.state in TERMINAL else await run.why(task.id),
            "has_result": task.result is not None,
            "result": show_result(task.result),
            "attempt": attempt,
            "is_over": task.state in TERMINAL,
            "causes": await _causes(reader, run, view, task) if task.state is UPSTREAM_FAILED else (),
            "newest": newest,
            "tale": tale,
            "story_cli": command("story", view.id, task.id),
            "log_cli": command("logs", view.id, task.id, *chosen, "--follow"),
            "cli": command("why", view.id, task.id),
        }


class _Following:
    """One browser that looks at a task: fragments and log on one stream, whoever has news first."""

    def __init__(self, pages: TaskPages, visit: Visit, reader: Reader, run: Run) -> None:
        self._pages = pages
        self._visit = visit
        self._reader = reader
        self._run = run
        # None at the end.
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue(EVENTS_WAITING_MAX)
        self._is_over = False
        # Whoever looked has gone: nobody takes what is said any more.
        self._is_left = False
        self._logging: asyncio.Task[None] | None = None
        self._logged = 0

    async def events(self) -> AsyncIterator[bytes]:
        """Until something may have been missed."""
        async with Ear(self._reader.line, self._run.id) as ear:
            looking = asyncio.get_running_loop().create_task(self._look(ear), name="rota-page")
            try:
                while (piece := await self._said.get()) is not None:
                    yield piece
                await looking
            finally:
                self._is_left = True
                tasks = [task for task in (looking, self._logging) if task is not None]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, ear: Ear) -> None:
        try:
            await self._keep_current(ear)
        finally:
            if not self._is_left:
                await self._said.put(None)

    async def _keep_current(self, ear: Ear) -> None:
        _, view, task = await _find(self._reader, self._visit)
        tale = await read_tale(self._reader, view, task.id)

        async def look(parts: list[Story]) -> list[Fragment]:
            await go_on(self._reader, tale, parts)
            _, view, now = await _find(self._reader, self._visit)
            self._is_over = now.state in TERMINAL
            await self._follow(_attempt(self._visit, _newest(now, tale)), now.id)
            return await self._pages.look(self._visit, self._reader, self._run, view, now, tale)

        def every_s() -> float:
            if not self._is_over:
                return LOOK_EVERY_S
            return OVER_EVERY_S if self._logged else UNSAID_EVERY_S

        async for piece in keep_current(ear, look, every_s=every_s):
            await self._said.put(piece)

    async def _follow(self, attempt: int, task: str) -> None:
        """Follow the log of this attempt instead of the one before."""
        if attempt == self._logged or not attempt:
            return
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)
        self._logged = attempt

        async def pump() -> None:
            has_said = False
            # A log that cannot be read just now is read again with the page, and so is one of which nothing was there
            # in time: a worker with much to do ships it later.
            with suppress(Refused, Unavailable):
                async for piece in follow(self._run, task, attempt, is_whole=bool(self._visit.query.whole)):
                    has_said = True
                    await self._said.put(piece)
            if not has_said and self._logged == attempt:
                self._logged = 0

        self._logging = asyncio.get_running_loop().create_task(pump(), name="rota-page-log")


async def _causes(reader: Reader, run: Run, view: RunView, task: TaskView) -> list[TaskView]:
    """What a task waited for and what did not go well, a few of them."""
    graph = await reader.graph(view.graph)
    node = graph.index.get(task.id, graph.index.get(task.id.rpartition("[")[0]))
    names = [graph.specs[up].id for up in graph.ups[node]] if node is not None else []
    found = await run.tasks(*names[:CAUSES_ASKED_MAX], states=BAD) if names else []
    return found[:CAUSES_SHOWN]


async def _find(reader: Reader, visit: Visit) -> tuple[Run, RunView, TaskView]:
    run = reader.run(visit.path["run"])
    task = await reader.find_task(run.id, visit.path["task"])
    if task is None:
        raise Refused("task.unknown", f"{visit.path['task']!r} is mapped", "Name one of its tasks.", path="task")
    return run, await run.status(), task


def _newest(task: TaskView, tale: Tale) -> int:
    """The number of the attempt that was made last, whether it counted or not; 0 if there was none."""
    return tale.attempt or task.attempt


def _attempt(visit: Visit, newest: int) -> int:
    """The attempt whose log is shown; 0 if there was none."""
    query: TaskFilter = visit.query
    return min(max(0, query.attempt), newest) or newest
