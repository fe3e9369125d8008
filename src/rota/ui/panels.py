"""What a kind adds to the page of its runs: a panel. A kind with something to show is one line in the table."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import MsgspecError, Struct

from rota.core.graph import LiveGraph
from rota.core.ids import Millis
from rota.core.questions import RunView, TaskView
from rota.core.spans import show_span
from rota.core.states import SUCCESS
from rota.kinds.agent.matching import AGENT_KIND
from rota.ui.phases import phases_of
from rota.ui.plans import fragment_of, plan_of, read_grown
from rota.ui.reading import Counts, Reader
from rota.wire.asking import PREVIEW
from rota.wire.builds import BUILD, BuildResult, BuildWork, decode_result, decode_work
from rota.wire.items import ItemView, view_item
from rota.wire.queries import KEPT, QUERY, Texts, decode_kept, decode_output
from rota.wire.work import StoredValue, decode_value

# Of a wider run the panel says nothing about the rest.
TASKS_READ_MAX = 5_000
TASKS_AT_ONCE = 1_000


class Panel(Struct, frozen=True):
    """A part of a page that only runs of one kind have: a template, and what it is made of."""

    template: str
    title: str
    given: Any


Read = Callable[[Reader, RunView], Awaitable[Panel | None]]


async def read_panel(reader: Reader, view: RunView) -> Panel | None:
    """What the kind of this run adds; nothing if it has no panel."""
    read = PANELS.get(view.kind)
    return await read(reader, view) if read is not None else None


# Queries: stages, with what came out of each.


class Stage(Struct):
    """A stage: what it reads, how far it is, and the rows and bytes that its tasks have put out so far."""

    name: str
    sort: str
    reads: tuple[str, ...] = ()
    counts: Counts = {}
    rows: int = 0
    bytes: int = 0
    # Whether its tasks told how many rows.
    has_rows: bool = False
    # The share of the largest stage, in percent.
    share: float = 0.0
    started_at: Millis = 0
    ended_at: Millis = 0
    took: str = ""


class Stages(Struct, frozen=True):
    """All stages of a query, and how it was planned."""

    stages: list[Stage]
    is_cut: bool
    plan: Texts


async def _read_query(reader: Reader, view: RunView) -> Panel | None:
    graph = await read_grown(reader, view)
    stages: dict[str, Stage] = {spec.id: _stage(spec.id, spec.work, spec.upstream) for spec in graph.specs}
    looked: TaskView | None = None
    first, read = 0, 0
    while first >= 0 and read < TASKS_READ_MAX:
        page = await reader.run(view.id).tasks_page(first=first, limit=TASKS_AT_ONCE)
        for task in page.tasks:
            _count_in(stages, graph, task)
            looked = task if task.id == PREVIEW else looked
        first, read = page.next, read + len(page.tasks)
    most = max((stage.bytes for stage in stages.values()), default=0)
    for stage in stages.values():
        stage.share = 100 * stage.bytes / most if most else 0.0
        if stage.started_at and stage.ended_at:
            stage.took = show_span(max(0, stage.ended_at - stage.started_at))
    return Panel("panel_query.html", "Stages", Stages(list(stages.values()), first >= 0, plan_of(graph, looked)))


def _stage(name: str, work: bytes, upstream: tuple[str, ...]) -> Stage:
    fragment = fragment_of(work)
    sort = type(fragment.output).__name__.lower() if fragment is not None else ""
    return Stage(name, sort, upstream)


def _count_in(stages: dict[str, Stage], graph: LiveGraph, task: TaskView) -> None:
    name = task.id if task.id in graph.index else task.id.rpartition("[")[0]
    # What it grew by since its definition was read is in none yet.
    stage = stages.setdefault(name, Stage(name, ""))
    stage.counts[task.state] = stage.counts.get(task.state, 0) + 1
    stage.started_at = min(stage.started_at or task.started_at, task.started_at or stage.started_at)
    stage.ended_at = max(stage.ended_at, task.ended_at)
    if task.state is not SUCCESS or not task.result:
        return
    rows, size = _put_out(task.result, stage.sort)
    stage.bytes += size
    if rows is not None:
        stage.rows += rows
        stage.has_rows = True


def _put_out(result: bytes, sort: str) -> tuple[int | None, int]:
    """How many rows and bytes a task has put out; of an answer that travelled, the rows are not known."""
    try:
        if sort == "answered":
            value = decode_value(result)
            if isinstance(value, StoredValue):
                return None, value.ref.size
            if value.encoding == KEPT:
                part = decode_kept(value.content).part
                return part.rows, part.bytes
            return None, len(value.content)
        output = decode_output(result)
    except MsgspecError:
        return None, 0
    return output.rows or sum(part.rows for part in output.parts), sum(part.bytes for part in output.parts)


# Builds: the action.


class Action(Struct, frozen=True):
    """What was asked for, what came of it, and how long each part took."""

    work: BuildWork
    result: BuildResult | None
    phases: list[tuple[str, str]]


async def _read_build(reader: Reader, view: RunView) -> Panel | None:
    try:
        work = decode_work(view.params)
    except MsgspecError:
        return None
    task = await _only_task(reader, view)
    result: BuildResult | None = None
    phases: list[tuple[str, str]] = []
    if task is not None and task.result:
        try:
            result = decode_result(task.result)
        except MsgspecError:
            result = None
        phases = [(phase.name, show_span(phase.end_at - phase.start_at)) for phase in phases_of(task)]
    return Panel("panel_build.html", "Action", Action(work, result, phases))


async def _only_task(reader: Reader, view: RunView) -> TaskView | None:
    page = await reader.run(view.id).tasks_page(limit=1)
    return page.tasks[0] if page.tasks else None


# Agents: the item.


async def _read_item(reader: Reader, view: RunView) -> Panel | None:
    graph = await reader.graph(view.graph)
    item: ItemView = view_item(view, await _only_task(reader, view), graph.specs[0])
    return Panel("panel_item.html", "Item", item)


PANELS: dict[str, Read] = {QUERY: _read_query, BUILD: _read_build, AGENT_KIND: _read_item}
