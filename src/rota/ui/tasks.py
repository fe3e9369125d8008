"""The tasks of a run, a page of them at a time, and where the others are."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from rota.client.runs import Run
from rota.core.errors import Refused
from rota.core.ids import RunId, TaskId
from rota.core.questions import ListTasks, RunView, TasksPage
from rota.core.states import TaskState


class TasksFilter(Struct, frozen=True, kw_only=True):
    """Which tasks of a run: of one group, in some states, from the number `first` on."""

    group: str = ""
    state: tuple[str, ...] = ()
    first: int = 0


async def read_tasks(run: Run, now: RunView, query: TasksFilter, limit: int, url: Callable[..., str]) -> dict[str, Any]:
    """A page of tasks. `url` makes an address of the page that shows them, from what is asked for."""
    page = await _tasks_page(run, query, limit)
    here = {"group": query.group, "state": query.state}
    states = [str(state) for state in TaskState if now.tasks.get(state) or state in query.state]
    return {
        "tasks": page.tasks,
        "cleared": url(),
        "first": url(**here),
        "next": url(first=page.next, **here) if page.next >= 0 else "",
        "choices": [_choice(now, query, url, state) for state in states],
    }


def _choice(run: RunView, query: TasksFilter, url: Callable[..., str], state: str) -> tuple[str, bool, str, int]:
    """A state, whether it is chosen, where it is chosen or not any more, and how many tasks are in it."""
    is_chosen = state in query.state
    others = [each for each in query.state if each != state]
    chosen = others if is_chosen else [*others, state]
    return state, is_chosen, url(group=query.group, state=chosen), run.tasks.get(state, 0)


async def _tasks_page(run: Run, query: TasksFilter, limit: int) -> TasksPage:
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
        question = ListTasks(tenant=run.client.line.tenant, run=RunId(run.id), names=(TaskId(group),), limit=1)
        page: TasksPage = await run.client.ask(question)
        return page.tasks[0].idx
    except Refused as refused:
        if refused.code != "run.unknown":
            raise
    return (await run.tasks(group))[0].idx
