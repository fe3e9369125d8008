"""Watermarks, plans of rounds and key groups: pure, and the same every time."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import Refused
from rota.kinds.query.streams.aggregates import read_aggregates
from rota.kinds.query.streams.generated import Tables
from rota.kinds.query.streams.keygroups import GROUPS, groups_of, partition_of, split
from rota.kinds.query.streams.rounds import Plan, Range, Reading, goes_on, offsets_after, plan_round
from rota.kinds.query.streams.watermarks import END, NEVER, Clock, advanced, carried, heard

P = ("s/0", "s/1")


def test_time_is_the_least_of_all_partitions_less_the_delay() -> None:
    clock = heard(Clock(), {"s/0": 500, "s/1": 300})
    assert advanced(clock, P, delay_ms=50).mark == 250


def test_a_partition_that_was_never_heard_of_holds_time_until_it_is_idle() -> None:
    clock = heard(Clock(), {"s/0": 500})
    assert advanced(clock, P, delay_ms=0).mark == NEVER
    assert advanced(clock, P, delay_ms=0, idle=("s/1",)).mark == 500


def test_time_stands_still_if_all_are_idle_and_ends_when_nothing_can_come() -> None:
    clock = advanced(heard(Clock(), {"s/0": 500, "s/1": 400}), P, delay_ms=0)
    assert advanced(clock, P, delay_ms=0, idle=P).mark == 400
    assert advanced(clock, P, delay_ms=0, is_final=True).mark == END


@given(st.lists(st.dictionaries(st.sampled_from(P), st.integers(0, 1_000)), max_size=20))
def test_time_never_goes_back(peaks: list[dict[str, int]]) -> None:
    clock = Clock()
    for each in peaks:
        after = advanced(heard(clock, each), P, delay_ms=10)
        assert after.mark >= clock.mark
        clock = after


def test_time_is_carried_on_and_does_not_go_back_there_either() -> None:
    assert carried(carried(Clock(), 10), 5).mark == 10


def _reading(*sizes: int, idle_ms: int = 0) -> Reading:
    return Reading("s", Tables(*(pa.table({"x": list(range(size))}) for size in sizes)), len(sizes), idle_ms)


def test_a_plan_shares_what_may_be_read_and_knows_the_last_round() -> None:
    reading = _reading(10, 3)
    plan = plan_round(1, [reading], {}, {}, rows_max=8, now_ms=7)
    assert plan is not None
    assert plan.ranges == (Range("s", 0, (0,), (4,)), Range("s", 1, (0,), (3,)))
    assert not plan.is_final
    offsets = offsets_after({}, plan)
    last = plan_round(2, [reading], offsets, {}, rows_max=100, now_ms=7)
    assert last is not None
    assert last.ranges == (Range("s", 0, (4,), (10,)),)
    assert last.is_final


class Endless(Tables):
    """Tables to which rows could still come."""

    def is_over(self, partition: int, begin: tuple[int, ...]) -> bool:
        return False


def test_a_partition_that_is_held_is_not_read_and_never_idle() -> None:
    other = Reading("o", Endless(pa.table({"x": [1]})), 1, 1_000)
    held = Reading("s", Endless(pa.table({"x": [1]})), 1, 1_000)
    offsets = {"o/0": (1,)}
    heard = {"s/0": 0, "o/0": 8_500}
    assert plan_round(1, [held, other], offsets, heard, rows_max=8, now_ms=9_000, allowed={"s/0": 0}) is None


def test_no_more_rows_of_a_partition_are_read_than_there_is_room_for() -> None:
    plan = plan_round(1, [_reading(10, 10)], {}, {}, rows_max=8, now_ms=0, allowed={"s/0": 3, "s/1": 100})
    assert plan is not None
    assert [each.end for each in plan.ranges] == [(3,), (4,)]


def test_a_partition_without_rows_is_idle_after_a_while() -> None:
    source = Endless(pa.table({"x": [1]}), pa.table({"x": pa.array([], pa.int64())}))
    reading = Reading("s", source, 2, 1_000)
    early = plan_round(1, [reading], {}, {"s/1": 500}, rows_max=8, now_ms=1_499)
    late = plan_round(1, [reading], {}, {"s/1": 500}, rows_max=8, now_ms=1_500)
    assert early is not None
    assert late is not None
    assert (early.idle, late.idle) == ((), ("s/1",))


def test_a_plan_of_another_line_is_not_gone_on_with() -> None:
    readings = [_reading(10, 10)]
    plan = plan_round(3, readings, {"s/0": (4,)}, {}, rows_max=8, now_ms=0)
    assert plan is not None
    assert goes_on(plan, readings, {"s/0": (4,)})
    assert not goes_on(plan, readings, {"s/0": (5,)})


def test_a_plan_that_reads_nothing_goes_on_only_where_it_was_made() -> None:
    readings = [_reading(10)]
    last = plan_round(3, readings, {"s/0": (10,)}, {}, rows_max=8, now_ms=0)
    assert last is not None
    assert last.is_final
    assert goes_on(last, readings, {"s/0": (10,)})
    assert not goes_on(last, readings, {"s/0": (5,)})
    assert not goes_on(Plan(round=3, planned_at_ms=0, is_final=True), readings, {"s/0": (5,)})


def test_groups_of_keys_stay_what_they_are() -> None:
    table = pa.table({"k": ["a", "b", None], "n": [1, 2, 3]})
    assert groups_of(table, ["k"]).to_pylist() == [116, 71, 69], "state that is kept somewhere was dealt by these"
    wide = table.set_column(0, "k", table["k"].cast(pa.large_string()))
    assert groups_of(wide, ["k"]).equals(groups_of(table, ["k"]))


@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.integers(-5, 5))), st.integers(1, GROUPS))
def test_each_row_is_in_one_partition_and_equal_keys_are_together(
    rows: list[tuple[str | None, int]], partitions: int
) -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.int64())])
    table = pa.Table.from_pylist([{"k": key, "n": number} for key, number in rows], schema=schema)
    parts = split(table, ["k"], partitions)
    assert sum(part.num_rows for part in parts) == len(rows)
    homes = [{row["k"] for row in part.to_pylist()} for part in parts]
    assert sum(map(len, homes)) == len({key for key, _ in rows})
    groups = groups_of(table, ["k"]).to_pylist()
    assert all(rows[at][0] in homes[partition_of(group, partitions)] for at, group in enumerate(groups))


def test_aggregates_are_read_with_their_filters_and_brackets() -> None:
    (found,) = read_aggregates({"n": "SUM((a + 1) * ')'::int) filter (where b in (1, 2))"})
    assert found.parts[0].over_rows == "sum((a + 1) * ')'::int) filter (where b in (1, 2))"


@pytest.mark.parametrize(
    "text", ["stddev(x)", "count(distinct x)", "count(/**/distinct x)", "sum(x) + 1", "x", "sum(x"]
)
def test_what_cannot_be_put_together_from_parts_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read_aggregates({"a": text})
