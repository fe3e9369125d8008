"""Keys of all types: equal ones are together, however many partitions there are."""

import math
import struct
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rota
from rota.kinds.query.streams.keygroups import groups_of, split
from rota.kinds.query.streams.operators import times_of
from rota.kinds.query.streams.pieces import ipc
from rota.kinds.query.streams.policies import as_json
from rota.kinds.query.streams.values import as_numbers, with_equal_keys

(OTHER_NAN,) = struct.unpack("d", struct.pack("Q", 0xFFF8000000000001))


def stream(folder: Path, keys: pa.Array, times: list[int], parallelism: int, rows_max: int = 2) -> rota.StreamSession:
    made = rota.StreamSession(folder, parallelism=parallelism, rows_max=rows_max, every_s=0)
    made.register_rows("s", pa.table({"k": keys, "t": times}))
    return made


def given(made: rota.StreamSession, name: str) -> list[dict[str, Any]]:
    tables = [each.rows[name] for each in made.run() if name in each.rows]
    # Some have moments that Python has no value for.
    shown = [pa.table([as_numbers(column) for column in each.columns], each.column_names) for each in tables]
    return [row for each in shown for row in each.to_pylist()]


def windowed(folder: Path, keys: pa.Array, times: list[int], parallelism: int, **shape: Any) -> list[tuple[int, int]]:
    made = stream(folder, keys, times, parallelism)
    made.register_window("w", "s", time="t", by=["k"], aggregates={"n": "count(*)"}, watermark_delay_s=1, **shape)
    found = [(row["window_start"], row["n"]) for row in given(made, "w")]
    return sorted(found)


ZEROS = pa.array([-0.0, 0.0, -0.0, 0.0, math.nan, OTHER_NAN, None, None])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()])
@pytest.mark.parametrize("parallelism", [1, 5])
def test_both_zeros_and_all_that_are_no_numbers_are_one_key(
    tmp_path: Path, kind: pa.DataType, parallelism: int
) -> None:
    keys, times = ZEROS.cast(kind), [0, 100, 200, 300, 0, 100, 0, 100]
    for name, shape in (("a", {"tumbling_s": 1}), ("b", {"session_s": 0.15})):
        found = windowed(tmp_path / name, keys, times, parallelism, **shape)
        assert found == [(0, 2), (0, 2), (0, 4)]


@pytest.mark.parametrize("parallelism", [1, 5])
def test_both_zeros_are_joined_and_given_once(tmp_path: Path, parallelism: int) -> None:
    left, right = stream(tmp_path / "j", pa.array([-0.0, 1.0]), [1, 2], parallelism), pa.array([0.0, 2.0])
    left.register_rows("r", pa.table({"k": right, "u": [1, 2]}))
    left.register_join("j", "s", "r", on=["k"], time=("t", "u"), within_s=(-1, 1))
    assert [row["k"] for row in given(left, "j")] == [0.0]
    once = stream(tmp_path / "d", ZEROS, [1] * 8, parallelism)
    once.register_distinct("d", "s", on=["k"], time="t", ttl_s=1)
    assert sorted(str(row["k"]) for row in given(once, "d")) == ["0.0", "None", "nan"]


def test_other_columns_keep_their_zeros() -> None:
    table = pa.table({"k": [-0.0], "v": [-0.0], "n": [1]})
    found = with_equal_keys(table, ["k", "n"])
    assert str(found.to_pylist()) == "[{'k': 0.0, 'v': -0.0, 'n': 1}]"
    assert found.schema.equals(table.schema)


