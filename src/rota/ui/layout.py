"""Where the nodes and edges of a graph go: in layers from left to right, with few crossings.

Nothing here knows what a node is. Layers are the longest paths; inside them nodes are ordered by barycentres, swept to
and fro, and then drawn towards their neighbours as far as the order and the gaps allow. An edge that passes a layer has
a place there like a node, so that it goes around the others.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

NODE_HEIGHT = 34.0
GAP_X = 46.0
GAP_Y = 12.0
# An edge that passes a layer takes less room than a node.
PASSING_HEIGHT = 4.0
SWEEPS = 8
PULLS = 6
# More edges than this have no places of their own in the layers that they pass: they are drawn straight.
PASSING_MAX = 4_000

Edge = tuple[int, int]
Point = tuple[float, float]


class Box(Struct, frozen=True):
    """Where a node is."""

    x: float
    y: float
    width: float
    height: float


class Layout(Struct, frozen=True):
    """Boxes by node, the points that each edge goes through, and how large it is all together."""

    boxes: list[Box]
    paths: list[list[Point]]
    width: float
    height: float


def lay_out(widths: Sequence[float], edges: Sequence[Edge]) -> Layout:
    """Lay out nodes of these widths. Edges point from what comes first; there is no way around in a circle."""
    if not widths:
        return Layout([], [[] for _ in edges], 0.0, 0.0)
    layer_of = _layers(len(widths), edges)
    slots = _Slots(widths, edges, layer_of)
    slots.untangle()
    slots.settle()
    return slots.finish(edges)


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """The length of the longest path to each node. What nothing leads to is put right before what it leads to."""
    ups: list[list[int]] = [[] for _ in range(count)]
    downs: list[list[int]] = [[] for _ in range(count)]
    for up, down in edges:
        ups[down].append(up)
        downs[up].append(down)
    left = [len(each) for each in ups]
    ready = [node for node in range(count) if not left[node]]
    layer_of = [0] * count
    order: list[int] = []
    for node in ready:
        order.append(node)
        for down in downs[node]:
            layer_of[down] = max(layer_of[down], layer_of[node] + 1)
            left[down] -= 1
            if not left[down]:
                ready.append(down)
    assert len(order) == count, "a graph that is laid out has no circle"
    for node in order:
        if not ups[node] and downs[node]:
            layer_of[node] = min(layer_of[down] for down in downs[node]) - 1
    return layer_of


class _Slots:
    """Places in layers: one for each node, and one for each layer that an edge passes."""

    def __init__(self, widths: Sequence[float], edges: Sequence[Edge], layer_of: list[int]) -> None:
        self._widths = list(widths)
        self._heights = [NODE_HEIGHT] * len(widths)
        self._nodes = len(widths)
        self._layer_of = list(layer_of)
        # By edge: the slots it goes through, from its beginning to its end.
        self._chains: list[list[int]] = []
        passing = sum(layer_of[down] - layer_of[up] - 1 for up, down in edges)
        for up, down in edges:
            between = range(layer_of[up] + 1, layer_of[down]) if passing <= PASSING_MAX else ()
            self._chains.append([up, *(self._add(layer) for layer in between), down])
        count = len(self._heights)
        self._before: list[list[int]] = [[] for _ in range(count)]
        self._after: list[list[int]] = [[] for _ in range(count)]
        for chain in self._chains:
            for one, other in pairwise(chain):
                self._before[other].append(one)
                self._after[one].append(other)
        self._layers: list[list[int]] = [[] for _ in range(max(self._layer_of) + 1)]
        for slot, layer in enumerate(self._layer_of):
            self._layers[layer].append(slot)
        self._y = [0.0] * count

    def _add(self, layer: int) -> int:
        self._layer_of.append(layer)
        self._heights.append(PASSING_HEIGHT)
        return len(self._heights) - 1

    # Order.

    def untangle(self) -> None:
        """Sweep to and fro, and keep the order with the fewest crossings."""
        best, fewest = [list(layer) for layer in self._layers], self._crossings()
        for sweep in range(SWEEPS):
            if not fewest:
                break
            is_forth = sweep % 2 == 0
            near = self._before if is_forth else self._after
            layers = self._layers[1:] if is_forth else self._layers[-2::-1]
            place = self._places()
            for layer in layers:
                weights = {slot: _mean([place[each] for each in near[slot]], place[slot]) for slot in layer}
                layer.sort(key=weights.__getitem__)
                for position, slot in enumerate(layer):
                    place[slot] = float(position)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(layer) for layer in self._layers], crossings
        self._layers = best

    def _places(self) -> list[float]:
        place = [0.0] * len(self._heights)
        for layer in self._layers:
            for position, slot in enumerate(layer):
                place[slot] = float(position)
        return place

    def _crossings(self) -> int:
        """How often two edges cross between neighbouring layers."""
        place = self._places()
        found = 0
        for layer in self._layers:
            seen: list[float] = []
            for slot in layer:
                ends = sorted(place[each] for each in self._after[slot])
                found += sum(len(seen) - bisect_right(seen, end) for end in ends)
                for end in ends:
                    insort(seen, end)
        return found

    # Coordinates.

    def settle(self) -> None:
        """Draw every slot towards its neighbours, as far as order and gaps allow."""
        for layer in self._layers:
            self._place(layer, [0.0] * len(layer))
        for pull in range(PULLS):
            is_forth = pull % 2 == 0
            near = self._before if is_forth else self._after
            for layer in self._layers if is_forth else self._layers[::-1]:
                self._place(layer, [_mean([self._y[each] for each in near[slot]], self._y[slot]) for slot in layer])
        top = min(self._y[slot] - self._heights[slot] / 2 for layer in self._layers for slot in layer)
        self._y = [y - top for y in self._y]

    def _place(self, layer: list[int], wanted: list[float]) -> None:
        """The middles that are nearest to what is wanted, with the gaps that are needed (pool adjacent violators)."""
        offset = 0.0
        offsets: list[float] = []
        for number, slot in enumerate(layer):
            if number:
                before = layer[number - 1]
                offset += (self._heights[before] + self._heights[slot]) / 2 + GAP_Y
            offsets.append(offset)
        pools: list[tuple[float, int]] = []
        for want, shift in zip(wanted, offsets, strict=True):
            total, count = want - shift, 1
            while pools and pools[-1][0] / pools[-1][1] > total / count:
                other, others = pools.pop()
                total, count = total + other, count + others
            pools.append((total, count))
        number = 0
        for total, count in pools:
            for _ in range(count):
                self._y[layer[number]] = total / count + offsets[number]
                number += 1

    def finish(self, edges: Sequence[Edge]) -> Layout:
        """Everything where it is."""
        starts: list[float] = []
        wides: list[float] = []
        x = 0.0
        for layer in self._layers:
            wide = max([self._widths[slot] for slot in layer if slot < self._nodes], default=0.0)
            starts.append(x)
            wides.append(wide)
            x += wide + GAP_X
        boxes = [
            Box(starts[self._layer_of[node]], self._y[node] - NODE_HEIGHT / 2, self._widths[node], NODE_HEIGHT)
            for node in range(self._nodes)
        ]
        paths: list[list[Point]] = []
        for chain, (up, down) in zip(self._chains, edges, strict=True):
            points = [(boxes[up].x + boxes[up].width, self._y[up])]
            for slot in chain[1:-1]:
                layer = self._layer_of[slot]
                points += [(starts[layer], self._y[slot]), (starts[layer] + wides[layer], self._y[slot])]
            paths.append([*points, (boxes[down].x, self._y[down])])
        height = max(self._y[slot] + self._heights[slot] / 2 for slot in range(len(self._heights)))
        return Layout(boxes, paths, x - GAP_X, height)


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
