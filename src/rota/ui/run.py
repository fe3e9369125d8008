"""The page of a run: how it stands, what waits and why, and its views: grid, graph, timeline, tasks and story."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from rota.client.runs import Run
from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.questions import ListTasks, RunView, TasksPage
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL, TaskState
from rota.ui.acts.runs import run_offers
from rota.ui.grid import ROWS, read_grid
from rota.ui.live import Ear, keep_current
from rota.ui.missing import note_near
from rota.ui.panels import read_panel
from rota.ui.picture import read_picture
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Fragment, Renderer
from rota.ui.telling import Tale, go_on, read_tale
from rota.ui.timeline import ROWS as LANES
from rota.ui.timeline import read_timeline
from rota.ui.visits import Page, Visit, show
from rota.ui.waiting import read_waiting
from rota.ui.words import command, live_url, run_url
from rota.wire.views import show_params

TASKS_SHOWN = 25
TASKS_SHOWN_ALONE = 100
# Other runs of the graph, and reasons, change without a word about this run.
LOOK_EVERY_S = 5.0
# Of what has ended only the grid changes.
OVER_EVERY_S = 30.0


class View(Struct, frozen=True):
    """One way to look at a run: what it is called, where it is under the run, and what it is made of."""

    title: str
    path: str
    fragments: dict[str, str]


_HEAD = {"head": "run_head.html"}
_FULL = {**_HEAD, "waiting": "run_waiting.html", "panel": "run_panel.html"}
_TASKS = {"tasks": "run_tasks.html"}
_STORY = {"story": "story.html"}
VIEWS = (
    View("Grid", "", {**_FULL, "grid": "run_grid.html", **_TASKS, **_STORY}),
    View("Graph", "graph", {**_HEAD, "graph": "run_graph.html"}),
    View("Timeline", "timeline", {**_HEAD, "timeline": "run_timeline.html"}),
    View("Tasks", "tasks", {**_HEAD, **_TASKS}),
    View("Story", "story", {**_HEAD, **_STORY}),
)


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which of its tasks: of one group, in some states, from the number `first` on; `row` is the first row of the grid
    or the timeline, or the first node of the graph, in which the groups `open` are open.
    """

    group: str = ""
    state: tuple[str, ...] = ()
    first: int = 0
    row: int = 0
    open: tuple[str, ...] = ()