NESTED = [
    pa.array([[1], [1], [2], None], pa.list_(pa.int64())),
    pa.array([{"x": "a"}, {"x": "a"}, {"x": None}, None], pa.struct([("x", pa.string())])),
    pa.array([[("a", 1)], [("a", 1)], [("b", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array([[2**62], [2**62], [0], None], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us"))),
]


@pytest.mark.slow
@pytest.mark.parametrize("keys", NESTED, ids=lambda keys: str(keys.type))
@pytest.mark.parametrize("parallelism", [1, 4])
def test_lists_and_objects_are_keys(tmp_path: Path, keys: pa.Array, parallelism: int) -> None:
    times = [1, 2, 3, 4]
    for name, shape in (("a", {"tumbling_s": 1}), ("b", {"session_s": 1})):
        found = windowed(tmp_path / name, keys, times, parallelism, **shape)
        assert sorted(count for _, count in found) == [1, 1, 2]
    joined = stream(tmp_path / "j", keys, times, parallelism)
    joined.register_rows("r", pa.table({"k": keys, "u": times}))
    joined.register_join("j", "s", "r", on=["k"], time=("t", "u"), within_s=(-1, 1))
    assert len(given(joined, "j")) == 5
    once = stream(tmp_path / "d", keys, times, parallelism)
    once.register_distinct("d", "s", on=["k"], time="t", ttl_s=1)
    assert len(given(once, "d")) == 3


STRANGE = [
    pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32()),
    pa.array([10**18 // 86_400_000 * 86_400_000, 0], pa.int64()).cast(pa.date64()),
    pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us")),
    pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us", "Europe/Berlin")),
    pa.array([2**62 + 1, 0], pa.int64()).cast(pa.timestamp("ns")),
    pa.array([2**62, 0], pa.int64()).cast(pa.duration("s")),
    pa.array([10**15, 0], pa.int64()).cast(pa.time64("ns")),
]


@pytest.mark.slow
@pytest.mark.parametrize("keys", STRANGE, ids=lambda keys: str(keys.type))
def test_dates_that_python_has_no_value_for_are_keys(tmp_path: Path, keys: pa.Array) -> None:
    twice = pa.concat_arrays([keys, keys])
    for parallelism in (1, 4):
        folder = tmp_path / str(parallelism)
        made = stream(folder / "w", twice, [1, 2, 3, 4], parallelism)
        made.register_window("w", "s", time="t", by=["k"], tumbling_s=1, aggregates={"n": "count(*)"})
        assert [row["n"] for row in given(made, "w")] == [2, 2]
        once = stream(folder / "d", twice, [1, 2, 3, 5_000], parallelism, rows_max=10)
        once.register_distinct("d", "s", on=["k"], time="t", ttl_s=1)
        assert len(given(once, "d")) == 3
    assert len(as_json(pa.table({"k": keys, "l": pa.array([[each] for each in keys], pa.list_(keys.type))}))) == 2


def test_groups_of_dates_and_numbers_stay_what_they_are() -> None:
    values: dict[str, list[Any]] = {
        "date": [date(2026, 1, 2), None],
        "moment": [datetime(2026, 1, 2, 3, 4, 5), None],  # noqa: DTZ001 - a column without a zone
        "duration": [timedelta(seconds=5), None],
        "float": [1.5, math.nan],
        "bool": [True, False],
        "int": [7, -7],
        "bytes": [b"a", b""],
    }
    found = {name: groups_of(pa.table({"k": each}), ["k"]).to_pylist() for name, each in values.items()}
    assert found == {
        "date": [95, 69],
        "moment": [14, 69],
        "duration": [36, 69],
        "float": [102, 4],
        "bool": [113, 125],
        "int": [61, 81],
        "bytes": [116, 0],
    }, "state that is kept somewhere was dealt by these"


def test_the_group_of_a_value_does_not_depend_on_others() -> None:
    day = pa.array([20_000, 2**31 - 1], pa.int32()).cast(pa.date32())
    assert groups_of(pa.table({"k": day}), ["k"])[0] == groups_of(pa.table({"k": day[:1]}), ["k"])[0]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_that_are_no_milliseconds_are_none(unit: str) -> None:
    numbers = [-(2**63), -(2**63) + 1, 0, 2**63 - 1]
    found = times_of(pa.table({"t": pa.array(numbers, pa.int64()).cast(pa.timestamp(unit))}), "t").to_pylist()
    least = {"s": None, "ms": -(2**63), "us": None, "ns": None}
    most = {"s": None, "ms": 2**63 - 1, "us": (2**63 - 1) // 1_000, "ns": (2**63 - 1) // 1_000_000}
    assert (found[0], found[2], found[3]) == (least[unit], 0, most[unit])


def test_a_row_with_a_time_near_the_least_ends_no_stream(tmp_path: Path) -> None:
    times = pa.array([-(2**63), 1_000_000], pa.int64()).cast(pa.timestamp("us"))
    made = rota.StreamSession(tmp_path, every_s=0)
    made.register_rows("s", pa.table({"t": times}))
    made.register_window("w", "s", time="t", tumbling_s=1, aggregates={"n": "count(*)"})
    (only,) = made.run()
    assert only.manifest.counts == {"s.rows": 2, "w.rows": 1, "w.dead": 1}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_categories_are_keys(tmp_path: Path, parallelism: int) -> None:
    parts = [pa.array(each).dictionary_encode() for each in (["a", "b"], ["c", "a"])]
    keys: Any = pa.chunked_array(parts)
    assert windowed(tmp_path / "w", keys, [1, 2, 3, 4], parallelism, tumbling_s=1) == [(0, 1), (0, 1), (0, 2)]
    joined = stream(tmp_path / "j", keys, [1, 2, 3, 4], parallelism)
    joined.register_rows("r", pa.table({"k": ["a"], "u": [1]}))
    joined.register_join("j", "s", "r", on=["k"], time=("t", "u"), within_s=(-1, 1))
    assert len(given(joined, "j")) == 2


def test_lists_of_categories_are_kept() -> None:
    kind = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    table = pa.table({"k": pa.chunked_array([pa.array([["a"]], kind), pa.array([["b"]], kind)])})
    assert pa.ipc.open_file(ipc(table)).read_all().to_pylist() == [{"k": ["a"]}, {"k": ["b"]}]


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("us"), pa.decimal128(5, 2), pa.duration("s"), pa.float16(), pa.list_(pa.int64())]
)
def test_no_rows_are_dealt_to_any_number_of_partitions_whatever_their_keys_are(kind: pa.DataType) -> None:
    table = pa.table({"k": pa.array([], kind)})
    assert [part.num_rows for part in split(table, ["k"], 3)] == [0, 0, 0]
