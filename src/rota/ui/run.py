"""The page of a run: how it stands, what waits and why, and its views: grid, graph, timeline, tasks and story."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.responses import Response

from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.questions import RunView
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL
from rota.ui.grid import ROWS, read_grid
from rota.ui.live import Ear, keep_current
from rota.ui.missing import note_near
from rota.ui.panels import read_panel
from rota.ui.picture import read_picture
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Fragment, Renderer
from rota.ui.tasks import TasksFilter, read_tasks
from rota.ui.telling import Tale, go_on, read_tale
from rota.ui.timeline import ROWS as LANES
from rota.ui.timeline import read_timeline
from rota.ui.views import LOGS, VIEWS, View, read_head
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


class RunFilter(TasksFilter, frozen=True, kw_only=True):
    """Which of its tasks; `row` is the first row of the grid or the timeline, or the first node of the graph, in which
    the groups `open` are open.
    """

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
        for view in (each for each in VIEWS if each is not LOGS):
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
            **await read_head(view, visit, reader, run),
            "tale": tale,
            "story_cli": command("story", run.id),
            "cli": command("tasks", run.id, *[word for state in query.state for word in ("--state", state)]),
        }
        if not view.path:
            given["params"] = show_params(run.params)
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
            limit = TASKS_SHOWN_ALONE if view.path else TASKS_SHOWN
            url = partial(run_url, run.id, view.path, row=query.row)
            given |= await read_tasks(reader.run(run.id), run, query, limit, url)
        return given
