"""Two streams joined round by round give what one query over all of their rows gives."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rota
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.streams.asking import Asking
from rota.kinds.query.streams.joining import Join, JoinOperator
from rota.kinds.query.streams.operators import Moment
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.watermarks import Clock

ASKING = Asking(SqlEngine({"datafusion.execution.target_partitions": "1"}))
LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("a", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("b", pa.int64())])
JOIN = Join(name="j", left="l", right="r", on=("k",), times=("t", "t"), least_ms=-20, most_ms=50, delay_ms=30)

rows = st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 400)), max_size=40)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=rows, size=st.integers(1, 20), partitions=st.integers(1, 2))
def test_a_join_gives_each_pair_once_in_whatever_order_rows_come(
    rows: list[tuple[bool, int, int]], size: int, partitions: int
) -> None:
    operator = JoinOperator(JOIN, LEFT, RIGHT, ASKING)
    states, clock = [operator.beginning() for _ in range(partitions)], Clock()
    sides: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    pairs: list[tuple[int, int]] = []
    late: list[str] = []
    for number, begin in enumerate(range(0, len(rows) + size, size)):
        new: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
        for at, (is_left, key, time) in enumerate(rows[begin : begin + size], begin):
            new[is_left].append({"k": key, "t": time, "a" if is_left else "b": at})
        plan = Plan(round=number, planned_at_ms=1_000, is_final=begin >= len(rows))
        tables = (pa.Table.from_pylist(new[True], schema=LEFT), pa.Table.from_pylist(new[False], schema=RIGHT))
        given_rows = {"l": {"l/0": tables[0]}, "r": {"r/0": tables[1]}}
        done = operator.step(states, given_rows, Moment(plan, clock, ("l/0", "r/0")))
        states, clock = done.states, done.clock
        pairs += ((row["a"], row["b"]) for row in done.given.to_pylist())
        late += (row["row"] for row in done.late.to_pylist())
        for is_left in (True, False):
            sides[is_left] += new[is_left]
    gone = [int(row.rpartition(":")[2].rstrip("}")) for row in late]
    wanted = [
        (left["a"], right["b"])
        for left in sides[True]
        for right in sides[False]
        if left["k"] == right["k"] and -20 <= right["t"] - left["t"] <= 50
        if left["a"] not in gone and right["b"] not in gone
    ]
    assert sorted(pairs) == sorted(wanted)
    assert all(table.num_rows == 0 for state in states for table in state.values()), "nobody waits after the end"


@pytest.mark.parametrize("waiting_max", [5, 1_000])
def test_the_side_that_is_ahead_waits_and_nothing_is_dropped(tmp_path: Any, waiting_max: int) -> None:
    count = 60
    left = pa.table({"k": [1] * count, "t": list(range(0, count * 10, 10)), "a": list(range(count))})
    # Many more rows in the same time, so that this side is always behind.
    right = pa.table({"k": [1] * count * 5, "t": list(range(0, count * 10, 2)), "b": list(range(count * 5))})
    stream = rota.StreamSession(tmp_path, rows_max=20, every_s=0)
    stream.register_rows("l", left)
    stream.register_rows("r", right)
    stream.register_join("j", "l", "r", on=["k"], time=("t", "t"), within_s=(0, 0.004), waiting_max=waiting_max)
    pairs: list[tuple[int, int]] = []
    most = 0
    with stream.start(now_ms=lambda: 10_000) as running:
        for each in running:
            pairs += ((row["a"], row["b"]) for row in each.rows.get("j", pa.table({})).to_pylist())
            most = max(most, *(piece.rows for piece in each.manifest.pieces if piece.kind == "state"))
    assert sorted(pairs) == [
        (at, at * 5 + more) for at in range(count) for more in range(3) if at * 5 + more < count * 5
    ]
    assert (most <= 20) == (waiting_max == 5), "so many wait as may, and one round more"
