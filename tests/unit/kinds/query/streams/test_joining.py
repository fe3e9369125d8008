"""Two streams joined round by round give what one query over all of their rows gives."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota.core.errors import Refused
from rota.kinds.query.engine import SqlEngine
from rota.kinds.query.streams.asking import Asking
from rota.kinds.query.streams.chain import rounds_in
from rota.kinds.query.streams.generated import Tables
from rota.kinds.query.streams.joining import Join, JoinOperator
from rota.kinds.query.streams.operators import Moment
from rota.kinds.query.streams.rounds import Plan
from rota.kinds.query.streams.watermarks import Clock
from tests.effort import examples
from tests.refusals import refused

pytestmark = pytest.mark.slow

ASKING = Asking(SqlEngine({"datafusion.execution.target_partitions": "1"}))
LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("a", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("b", pa.int64())])
JOIN = Join(name="j", left="l", right="r", on=("k",), times=("t", "t"), least_ms=-20, most_ms=50, delay_ms=30)

rows = st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 400)), max_size=40)


@examples(15)
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
        done = operator.step(states, given_rows, Moment(plan, clock, {"l/0": 0, "r/0": 0}))
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


def crowded(folder: Path, waiting_max: int, within_s: tuple[float, float] = (0, 0.004)) -> rota.StreamSession:
    """Sixty rows, and five times as many in the same time, which are always behind."""
    left = pa.table({"k": [1] * 60, "t": list(range(0, 600, 10)), "a": list(range(60))})
    right = pa.table({"k": [1] * 300, "t": list(range(0, 600, 2)), "b": list(range(300))})
    stream = rota.StreamSession(folder, rows_max=20, every_s=0)
    stream.register_rows("l", left)
    stream.register_rows("r", right)
    stream.register_join("j", "l", "r", on=["k"], time=("t", "t"), within_s=within_s, waiting_max=waiting_max)
    return stream


def pairs_and_most(stream: rota.StreamSession) -> tuple[list[tuple[int, int]], int]:
    """What is joined, and how many rows waited at most."""
    pairs: list[tuple[int, int]] = []
    most = 0
    with stream.start(now_ms=lambda: 10_000) as running:
        for each in running:
            pairs += ((row["a"], row["b"]) for row in each.rows.get("j", pa.table({})).to_pylist())
            most = max(most, sum(piece.rows for piece in each.manifest.pieces if piece.kind == "state"))
    return sorted(pairs), most


NEAR = [(at, at * 5 + more) for at in range(60) for more in range(3) if at * 5 + more < 300]


@pytest.mark.parametrize("waiting_max", [5, 1_000])
def test_no_more_rows_wait_than_may_and_nothing_is_dropped(tmp_path: Path, waiting_max: int) -> None:
    pairs, most = pairs_and_most(crowded(tmp_path, waiting_max))
    assert pairs == NEAR
    assert (most <= 5) == (waiting_max == 5)


def test_rows_that_are_near_each_other_fail_the_stream_if_they_are_too_many_and_it_goes_on_with_more_room(
    tmp_path: Path,
) -> None:
    with refused("stream.full", " j, ", " 9 ", path="waiting_max"):
        pairs_and_most(crowded(tmp_path, 9, (0, 0.100)))
    pairs, most = pairs_and_most(crowded(tmp_path, 40, (0, 0.100)))
    assert most <= 40
    done, _ = pairs_and_most(crowded(tmp_path / "roomy", 1_000, (0, 0.100)))
    before = [pair for pair in done if pair not in pairs]
    assert sorted(before + pairs) == done, "each pair once, of those after the failure"
    assert all(pair[0] < 20 for pair in before), "what was published before it failed"


def _joined(folder: Path, left: Any, right: Any, parallelism: int) -> int:
    stream = rota.StreamSession(folder / str(parallelism), parallelism=parallelism, every_s=0)
    stream.register_rows("l", pa.table({"t": [1, 2, 3, 4], "k": left}))
    stream.register_rows("r", pa.table({"t": [1, 2, 3, 4], "k": right}))
    stream.register_join("j", "l", "r", on=["k"], time=("t", "t"), within_s=(0, 1))
    return sum(each.rows["j"].num_rows for each in stream.run() if "j" in each.rows)


def test_keys_of_types_that_are_spread_otherwise_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"query\.type.*int64.*double"):
        _joined(tmp_path, [1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0], 8)


@pytest.mark.parametrize("parallelism", [1, 8])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1, 2, 3, 4], pa.int8()), pa.array([1, 2, 3, 4], pa.uint64())),
        (pa.array(["a", "b", "c", "d"]), pa.array(["a", "b", "c", "d"], pa.large_string())),
        (pa.array([1, 2, 3, 4], pa.timestamp("ns")), pa.array([1, 2, 3, 4], pa.timestamp("ns"))),
    ],
)
def test_keys_are_joined_by_their_values_in_however_many_partitions(
    tmp_path: Path, left: Any, right: Any, parallelism: int
) -> None:
    assert _joined(tmp_path, left, right, parallelism) == 4


class Growing(Tables):
    """A table to which rows come, one for each second."""

    def __init__(self) -> None:
        super().__init__(pa.table({"t": pa.array([], pa.int64()), "k": pa.array([], pa.int64())}))

    def grow(self, last: int) -> None:
        times = [1_000 * at for at in range(last)]
        self._tables = [pa.table({"t": times, "k": times})]

    def is_over(self, partition: int, begin: tuple[int, ...]) -> bool:
        return False


def test_time_does_not_pass_rows_of_a_side_that_was_held_for_long(tmp_path: Path) -> None:
    now, left, right = [1_000_000], Growing(), Growing()
    stream = rota.StreamSession(tmp_path, rows_max=200, every_s=0)
    stream.register_source("l", left)
    stream.register_source("r", right)
    stream.register_join("j", "l", "r", on=["k"], time=("t", "t"), within_s=(0, 50), waiting_max=60)
    left.grow(200)
    pairs = 0
    with stream.start(follow=False, now_ms=lambda: now[0]) as running:
        # It is silent for less than it may be, and then has come past what was read of the other side.
        for last in (10, 11, 12, 250):
            now[0] += 20_000
            right.grow(last)
            pairs += sum(each.rows["j"].num_rows for each in running if "j" in each.rows)
        assert running.last is not None
        assert "j.late" not in running.last.counts
    assert pairs == 200


def test_nobody_is_held_for_a_side_that_has_ended(tmp_path: Path) -> None:
    stream = rota.StreamSession(tmp_path, rows_max=20, every_s=0)
    stream.register_rows("l", pa.table({"t": list(range(100)), "k": [1] * 100}))
    stream.register_rows("r", pa.table({"t": [0], "k": [1]}))
    stream.register_join("j", "l", "r", on=["k"], time=("t", "t"), within_s=(0, 0.001), waiting_max=5)
    stream.run()
    with stream.start() as running:
        assert running.last is not None
        assert running.last.is_final
        assert running.last.counts["l.rows"] == 100


def slow_side(folder: Path, waiting_max: int, **options: Any) -> rota.StreamSession:
    """Many rows on the right have the same time, before one that lets all of them go."""
    stream = rota.StreamSession(folder, every_s=0, **options)
    stream.register_rows("l", pa.table({"t": list(range(0, 200_000, 1_000)), "k": [1] * 200}))
    stream.register_rows("r", pa.table({"t": [0] * 60 + [500_000], "k": [1] * 61}))
    stream.register_join("j", "l", "r", on=["k"], time=("t", "t"), within_s=(0, 2), waiting_max=waiting_max)
    return stream


@pytest.mark.parametrize("rows_max", [8, 100, 100_000])
def test_what_fits_is_read_in_an_order_in_which_it_does(tmp_path: Path, rows_max: int) -> None:
    rounds = slow_side(tmp_path, 100, rows_max=rows_max).run()
    assert sum(each.rows["j"].num_rows for each in rounds if "j" in each.rows) == 60


def test_rows_that_a_view_makes_more_of_are_read_little_by_little(tmp_path: Path) -> None:
    stream = rota.StreamSession(tmp_path, every_s=0)
    times = list(range(0, 20_000, 100))
    stream.register_rows("l", pa.table({"t": times, "k": times}))
    stream.register_rows("r", pa.table({"t": times, "k": times}))
    stream.register_view("v", "select t, k, unnest(make_array(1, 2, 3, 4)) as n from l")
    stream.register_join("j", "v", "r", on=["k"], time=("t", "t"), within_s=(0, 0.2), waiting_max=100)
    assert sum(each.rows["j"].num_rows for each in stream.run() if "j" in each.rows) == 800


def test_a_smaller_bound_is_reached_by_a_stream_in_which_more_rows_wait(tmp_path: Path) -> None:
    with slow_side(tmp_path, 1_000, rows_max=100).start() as running:
        most = sum(piece.rows for piece in next(iter(running)).manifest.pieces if piece.kind == "state")
    assert most > 80
    with slow_side(tmp_path, 80, rows_max=100).start() as running:
        kept = [sum(piece.rows for piece in each.manifest.pieces if piece.kind == "state") for each in running]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == 0


def test_a_join_in_slices_does_not_wait_for_ever_for_a_side_without_rows(tmp_path: Path) -> None:
    now, left, right = [1_000_000], Growing(), Growing()

    def slice_of_it() -> list[int]:
        stream = rota.StreamSession(tmp_path, rows_max=20, every_s=0)
        stream.register_source("l", left)
        stream.register_source("r", right)
        stream.register_join("j", "l", "r", on=["k"], time=("t", "t"), within_s=(0, 1), waiting_max=20)
        with stream.start(follow=False, now_ms=lambda: now[0]) as running:
            return [each.number for each in running]

    left.grow(40)
    right.grow(1)
    slice_of_it()
    now[0] += 3_600_000
    slice_of_it()
    assert rounds_in(tmp_path)[-1].counts["l.rows"] == 40, "nobody waits an hour for the other side"
