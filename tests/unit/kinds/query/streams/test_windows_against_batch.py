"""What windows give, round by round, is what one query over the same rows gives: whatever the order, twice or late."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.streams.asking import Asking
from rota.kinds.query.streams.operators import Moment
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.watermarks import NEVER, Clock
from rota.kinds.query.streams.windowing import GONE, REVISION, Window, open_window
from rota.kinds.query.streams.windows import Gaps, Shape, Sliding, Tumbling
from tests.effort import examples

pytestmark = pytest.mark.slow

ASKING = Asking(SqlEngine({"datafusion.execution.target_partitions": "1"}))
SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
BASE = 1_000_000
DELAY_MS = 50
SIZE_MS = 60
SHAPES: tuple[Shape, ...] = (Tumbling(SIZE_MS), Sliding(SIZE_MS, 20), Gaps(SIZE_MS))
BATCH = {
    Tumbling: "select k, t - t % 60 as s, t - t % 60 + 60 as e, count(*) as n, sum(v) as total from r group by k, s, e",
    Sliding: (
        "select k, s, s + 60 as e, count(*) as n, sum(v) as total from "
        "(select k, v, t - t % 20 - o * 20 as s from r cross join (select unnest(range(0, 3)) as o)) group by k, s"
    ),
    Gaps: (
        "with f as (select *, case when t >= max(t) over w + 60 then 1 else 0 end as f from r "
        "window w as (partition by k order by t rows between unbounded preceding and 1 preceding)), "
        "i as (select *, sum(f) over (partition by k order by t rows unbounded preceding) as i from f) "
        "select k, min(t) as s, max(t) + 60 as e, count(*) as n, sum(v) as total from i group by k, i"
    ),
}


@st.composite
def rounds_of(draw: st.DrawFn, lateness_ms: int) -> list[list[dict[str, Any]]]:
    """Rounds with rows that come in time, some of them twice, and some that are late beyond all doubt."""
    found: list[list[dict[str, Any]]] = []
    peak = NEVER
    for _ in range(draw(st.integers(1, 6))):
        mark = peak - DELAY_MS if peak != NEVER else NEVER
        least = mark - lateness_ms if mark != NEVER else BASE
        rows: list[dict[str, Any]] = []
        for _ in range(draw(st.integers(0, 12))):
            is_late = mark != NEVER and draw(st.integers(0, 5)) == 0
            if is_late:
                time = least - SIZE_MS - draw(st.integers(0, 200))
            else:
                time = least + draw(st.integers(0, 150))
            key = draw(st.sampled_from(["a", "b", None]))
            row = {"k": key, "t": time, "v": draw(st.integers(-5, 5))}
            rows += [row] * draw(st.integers(1, 2))
        found.append(rows)
        peak = max([peak, *(row["t"] for row in rows)])
    return found


def run(shape: Shape, lateness_ms: int, rounds: list[list[dict[str, Any]]], partitions: int) -> tuple[Any, pa.Table]:
    """What is given in the end for each window, and what was late."""
    window = Window(
        name="w",
        source="r",
        shape=shape,
        time="t",
        by=("k",),
        aggregates=(("n", "count(*)"), ("total", "sum(v)")),
        delay_ms=DELAY_MS,
        lateness_ms=lateness_ms,
    )
    operator = open_window(window, SCHEMA, ASKING)
    states, clock = [operator.beginning() for _ in range(partitions)], Clock()
    answers: dict[Any, Any] = {}
    late = [SCHEMA.empty_table()]
    for number, rows in enumerate([*rounds, []]):
        plan = Plan(round=number, planned_at_ms=BASE + 10_000, is_final=number == len(rounds))
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        done = operator.step(states, {"r": {"r/0": table}}, Moment(plan, clock, {"r/0": 0}))
        assert done.clock.mark >= clock.mark, "time does not go back"
        states, clock = done.states, done.clock
        late.append(done.late)
        # What is gone goes first: the window that has it now is given in the same round.
        for row in sorted(done.given.to_pylist(), key=lambda row: not row.get(GONE)):
            name = (row["k"], row["window_start"])
            if row.get(GONE):
                assert answers.pop(name) is not None, "only what was given can be gone"
                continue
            if lateness_ms:
                known = answers.get(name)
                assert row[REVISION] >= 0
                assert known is None or row[REVISION] > known[3], "each revision comes once, and after those before it"
            else:
                assert name not in answers, "a window is given once"
            answers[name] = (row["window_end"], row["n"], row["total"], row.get(REVISION, 0))
    assert all(table.num_rows == 0 for state in states for table in state.values()), "nothing is kept after the end"
    return {name: row[:3] for name, row in answers.items()}, pa.concat_tables(late)


def batch(shape: Shape, rounds: list[list[dict[str, Any]]], late: pa.Table) -> Any:
    """The same from one query over all rows that were not late."""
    rows = [row for each in rounds for row in each]
    for row in late.to_pylist():
        rows.remove(row)
    found = ASKING.ask(BATCH[type(shape)], r=pa.Table.from_pylist(rows, schema=SCHEMA)).to_pylist()
    return {(row["k"], row["s"]): (row["e"], row["n"], row["total"]) for row in found}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
@examples(12)
@given(rounds=rounds_of(lateness_ms=0), partitions=st.integers(1, 3))
def test_windows_are_those_of_a_query_over_all_rows_that_were_not_late(
    shape: Shape, rounds: list[list[dict[str, Any]]], partitions: int
) -> None:
    answers, late = run(shape, 0, rounds, partitions)
    assert answers == batch(shape, rounds, late)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
@examples(12)
@given(rounds=rounds_of(lateness_ms=100), partitions=st.integers(1, 2))
def test_rows_within_the_allowed_lateness_correct_what_was_given(
    shape: Shape, rounds: list[list[dict[str, Any]]], partitions: int
) -> None:
    answers, late = run(shape, 100, rounds, partitions)
    assert answers == batch(shape, rounds, late)


def _at(*times: int) -> list[dict[str, Any]]:
    return [{"k": "a", "t": BASE + time, "v": 1} for time in times]


def test_a_late_row_is_on_the_side_and_in_no_window() -> None:
    answers, late = run(Tumbling(SIZE_MS), 0, [_at(0, 300), _at(1)], 1)
    assert late.to_pylist() == _at(1)
    assert sum(row[1] for row in answers.values()) == 2


def test_sessions_that_a_late_row_joins_become_one_and_the_later_one_is_gone() -> None:
    answers, late = run(Gaps(SIZE_MS), 500, [_at(0, 100, 400), _at(50)], 1)
    assert late.num_rows == 0
    assert answers == {("a", BASE): (BASE + 160, 3, 3), ("a", BASE + 400): (BASE + 460, 1, 1)}


def test_times_before_1970_have_windows_too() -> None:
    rows = [{"k": "a", "t": -1, "v": 1}, {"k": "a", "t": -61, "v": 1}, {"k": "a", "t": 0, "v": 1}]
    answers, _ = run(Tumbling(SIZE_MS), 0, [rows], 1)
    assert sorted(start for _, start in answers) == [-120, -60, 0]
