"""A definition as a picture: which nodes are drawn, what they stand for, and where they are. It never changes.

A group (`load` of `load.fetch` and `load.check`) is one node until it is opened, and so is a mapped task. Of a graph
with very many nodes a window is drawn.
"""

from collections.abc import Iterable

from msgspec import Struct

from rota.core.graph import LiveGraph
from rota.ui.layout import GAP_X, Box, Point, lay_out

# With more nodes than this, groups are closed unless somebody opens them.
OPEN_NODES_MAX = 40
NODES_SHOWN_MAX = 150
EDGES_SHOWN_MAX = 600
CHAR_WIDTH = 7.6
COUNT_CHAR_WIDTH = 6.8
LABEL_CHARS_MAX = 26
PAD = 42.0
WIDTH_LEAST = 84.0
MARGIN = 12.0
# In the place of names: nothing is open, or everything.
NOTHING = "-"
EVERYTHING = "*"


class Node(Struct, frozen=True):
    """A task, a mapped task or a closed group, with the tasks of the definition that it stands for."""

    name: str
    label: str
    members: tuple[str, ...]
    is_group: bool
    is_mapped: bool
    box: Box
    # How many neighbours are not drawn, before it and after it.
    ups_hidden: int
    downs_hidden: int


class Arrow(Struct, frozen=True):
    """From one node to another, as a path. `is_back`: out of a group and into it again."""

    path: str
    is_back: bool
    up: str
    down: str


class Drawing(Struct, frozen=True):
    """Nodes from the number `first` on, of `total`; `groups` are all there are, with how many tasks each has."""

    nodes: list[Node]
    arrows: list[Arrow]
    width: float
    height: float
    first: int
    total: int
    arrows_hidden: int
    groups: dict[str, int]
    open: tuple[str, ...]

    @property
    def last(self) -> int:
        """The node after those that are drawn."""
        return self.first + len(self.nodes)


def draw(graph: LiveGraph, chosen: tuple[str, ...] | None, first: int) -> Drawing:
    """The picture with these groups open; None: as is best."""
    groups = _groups(graph)
    if chosen is None:
        chosen = (EVERYTHING if len(graph.specs) <= OPEN_NODES_MAX else NOTHING,)
    if EVERYTHING in chosen:
        opened = tuple(groups)
    else:
        opened = tuple(name for name in chosen if name in groups)
    stands = [_standing(spec.id, groups, opened) for spec in graph.specs]
    members: dict[str, list[int]] = {}
    for node in graph.by_rank:
        members.setdefault(stands[node], []).append(node)
    names = list(members)
    first = max(0, min(first, len(names) - 1))
    shown = names[first : first + NODES_SHOWN_MAX]
    pairs, back, hidden_ups, hidden_downs = _edges(graph, stands, names, shown)
    dropped = max(0, len(pairs) - EDGES_SHOWN_MAX)
    pairs = pairs[:EDGES_SHOWN_MAX]
    labels = [_label(name) for name in shown]
    counts = [sum(graph.width[node] or 1 for node in members[name]) for name in shown]
    found = lay_out([_width(label, count) for label, count in zip(labels, counts, strict=True)], pairs)
    nodes = [
        Node(
            name,
            label,
            tuple(graph.specs[node].id for node in members[name]),
            name in groups and name not in graph.index,
            len(members[name]) == 1 and graph.is_group(members[name][0]),
            Box(box.x + MARGIN, box.y + MARGIN, box.width, box.height),
            hidden_ups.get(name, 0),
            hidden_downs.get(name, 0),
        )
        for name, label, box in zip(shown, labels, found.boxes, strict=True)
    ]
    arrows = [
        Arrow(_curve(path), is_back=False, up=shown[up], down=shown[down])
        for path, (up, down) in zip(found.paths, pairs, strict=True)
    ]
    arrows += [Arrow(_around(nodes[up].box, nodes[down].box), True, shown[up], shown[down]) for up, down in back]
    width, height = found.width + 2 * MARGIN, found.height + 2 * MARGIN
    return Drawing(nodes, arrows, width, height, first, len(names), dropped, groups, opened)


def _groups(graph: LiveGraph) -> dict[str, int]:
    """The groups that ids speak of, each with how many nodes it has; one task alone is none."""
    found: dict[str, int] = {}
    for spec in graph.specs:
        parts = spec.id.split(".")
        for depth in range(1, len(parts)):
            name = ".".join(parts[:depth])
            found[name] = found.get(name, 0) + 1
    return {name: count for name, count in found.items() if count > 1 and name}


def _standing(id: str, groups: dict[str, int], opened: Iterable[str]) -> str:
    """The outermost group of a task that is closed; itself if all are open."""
    parts = id.split(".")
    for depth in range(1, len(parts)):
        name = ".".join(parts[:depth])
        if name in groups and name not in opened:
            return name
    return id


def _edges(
    graph: LiveGraph, stands: list[str], names: list[str], shown: list[str]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], dict[str, int], dict[str, int]]:
    """Edges between what is shown; those that lead back into a group; and how many lead to what is not shown."""
    rank = {name: number for number, name in enumerate(names)}
    place = {name: number for number, name in enumerate(shown)}
    forth: dict[tuple[int, int], None] = {}
    back: dict[tuple[int, int], None] = {}
    ups: dict[str, dict[str, None]] = {}
    downs: dict[str, dict[str, None]] = {}
    for node, before in enumerate(graph.ups):
        down = stands[node]
        for each in before:
            up = stands[each]
            if up == down:
                continue
            if up in place and down in place:
                (forth if rank[up] < rank[down] else back)[place[up], place[down]] = None
            elif down in place:
                ups.setdefault(down, {})[up] = None
            elif up in place:
                downs.setdefault(up, {})[down] = None
    counted = ({name: len(found) for name, found in each.items()} for each in (ups, downs))
    hidden_ups, hidden_downs = counted
    return sorted(forth), sorted(back), hidden_ups, hidden_downs


def _label(name: str) -> str:
    """A name that fits: of a long one its end, where it differs from others."""
    return name if len(name) <= LABEL_CHARS_MAX else f"…{name[1 - LABEL_CHARS_MAX :]}"


def _width(label: str, tasks: int) -> float:
    """Enough for its name and, if it stands for several, for how many of them have ended."""
    counted = len(f"{tasks:,} of {tasks:,}") * COUNT_CHAR_WIDTH if tasks > 1 else 0.0
    return max(WIDTH_LEAST, len(label) * CHAR_WIDTH + PAD, counted + PAD)


def _curve(points: list[Point]) -> str:
    """A line that leaves and arrives level."""
    (x, y), *rest = [(x + MARGIN, y + MARGIN) for x, y in points]
    path = [f"M{x:.0f} {y:.1f}"]
    for next_x, next_y in rest:
        middle = (x + next_x) / 2
        if abs(next_y - y) < 0.5:
            path.append(f"H{next_x:.0f}")
        else:
            path.append(f"C{middle:.0f} {y:.1f} {middle:.0f} {next_y:.1f} {next_x:.0f} {next_y:.1f}")
        x, y = next_x, next_y
    return "".join(path)


def _around(up: Box, down: Box) -> str:
    """A line from the right of a node to the left of one that stands before it, beneath both."""
    out, into = up.x + up.width, down.x
    low = max(up.y + up.height, down.y + down.height) + 5
    reach = GAP_X / 3
    return (
        f"M{out:.0f} {up.y + up.height / 2:.1f}h{reach:.0f}V{low:.1f}H{into - reach:.0f}"
        f"V{down.y + down.height / 2:.1f}h{reach:.0f}"
    )
