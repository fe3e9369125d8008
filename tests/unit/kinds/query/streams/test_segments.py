"""A round as stages: who reads, who owns, and who has nothing to do."""

from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.streams.asking import Asking
from rota.kinds.query.streams.generated import Tables
from rota.kinds.query.streams.keygroups import GROUPS, kept_in, partition_of
from rota.kinds.query.streams.pieces import Piece, Place
from rota.kinds.query.streams.pipeline import Pipeline, SourceNode
from rota.kinds.query.streams.policies import Policies
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.segments import Given, Kept, Segments, segments_of
from rota.kinds.query.streams.steps import Reading, SentView, Step, decode_step, schema_bytes
from rota.kinds.query.streams.watermarks import Clock
from rota.kinds.query.streams.windowing import Window, open_window
from rota.kinds.query.streams.windows import tumbling

ROWS = pa.table({"t": pa.array([], pa.int64()), "k": pa.array([], pa.string())})


def pipeline() -> Pipeline:
    """Two sources; windows over the first through a view, and windows of those; windows over the second."""
    found = Pipeline(Asking(SqlEngine()), Asking(SqlEngine(), is_own=True))
    for name in ("a", "b"):
        found.add(name, SourceNode(Tables(ROWS, ROWS), Policies(), 0), ROWS.schema)
    found.add_view("seen", "select * from a")
    for name, source, time, by in (
        ("minutes", "seen", "t", ("k",)),
        ("hours", "minutes", "window_start", ()),
        ("others", "b", "t", ("k",)),
    ):
        window = Window(name=name, source=source, shape=tumbling(1), time=time, by=by, aggregates=(("n", "count(*)"),))
        operator = open_window(window, found.schema_of(source), found.asking)
        found.add(name, operator, operator.schema)
    return found


def cut(reads: tuple[str, ...], kept: Kept | None = None, **more: Any) -> tuple[Segments, dict[str, Step]]:
    schema = schema_bytes(ROWS.schema)
    reading = Reading(source="", partition="", schema=schema, policies=Policies())
    view = SentView(name="seen", reads="a", sql="", plan=b"", leaf="", schema=schema, on_error="fail")
    given = Given(
        plan=Plan(round=1, planned_at_ms=0),
        clocks={"minutes": Clock({"a/0": 5, "a/1": 5}, 5), "hours": Clock({}, 5)},
        kept=kept or Kept(3, {}),
        parallelism=3,
        folder="/stream",
        aside="pieces/1-1",
        readings={
            name: [structs.replace(reading, source=name, partition=f"{name}/{at}") for at in (0, 1)] for name in reads
        },
        views={"seen": view},
        wanted=("hours", "others"),
    )
    found = segments_of(pipeline(), structs.replace(given, **more))
    return found, {stage.id: decode_step(stage.plan) for stage in found.stages}


def test_a_source_and_all_views_over_it_are_one_stage_and_operators_have_one_each() -> None:
    found, steps = cut(("a", "b"))
    assert [(stage.id, stage.tasks, stage.upstream) for stage in found.stages] == [
        ("a", 2, ()),
        ("b", 2, ()),
        ("minutes", 3, ("a",)),
        ("hours", 3, ("minutes",)),
        ("others", 3, ("b",)),
    ]
    assert [view.name for view in steps["a"].views] == ["seen"]
    assert [(feed.operator, feed.source, feed.first) for feed in steps["a"].feeds] == [("minutes", "seen", 0)]
    owning = steps["hours"].owning
    assert owning is not None
    assert owning.follows == (0,), "time is what those say whose windows it reads"
    assert not owning.partitions
    assert steps["hours"].wanted == ("hours",)


def test_whoever_has_nothing_to_do_has_no_tasks() -> None:
    found, _ = cut(("b",))
    assert [stage.id for stage in found.stages] == ["b", "others"]
    assert found.clocks["minutes"].mark == 5
    assert found.clocks["hours"].mark == 5


def test_the_end_of_all_rows_reaches_everybody() -> None:
    found, steps = cut((), plan=Plan(round=2, planned_at_ms=0, is_final=True))
    assert [stage.id for stage in found.stages] == ["minutes", "hours", "others"]
    owning = steps["minutes"].owning
    assert owning is not None
    assert owning.takings == ()


def test_state_that_was_kept_otherwise_is_dealt_anew_even_if_nothing_happens() -> None:
    place = Place("/stream/x", 0, 0, "")
    old = [(Piece(kind="state", node="minutes", table="panes", partition=at, file="pieces/x"), place) for at in (0, 1)]
    found, steps = cut(("b",), Kept(2, {"minutes": old}))
    assert [stage.id for stage in found.stages] == ["b", "minutes", "hours", "others"]
    owning = steps["minutes"].owning
    assert owning is not None
    assert not owning.is_dealt
    assert [[piece.partition for piece, _ in each] for each in owning.kept] == [[0], [0, 1], [1]]


@pytest.mark.parametrize(("ours", "others"), [(1, 1), (3, 3), (1, 4), (4, 1), (3, 2), (5, 7), (200, 3)])
def test_every_group_is_found_where_it_was_kept(ours: int, others: int) -> None:
    for group in range(GROUPS):
        assert partition_of(group, others) in kept_in(partition_of(group, ours), ours, others)
