"""The logs of a run's tasks in one view: its tasks to choose from, and beside them what the chosen one printed."""

from functools import partial
from typing import Any

from msgspec import structs
from starlette.responses import Response

from rota.core.errors import Refused
from rota.core.questions import RunView, TaskView
from rota.core.records import Story
from rota.core.states import RUN_TERMINAL
from rota.ui.following import Following, Seen
from rota.ui.logs import read_about, read_end
from rota.ui.missing import note_near
from rota.ui.reading import Memory, Reader
from rota.ui.rendering import Renderer
from rota.ui.tasks import TasksFilter, read_tasks
from rota.ui.telling import Tale, go_on, read_tale
from rota.ui.views import LOGS, read_head
from rota.ui.visits import Page, Visit, go_to, show
from rota.ui.words import command, live_url, most_urgent, run_url

TASKS_SHOWN = 60


class LogsFilter(TasksFilter, frozen=True, kw_only=True):
    """Which tasks may be chosen, and the one that is: if none is named, the one that somebody should see first. Of its
    log the same as on its own page.
    """

    task: str = ""
    attempt: int = 0


class RunLogPages:
    """The view, and what keeps it current."""

    def __init__(self, renderer: Renderer, memory: Memory) -> None:
        self._renderer = renderer
        self._memory = memory

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        path = f"/runs/{{run}}/{LOGS.path}"
        what = "What changes of a run: logs"
        return (
            Page(path=path, serve=self.show, summary="A run: logs", query=LogsFilter),
            Page(path=f"/live{path}", serve=self.live, summary=what, query=LogsFilter),
        )

    async def show(self, visit: Visit) -> Response:
        """The page."""
        reader = Reader(visit.client, self._memory)
        query: LogsFilter = visit.query
        try:
            view = await reader.run(visit.path["run"]).status()
        except Refused as refused:
            await note_near(reader, visit.path["run"], refused)
            raise
        task = await _choose(reader, query, view)
        if task is None and query.task:
            # The name of many tasks.
            return go_to(run_url(view.id, LOGS.path, group=query.task))
        tale = await read_tale(reader, view, task.id) if task is not None else None
        given = await self._read(visit, reader, view, task, tale)
        text, is_cut = (
            await read_end(reader.run(view.id), task.id, given["attempt"]) if task is not None else ("", False)
        )
        fragments = self._renderer.fragments(LOGS.fragments, given)
        # What was chosen stays, whatever should be seen first a moment later.
        live = live_url(_url(view, query, task=task.id if task is not None else "", attempt=query.attempt))
        more = {"live": live, "log": text, "log_is_cut": is_cut}
        return show(self._renderer.page("run_logs.html", fragments, {**given, **more}))

    async def live(self, visit: Visit) -> Response:
        """What changes of it, and what the chosen task prints."""
        reader = Reader(visit.client, self._memory)
        query: LogsFilter = visit.query
        run = reader.run(visit.path["run"])
        # Before anything is said: an answer that has begun cannot become a refusal.
        chosen = await _choose(reader, query, await run.status())
        if chosen is None and query.task:
            raise Refused("task.unknown", f"{query.task!r} is mapped", "Name one of its tasks.", path="task")
        tale: Tale | None = None

        async def look(parts: list[Story]) -> Seen:
            nonlocal tale, chosen
            view = await run.status()
            chosen = await _choose(
                reader, structs.replace(query, task=chosen.id) if chosen is not None else query, view
            )
            if chosen is not None:
                tale = tale or await read_tale(reader, view, chosen.id)
                await go_on(reader, tale, parts)
            given = await self._read(visit, reader, view, chosen, tale)
            fragments = self._renderer.fragments(LOGS.fragments, given)
            is_over = view.state in RUN_TERMINAL and given["is_over"]
            return Seen(fragments, is_over, chosen.id if chosen is not None else "", given["attempt"])

        return visit.stream(Following(reader, run, look).events())

    async def _read(
        self, visit: Visit, reader: Reader, view: RunView, task: TaskView | None, tale: Tale | None
    ) -> dict[str, Any]:
        query: LogsFilter = visit.query
        tasks = await read_tasks(reader.run(view.id), view, query, TASKS_SHOWN, partial(run_url, view.id, LOGS.path))

        def url(attempt: int) -> str:
            return _url(view, query, task=task.id if task is not None else "", attempt=attempt)

        given: dict[str, Any] = {
            **await read_head(LOGS, visit, reader, view),
            **tasks,
            "listed": [(each, _url(view, query, task=each.id)) for each in tasks["tasks"]],
            "cli": command("logs", view.id, task.id if task is not None else ""),
        }
        if task is None or tale is None:
            return {**given, "task": None, "attempt": 0, "is_over": False}
        return given | await read_about(reader, view, task, tale, query.attempt, url)


async def _choose(reader: Reader, query: LogsFilter, view: RunView) -> TaskView | None:
    """The task whose log is shown; None if there is none, or if what was named are many."""
    if query.task:
        return await reader.find_task(view.id, query.task)
    if not query.group and not query.state:
        query = structs.replace(query, state=(most_urgent(view.tasks),))
    found = await read_tasks(reader.run(view.id), view, query, 1, partial(run_url, view.id, LOGS.path))
    return found["tasks"][0] if found["tasks"] else None


def _url(view: RunView, query: LogsFilter, **chosen: Any) -> str:
    """This view of another task or attempt, with the same list beside it."""
    here = {"group": query.group, "state": query.state, "first": query.first}
    return run_url(view.id, LOGS.path, **chosen, **here)
