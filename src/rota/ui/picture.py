"""The graph of a run: the picture of its pinned definition, with how each node stands."""

import asyncio

from msgspec import Struct

from rota.core.ids import TaskId
from rota.core.questions import RunView
from rota.core.sums import TaskSum, add_up
from rota.ui.drawing import EVERYTHING, NODES_SHOWN_MAX, NOTHING, Arrow, Drawing, Node, draw
from rota.ui.grid import cell_of, ended_of
from rota.ui.reading import Counts, Reader
from rota.ui.sums import Sums
from rota.ui.words import run_url, task_url

VIEW = "graph"
GROUPS_SHOWN = 8


class Shown(Struct, frozen=True):
    """A node, and how it stands."""

    node: Node
    counts: Counts
    state: str
    ended: int
    total: int
    url: str


class Group(Struct, frozen=True):
    """A group of the graph, and where it is opened or closed."""

    name: str
    tasks: int
    is_open: bool
    url: str


class Picture(Struct, frozen=True):
    """What is shown of the graph, and where the rest of it is."""

    drawing: Drawing
    nodes: list[Shown]
    arrows: list[Arrow]
    groups: list[Group]
    before: str
    after: str
    open_all: str
    close_all: str


async def read_picture(reader: Reader, view: RunView, chosen: tuple[str, ...], first: int) -> Picture:
    """The graph of a run with these groups open; as is best if none are named."""
    wanted = chosen or None
    key = (reader.line.tenant, view.graph, wanted, first)
    drawing = reader.memory.drawings.get(key)
    if drawing is None:
        # In a thread: a graph of very many tasks takes longer than the loop may be held.
        drawn = await asyncio.to_thread(draw, await reader.graph(view.graph), wanted, first)
        drawing = reader.memory.drawings.put(key, drawn)
    names = [name for node in drawing.nodes for name in node.members]
    found = await Sums(reader, view, names).get()
    here = {"open": chosen}
    return Picture(
        drawing,
        [_shown(node, found, view, drawing) for node in drawing.nodes],
        drawing.arrows,
        _groups(view, drawing),
        run_url(view.id, VIEW, row=max(0, drawing.first - NODES_SHOWN_MAX), **here) if drawing.first else "",
        run_url(view.id, VIEW, row=drawing.last, **here) if drawing.last < drawing.total else "",
        run_url(view.id, VIEW, open=EVERYTHING),
        run_url(view.id, VIEW, open=NOTHING),
    )


def _shown(node: Node, found: dict[TaskId, TaskSum], view: RunView, drawing: Drawing) -> Shown:
    told = add_up([found[TaskId(name)] for name in node.members if name in found])
    if node.is_group:
        url = run_url(view.id, VIEW, open=(*drawing.open, node.name))
    elif node.is_mapped:
        url = f"{run_url(view.id, 'tasks', group=node.name)}"
    else:
        url = task_url(view.id, node.name)
    counts = told.counts
    return Shown(node, counts, cell_of(counts).state or "none", ended_of(counts), sum(counts.values()), url)


def _groups(view: RunView, drawing: Drawing) -> list[Group]:
    """Those that are open, and as many others as do not get in the way; each node leads to its group as well."""
    found = [_group(name, tasks, view, drawing) for name, tasks in drawing.groups.items()]
    return sorted(found, key=lambda group: not group.is_open)[:GROUPS_SHOWN]


def _group(name: str, tasks: int, view: RunView, drawing: Drawing) -> Group:
    is_open = name in drawing.open
    others = tuple(each for each in drawing.open if each != name and not (is_open and each.startswith(f"{name}.")))
    chosen = others if is_open else (*others, name)
    return Group(name, tasks, is_open, run_url(view.id, VIEW, open=chosen or NOTHING))
