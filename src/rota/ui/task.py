"""The page of a task: why it waits, how it went, what it printed, and its story."""

from typing import Any

from msgspec import Struct
from starlette.responses import Response

from rota.client.runs import Run
from rota.core.errors import Refused
from rota.core.questions import RunView, TaskView
from rota.core.records import Story
from rota.ui.acts.tasks import task_offers
from rota.ui.following import Following, Seen
from rota.ui.logs import read_about, read_end
from rota.ui.missing import note_near
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Renderer
from rota.ui.telling import Tale, go_on, read_tale
from rota.ui.views import LOG
from rota.ui.visits import Page, Visit, go_to, show
from rota.ui.words import command, live_url, run_url, task_url
from rota.wire.views import show_result

FRAGMENTS = {"head": "task_head.html", "why": "task_why.html", "facts": "task_facts.html", **LOG, "story": "story.html"}


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which attempt's log; the newest if none is named."""

    attempt: int = 0


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
        given = await self._read(visit, reader, view, task, tale)
        text, is_cut = await read_end(run, task.id, given["attempt"])
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
        # Before anything is said: an answer that has begun cannot become a refusal.
        run, _, _ = await _find(reader, visit)
        tale: Tale | None = None

        async def look(parts: list[Story]) -> Seen:
            nonlocal tale
            _, view, task = await _find(reader, visit)
            tale = tale or await read_tale(reader, view, task.id)
            await go_on(reader, tale, parts)
            given = await self._read(visit, reader, view, task, tale)
            fragments = self._renderer.fragments(FRAGMENTS, given)
            return Seen(fragments, given["is_over"], task.id, given["attempt"])

        return visit.stream(Following(reader, run, look).events())

    async def _read(self, visit: Visit, reader: Reader, view: RunView, task: TaskView, tale: Tale) -> dict[str, Any]:
        def url(attempt: int) -> str:
            return task_url(view.id, task.id, attempt=attempt)

        return {
            "visit": visit,
            "offers": task_offers(visit, view, task),
            "run": view,
            **await read_about(reader, view, task, tale, visit.query.attempt, url),
            "has_result": task.result is not None,
            "result": show_result(task.result),
            "tale": tale,
            "story_cli": command("story", view.id, task.id),
            "cli": command("why", view.id, task.id),
        }


async def _find(reader: Reader, visit: Visit) -> tuple[Run, RunView, TaskView]:
    run = reader.run(visit.path["run"])
    task = await reader.find_task(run.id, visit.path["task"])
    if task is None:
        raise Refused("task.unknown", f"{visit.path['task']!r} is mapped", "Name one of its tasks.", path="task")
    return run, await run.status(), task
