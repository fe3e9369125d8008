"""The page of a run: how it stands, what waits and why, its grid, its tasks and its story."""

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from rota.client.runs import Run
from rota.core.errors import Refused
from rota.core.questions import ListTasks, RunView, TasksPage
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL, TaskState
from rota.ui.grid import ROWS, read_grid
from rota.ui.live import Ear, keep_current
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Fragment, Renderer
from rota.ui.telling import Tale, go_on, read_tale
from rota.ui.visits import Page, Visit, show
from rota.ui.waiting import read_waiting
from rota.ui.words import command, live_url, run_url
from rota.wire.views import show_params

TASKS_SHOWN = 25
# Other runs of the graph, and reasons, change without a word about this run.
LOOK_EVERY_S = 5.0
# Of what has ended only the grid changes.
OVER_EVERY_S = 30.0
FRAGMENTS = {
    "head": "run_head.html",
    "waiting": "run_waiting.html",
    "grid": "run_grid.html",
    "tasks": "run_tasks.html",
    "story": "story.html",
}


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which of its tasks: of one group, in some states, from the number `first` on; `row` is the grid's first row."""

    group: str = ""
    state: tuple[str, ...] = ()
    first: int = 0
    row: int = 0


class RunPages:
    """The page, and what keeps it current."""

    def __init__(self, renderer: Renderer, memory: Memory) -> None:
        self._renderer = renderer
        self._memory = memory

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        return (
            Page(path="/runs/{run}", serve=self.show, summary="A run", query=RunFilter),
            Page(path="/live/runs/{run}", serve=self.live, summary="What changes of a run", query=RunFilter),
        )

    async def show(self, visit: Visit) -> Response:
        """The page."""
        reader = Reader(visit.client, self._memory)
        view = await reader.run(visit.path["run"]).status()
        given = await self._read(visit, reader, view, await read_tale(reader, view))
        fragments = self._renderer.fragments(FRAGMENTS, given)
        return show(self._renderer.page("run.html", fragments, {**given, "live": live_url(visit.url)}))

    async def live(self, visit: Visit) -> Response:
        """What changes of it."""
        reader = Reader(visit.client, self._memory)
        run = reader.run(visit.path["run"])
        # Before anything is said: an answer that has begun cannot become a refusal.
        await run.status()

        async def events() -> AsyncIterator[bytes]:
            async with Ear(reader.line, run.id) as ear:
                tale = await read_tale(reader, await run.status())

                every_s = LOOK_EVERY_S

                async def look(parts: list[Story]) -> list[Fragment]:
                    nonlocal every_s
                    await go_on(reader, tale, parts)
                    view = await run.status()
                    every_s = OVER_EVERY_S if view.state in RUN_TERMINAL else LOOK_EVERY_S
                    return self._renderer.fragments(FRAGMENTS, await self._read(visit, reader, view, tale))

                async for piece in keep_current(ear, look, every_s=lambda: every_s):
                    yield piece

        return visit.stream(events())

    async def _read(self, visit: Visit, reader: Reader, view: RunView, tale: Tale) -> dict[str, Any]:
        query: RunFilter = visit.query
        run = reader.run(view.id)
        page = await _read_tasks(run, query)
        grid = await read_grid(reader, view, query.row)
        here = {"group": query.group, "state": query.state}
        states = [str(state) for state in TaskState if view.tasks.get(state) or state in query.state]
        options = [word for state in query.state for word in ("--state", state)]
        return {
            "visit": visit,
            "query": query,
            "run": view,
            "params": show_params(view.params),
            "is_held": await reader.is_held(view),
            "waiting": await read_waiting(run, view, await reader.graph(view.graph)),
            "grid": grid,
            "rows_before": run_url(view.id, row=max(0, grid.first - ROWS), **here) if grid.first else "",
            "rows_after": run_url(view.id, row=grid.last, **here) if grid.last < grid.total else "",
            "tasks": page.tasks,
            "has_workers": any(task.worker for task in page.tasks),
            "has_errors": any(task.error for task in page.tasks),
            "next": run_url(view.id, first=page.next, row=query.row, **here) if page.next >= 0 else "",
            "choices": [_choice(view, query, state) for state in states],
            "tale": tale,
            "story_cli": command("story", view.id),
            "cli": command("tasks", view.id, *options),
        }


def _choice(view: RunView, query: RunFilter, state: str) -> tuple[str, bool, str, int]:
    """A state, whether it is chosen, where it is chosen or not any more, and how many tasks are in it."""
    is_chosen = state in query.state
    others = [each for each in query.state if each != state]
    chosen = others if is_chosen else [*others, state]
    return state, is_chosen, run_url(view.id, group=query.group, state=chosen, row=query.row), view.tasks.get(state, 0)


async def _read_tasks(run: Run, query: RunFilter) -> TasksPage:
    """A page of tasks; those of a group have consecutive numbers."""
    if not query.group:
        return await run.tasks_page(states=query.state, first=max(0, query.first), limit=TASKS_SHOWN)
    start = await _first_of(run, query.group)
    page = await run.tasks_page(states=query.state, first=max(start, query.first), limit=TASKS_SHOWN)
    found = [task for task in page.tasks if task.id.startswith(f"{query.group}[") or task.id == query.group]
    return TasksPage(tuple(found), page.next if len(found) == len(page.tasks) else -1)


async def _first_of(run: Run, group: str) -> int:
    """The number of a group's first task."""
    try:
        question = ListTasks(tenant=run.client.line.tenant, run=run.id, names=(group,), limit=1)
        page: TasksPage = await run.client.ask(question)
        return page.tasks[0].idx
    except Refused as refused:
        if refused.code != "run.unknown":
            raise
    return (await run.tasks(group))[0].idx
