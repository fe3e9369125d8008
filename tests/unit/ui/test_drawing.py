"""The picture of a definition: what is one node, what is drawn, and where it leads."""

import pytest

from rota.core.graph import LiveGraph
from rota.core.model import Graph, TaskSpec
from rota.ui import drawing
from rota.ui.drawing import Drawing, draw


def live(*specs: TaskSpec) -> LiveGraph:
    return LiveGraph("t", "d", Graph(name="g", tasks=specs))


def task(id: str, *upstream: str, width: int = 1) -> TaskSpec:
    return TaskSpec(id=id, upstream=upstream, width=width)


def names(found: Drawing) -> list[str]:
    return [node.name for node in found.nodes]


ETL = (
    task("start"),
    task("load.fetch", "start"),
    task("load.inner.a", "load.fetch"),
    task("load.inner.b", "load.fetch"),
    task("work", "load.inner.a", "load.inner.b", width=1_000),
    task("end.only", "work"),
)


def test_a_closed_group_is_one_node_with_the_edges_of_its_tasks():
    found = draw(live(*ETL), (drawing.NOTHING,), 0)
    assert names(found) == ["start", "load", "work", "end.only"]
    load = found.nodes[1]
    assert (load.is_group, load.is_mapped) == (True, False)
    assert load.members == ("load.fetch", "load.inner.a", "load.inner.b")
    assert [(arrow.up, arrow.down) for arrow in found.arrows] == [
        ("start", "load"),
        ("load", "work"),
        ("work", "end.only"),
    ]
    assert found.groups == {"load": 3, "load.inner": 2}, "one task alone is no group"


def test_a_group_is_opened_by_itself_and_what_is_in_it_stays_closed():
    found = draw(live(*ETL), ("load",), 0)
    assert names(found) == ["start", "load.fetch", "load.inner", "work", "end.only"]
    assert draw(live(*ETL), ("load", "load.inner", "nothing"), 0).open == ("load", "load.inner")


def test_a_mapped_task_is_one_node():
    (node,) = [node for node in draw(live(*ETL), None, 0).nodes if node.name == "work"]
    assert (node.is_mapped, node.is_group) == (True, False)
    assert node.box.width >= drawing.PAD + len("1,000 of 1,000") * drawing.COUNT_CHAR_WIDTH


def test_groups_are_closed_by_themselves_only_where_there_is_much():
    assert len(draw(live(*ETL), None, 0).nodes) == len(ETL)
    many = [task(f"g{number % 5}.t{number}") for number in range(drawing.OPEN_NODES_MAX + 1)]
    assert names(draw(live(*many), None, 0)) == [f"g{number}" for number in range(5)]


def test_what_leads_out_of_a_group_and_back_is_drawn_around():
    found = draw(live(task("g.a"), task("between", "g.a"), task("g.b", "between")), (drawing.NOTHING,), 0)
    assert [(arrow.up, arrow.down, arrow.is_back) for arrow in found.arrows] == [
        ("g", "between", False),
        ("between", "g", True),
    ]


def test_of_very_many_nodes_a_window_is_drawn_and_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drawing, "NODES_SHOWN_MAX", 4)
    chain = [task("t0"), *(task(f"t{number}", f"t{number - 1}") for number in range(1, 10))]
    found = draw(live(*chain), None, 4)
    assert names(found) == ["t4", "t5", "t6", "t7"]
    assert (found.first, found.last, found.total) == (4, 8, 10)
    assert [node.ups_hidden for node in found.nodes] == [1, 0, 0, 0]
    assert [node.downs_hidden for node in found.nodes] == [0, 0, 0, 1]
    assert draw(live(*chain), None, 99).first == 9


def test_of_very_many_edges_some_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drawing, "EDGES_SHOWN_MAX", 10)
    ups = [f"u{number}" for number in range(5)]
    found = draw(live(*(task(up) for up in ups), *(task(f"d{number}", *ups) for number in range(5))), None, 0)
    assert (len(found.arrows), found.arrows_hidden) == (10, 15)


def test_a_long_name_is_shown_by_its_end():
    found = draw(live(task("a_name_that_is_much_too_long_for_a_node_of_a_picture")), None, 0)
    assert found.nodes[0].label.startswith("…")
    assert found.nodes[0].label.endswith("a_picture")
    assert len(found.nodes[0].label) <= drawing.LABEL_CHARS_MAX
