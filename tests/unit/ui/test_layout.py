"""Graphs on a page: edges go right, nodes never overlap, and what is straight stays straight."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ui import layout
from rota.ui.layout import Box, Layout, lay_out
from tests.effort import examples


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[float], list[tuple[int, int]]]:
    widths = draw(st.lists(st.floats(20, 300, allow_nan=False), min_size=1, max_size=40))
    last = len(widths) - 1
    pairs = st.tuples(st.integers(0, last), st.integers(0, last)).filter(lambda pair: pair[0] < pair[1])
    edges = draw(st.lists(pairs, max_size=80, unique=True)) if last else []
    return widths, edges


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def check(found: Layout, edges: list[tuple[int, int]]) -> None:
    for up, down in edges:
        assert found.boxes[up].x + found.boxes[up].width < found.boxes[down].x, "edges go right"
    for number, one in enumerate(found.boxes):
        assert one.x >= 0
        assert one.y >= -1e-6
        assert one.x + one.width <= found.width + 1e-6
        assert one.y + one.height <= found.height + 1e-6
        assert not any(overlap(one, other) for other in found.boxes[:number]), "nodes never overlap"
    for path in found.paths:
        assert all(here[0] <= there[0] for here, there in pairwise(path)), "edges never turn back"


@examples(150)
@given(graphs())
def test_edges_go_right_and_nodes_never_overlap(drawn: tuple[list[float], list[tuple[int, int]]]):
    widths, edges = drawn
    found = lay_out(widths, edges)
    assert (len(found.boxes), len(found.paths)) == (len(widths), len(edges))
    check(found, edges)


@examples(30)
@given(graphs())
def test_the_same_graph_is_laid_out_the_same(drawn: tuple[list[float], list[tuple[int, int]]]):
    assert lay_out(*drawn) == lay_out(*drawn)


def test_a_chain_is_straight():
    found = lay_out([100.0] * 5, [(n, n + 1) for n in range(4)])
    assert {box.y for box in found.boxes} == {0.0}


def test_edges_that_need_not_cross_do_not():
    # Two chains whose nodes come in the wrong order.
    found = lay_out([50.0] * 4, [(0, 3), (1, 2)])
    assert (found.boxes[0].y < found.boxes[1].y) == (found.boxes[3].y < found.boxes[2].y)


def test_an_edge_that_passes_a_layer_goes_around_what_is_there():
    found = lay_out([50.0] * 3, [(0, 1), (1, 2), (0, 2)])
    (_, first, second, _) = found.paths[2]
    middle = found.boxes[1]
    assert first[1] == second[1]
    assert not middle.y <= first[1] <= middle.y + middle.height


def test_what_nothing_leads_to_is_near_what_it_leads_to():
    found = lay_out([50.0] * 4, [(0, 1), (1, 2), (3, 2)])
    assert found.boxes[3].x == found.boxes[1].x


def test_very_many_long_edges_are_drawn_straight(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layout, "PASSING_MAX", 3)
    edges = [(one, other) for one in range(8) for other in range(one + 1, 8)]
    found = lay_out([50.0] * 8, edges)
    check(found, edges)
    assert {len(path) for path in found.paths} == {2}


def test_nothing_is_laid_out_as_nothing():
    assert lay_out([], []) == Layout([], [], 0.0, 0.0)
