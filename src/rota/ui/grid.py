"""The grid of a run: the newest runs of the same graph beside each other, and a row for each task or group of tasks.

A row of a group holds counts, however wide it is. Of a live run only what is shown is asked for, in questions that
keep the coordinator for a millisecond or two each; what was read is kept until the run's story goes on.
"""

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.graph import LiveGraph
from rota.core.history import Ended, GetEnded
from rota.core.questions import PAGE_MAX, ListTasks, RunView, TasksPage, TaskView
from rota.core.states import FAILED, NEEDS_ATTENTION, NONE, RUNNING, TERMINAL, UPSTREAM_FAILED
from rota.ui.reading import Counts, Reader
from rota.ui.words import most_urgent

COLUMNS = 25
ROWS = 40
TASKS_AT_ONCE = 1_000
# How many tasks one look reads at most, beyond the run it is about. The rest is read by the looks after it.
TASKS_READ_MAX = 20_000

ALARMING = (FAILED, NEEDS_ATTENTION, UPSTREAM_FAILED)


class Row(Struct, frozen=True):
    """One task or group of the graph, and how many of its tasks have ended in the run that is looked at."""

    name: str
    is_group: bool
    ended: int = 0
    total: int = 0


class Cell(Struct, frozen=True):
    """How the tasks of a row stand in one run. Empty counts: there are none, or they were not counted yet."""

    counts: Counts
    state: str


class Column(Struct, frozen=True):
    """One run."""

    view: RunView
    is_this: bool
    cells: list[Cell]


class Grid(Struct, frozen=True):
    """Some rows of it, from the row with the number `first` on, of `total`."""

    rows: list[Row]
    columns: list[Column]
    first: int
    total: int

    @property
    def last(self) -> int:
        """The row after those that are shown."""
        return self.first + len(self.rows)


async def read_grid(reader: Reader, view: RunView, first: int) -> Grid:
    """The grid around one run."""
    graph = await reader.graph(view.graph)
    first = max(0, min(first, len(graph.specs) - 1))
    nodes = graph.by_rank[first : first + ROWS]
    rows = [Row(graph.specs[node].id, graph.is_group(node)) for node in nodes]
    others = [each for each in (await reader.runs_page(name=view.name, limit=COLUMNS)).runs if each.id != view.id]
    views = sorted([view, *others[: COLUMNS - 1]], key=lambda each: each.created_at, reverse=True)
    columns: list[Column] = []
    left = TASKS_READ_MAX
    for each in views:
        reading = _Reading(reader, each, [row.name for row in rows], first)
        is_this = each.id == view.id
        counts = reading.known()
        if counts is None:
            cost = await reading.cost()
            if is_this or cost <= left:
                counts = await reading.read()
                left -= 0 if is_this else cost
        cells = [_cell(counts.get(row.name, {}) if counts is not None else {}) for row in rows]
        columns.append(Column(each, is_this, cells))
        if is_this and counts is not None:
            rows = [_counted(row, counts.get(row.name, {})) for row in rows]
    # The newest is on the right.
    return Grid(rows, columns[::-1], first, len(graph.specs))


def _counted(row: Row, counts: Counts) -> Row:
    return Row(row.name, row.is_group, _ended(counts), sum(counts.values()))


def _ended(counts: Counts) -> int:
    return sum(count for state, count in counts.items() if state in TERMINAL)


def _cell(counts: Counts) -> Cell:
    """A group that has begun and not ended is running, whatever its tasks do just now, unless somebody should look."""
    if not counts:
        return Cell(counts, "")
    state = most_urgent(counts)
    if 0 < _ended(counts) < sum(counts.values()) and state not in ALARMING:
        state = RUNNING
    return Cell(counts, state)


class _Reading:
    """Counts by state of some rows in one run."""

    def __init__(self, reader: Reader, view: RunView, names: list[str], first: int) -> None:
        self._reader = reader
        self._view = view
        self._names = names
        self._key = (view.tenant, view.id, view.created_at, view.story, first)

    def known(self) -> dict[str, Counts] | None:
        return self._reader.memory.cells.get(self._key)

    async def cost(self) -> int:
        """How many tasks are read for it, about."""
        graph = await self._reader.graph(self._view.graph)
        nodes = [graph.index[name] for name in self._names if name in graph.index]
        return sum(graph.width[node] or self._view.total for node in nodes)

    async def read(self) -> dict[str, Counts]:
        graph = await self._reader.graph(self._view.graph)
        known = [name for name in self._names if name in graph.index]
        try:
            found = await self._read_live(graph, known)
        except Refused as refused:
            if refused.code not in ("run.unknown", "task.unknown"):
                raise
            found = await self._read_ended(known)
        return self._reader.memory.cells.put(self._key, found)

    async def _read_live(self, graph: LiveGraph, names: list[str]) -> dict[str, Counts]:
        found: dict[str, Counts] = {name: {} for name in names}
        single = [name for name in names if not graph.is_group(graph.index[name])]
        if single:
            for task in await self._list(names=tuple(single), limit=len(single)):
                _count(found[task.id], task.state)
        for name in names:
            node = graph.index[name]
            if name in single:
                continue
            if not graph.width[node]:
                for task in await self._list_grown(name):
                    _count(found[name], task.state)
                continue
            for first in range(graph.start[node], graph.start[node] + graph.width[node], TASKS_AT_ONCE):
                limit = min(TASKS_AT_ONCE, graph.start[node] + graph.width[node] - first)
                for task in await self._list(first=first, limit=limit):
                    _count(found[name], task.state)
        return found

    async def _list(self, *, names: tuple[str, ...] = (), first: int = 0, limit: int) -> tuple[TaskView, ...]:
        view = self._view
        question = ListTasks(tenant=view.tenant, run=view.id, names=names, first=first, limit=limit)
        page: TasksPage = await self._reader.ask(question)
        return page.tasks

    async def _list_grown(self, name: str) -> tuple[TaskView, ...]:
        """The tasks of a group whose width is known only while it runs; none before that."""
        try:
            return await self._list(names=(name,), limit=PAGE_MAX)
        except Refused as refused:
            if refused.code != "task.unknown":
                raise
            return ()

    async def _read_ended(self, names: list[str]) -> dict[str, Counts]:
        view = self._view
        found: dict[str, Counts] = {name: {} for name in names}
        question = GetEnded(tenant=view.tenant, run=view.id, created_at=view.created_at)
        ended: Ended | None = await self._reader.ask(question)
        if ended is None:
            return found
        graph = await self._reader.graph_of(ended)
        states = {task.idx: task.state for task in ended.tasks}
        for name in names:
            for idx in graph.tasks_of(graph.index[name]):
                _count(found[name], states.get(idx, NONE))
        return found


def _count(counts: Counts, state: str) -> None:
    counts[state] = counts.get(state, 0) + 1
