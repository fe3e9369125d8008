"""The grid of a run: the newest runs of the same graph beside each other, and a row for each task or group of tasks.

A row of a group holds counts, however wide it is.
"""

from msgspec import Struct

from rota.core.ids import TaskId
from rota.core.questions import RunView
from rota.core.states import FAILED, NEEDS_ATTENTION, RUNNING, TERMINAL, UPSTREAM_FAILED
from rota.core.sums import TaskSum
from rota.ui.reading import Counts, Reader
from rota.ui.sums import Sums
from rota.ui.words import most_urgent

COLUMNS = 25
ROWS = 40
# How many tasks one look reads at most, beyond the run it is about. The rest is read by the looks after it.
TASKS_READ_MAX = 20_000

ALARMING = (FAILED, NEEDS_ATTENTION, UPSTREAM_FAILED)


_NOTHING = TaskSum()


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
        reading = Sums(reader, each, [row.name for row in rows])
        is_this = each.id == view.id
        found = reading.known()
        if found is None:
            cost = await reading.cost()
            if is_this or cost <= left:
                found = await reading.read()
                left -= 0 if is_this else cost
        counts = [found.get(TaskId(row.name), _NOTHING).counts if found is not None else {} for row in rows]
        columns.append(Column(each, is_this, [cell_of(some) for some in counts]))
        if is_this:
            rows = [_counted(row, some) for row, some in zip(rows, counts, strict=True)]
    # The newest is on the right.
    return Grid(rows, columns[::-1], first, len(graph.specs))


def _counted(row: Row, counts: Counts) -> Row:
    return Row(row.name, row.is_group, ended_of(counts), sum(counts.values()))


def ended_of(counts: Counts) -> int:
    """How many of them have ended."""
    return sum(count for state, count in counts.items() if state in TERMINAL)


def cell_of(counts: Counts) -> Cell:
    """A group that has begun and not ended is running, whatever its tasks do just now, unless somebody should look."""
    if not counts:
        return Cell(counts, "")
    state = most_urgent(counts)
    if 0 < ended_of(counts) < sum(counts.values()) and state not in ALARMING:
        state = RUNNING
    return Cell(counts, state)