class RunPages:
    """The page, its views, and what keeps each current."""

    def __init__(self, renderer: Renderer, memory: Memory) -> None:
        self._renderer = renderer
        self._memory = memory

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        found: list[Page] = []
        for view in VIEWS:
            path = f"/runs/{{run}}{view.path and f'/{view.path}'}"
            what = f"A run: {view.title.lower()}" if view.path else "A run"
            found.append(Page(path=path, serve=partial(self.show, view), summary=what, query=RunFilter))
            what = f"What changes of {what[0].lower()}{what[1:]}"
            found.append(Page(path=f"/live{path}", serve=partial(self.live, view), summary=what, query=RunFilter))
        return tuple(found)

    async def show(self, view: View, visit: Visit) -> Response:
        """The page."""
        reader = Reader(visit.client, self._memory)
        try:
            run = await reader.run(visit.path["run"]).status()
        except Refused as refused:
            await note_near(reader, visit.path["run"], refused)
            raise
        tale = await read_tale(reader, run) if "story" in view.fragments else None
        given = await self._read(view, visit, reader, run, tale, visit.now)
        fragments = self._renderer.fragments(view.fragments, given)
        return show(self._renderer.page("run.html", fragments, {**given, "live": live_url(visit.url)}))

    async def live(self, view: View, visit: Visit) -> Response:
        """What changes of it."""
        reader = Reader(visit.client, self._memory)
        run = reader.run(visit.path["run"])
        # Before anything is said: an answer that has begun cannot become a refusal.
        await run.status()
        clock = asyncio.get_running_loop().time
        began = clock()

        async def events() -> AsyncIterator[bytes]:
            async with Ear(reader.line, run.id) as ear:
                tale = await read_tale(reader, await run.status()) if "story" in view.fragments else None
                every_s = LOOK_EVERY_S

                async def look(parts: list[Story]) -> list[Fragment]:
                    nonlocal every_s
                    if tale is not None:
                        await go_on(reader, tale, parts)
                    stands = await run.status()
                    every_s = OVER_EVERY_S if stands.state in RUN_TERMINAL else LOOK_EVERY_S
                    now = visit.now + round((clock() - began) * 1000)
                    given = await self._read(view, visit, reader, stands, tale, now)
                    return self._renderer.fragments(view.fragments, given)

                async for piece in keep_current(ear, look, every_s=lambda: every_s):
                    yield piece

        return visit.stream(events())

    async def _read(
        self, view: View, visit: Visit, reader: Reader, run: RunView, tale: Tale | None, now: Millis
    ) -> dict[str, Any]:
        """What the fragments of a view are made of, and nothing else."""
        query: RunFilter = visit.query
        given: dict[str, Any] = {
            "visit": visit,
            "offers": run_offers(visit, run),
            "query": query,
            "run": run,
            "view": view,
            "views": VIEWS,
            "params": show_params(run.params) if not view.path else {},
            "is_held": await reader.is_held(run),
            "streams": (await reader.streams(run.id)).streams,
            "tale": tale,
            "story_cli": command("story", run.id),
            "cli": command("tasks", run.id, *[word for state in query.state for word in ("--state", state)]),
        }
        if "waiting" in view.fragments:
            given["waiting"] = await read_waiting(reader.run(run.id), run, await reader.graph(run.graph))
            given["panel"] = await read_panel(reader, run)
        if "grid" in view.fragments:
            grid = await read_grid(reader, run, query.row)
            here: dict[str, Any] = {"group": query.group, "state": query.state}
            given["grid"] = grid
            given["rows_before"] = run_url(run.id, row=max(0, grid.first - ROWS), **here) if grid.first else ""
            given["rows_after"] = run_url(run.id, row=grid.last, **here) if grid.last < grid.total else ""
        if "graph" in view.fragments:
            given["picture"] = await read_picture(reader, run, query.open, query.row)
        if "timeline" in view.fragments:
            timeline = await read_timeline(reader, run, query.row, now)
            given["timeline"] = timeline
            before = max(0, timeline.first - LANES)
            given["rows_before"] = run_url(run.id, view.path, row=before) if timeline.first else ""
            after = timeline.last < timeline.total
            given["rows_after"] = run_url(run.id, view.path, row=timeline.last) if after else ""
        if "tasks" in view.fragments:
            given |= await _read_tasks(reader.run(run.id), run, query, view)
        return given


async def _read_tasks(run: Run, now: RunView, query: RunFilter, view: View) -> dict[str, Any]:
    """A page of tasks, and where the others are."""
    page = await _tasks_page(run, query, TASKS_SHOWN_ALONE if view.path else TASKS_SHOWN)
    here = {"group": query.group, "state": query.state, "row": query.row}
    states = [str(state) for state in TaskState if now.tasks.get(state) or state in query.state]
    return {
        "tasks": page.tasks,
        "has_workers": any(task.worker for task in page.tasks),
        "has_errors": any(task.error for task in page.tasks),
        "cleared": run_url(now.id, view.path, row=query.row),
        "first": run_url(now.id, view.path, **here),
        "next": run_url(now.id, view.path, first=page.next, **here) if page.next >= 0 else "",
        "choices": [_choice(now, query, view, state) for state in states],
    }


def _choice(run: RunView, query: RunFilter, view: View, state: str) -> tuple[str, bool, str, int]:
    """A state, whether it is chosen, where it is chosen or not any more, and how many tasks are in it."""
    is_chosen = state in query.state
    others = [each for each in query.state if each != state]
    chosen = others if is_chosen else [*others, state]
    url = run_url(run.id, view.path, group=query.group, state=chosen, row=query.row)
    return state, is_chosen, url, run.tasks.get(state, 0)


async def _tasks_page(run: Run, query: RunFilter, limit: int) -> TasksPage:
    """A page of tasks; those of a group have consecutive numbers."""
    if not query.group:
        return await run.tasks_page(states=query.state, first=max(0, query.first), limit=limit)
    start = await _first_of(run, query.group)
    page = await run.tasks_page(states=query.state, first=max(start, query.first), limit=limit)
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
