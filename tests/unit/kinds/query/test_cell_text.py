"""Values of columns as text and as JSON: exact for every type, judged by Arrow's parser and by DuckDB."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.kinds.query.cell_text import cell_texts, json_values
from tests.effort import examples

UNITS = ("s", "ms", "us", "ns")
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# The years 1700 to 2200, which 64 bits of nanoseconds hold.
INSTANTS_NS = st.integers(-8_520 * 10**15, 7_258 * 10**15)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "+05:30", "-03:00"])
# What 64 bits hold: values that no calendar has are shown as well.
ANY = st.integers(-(2**63), 2**63 - 1)


def as_arrow_writes(column: "pa.Array[object]") -> list[str]:
    """Arrow's own text, which has as many digits as the unit."""
    return [trimmed(text) for text in column.cast(pa.string()).to_pylist()]


def trimmed(text: str | None) -> str:
    """A text that ends in a fraction of a second, without its last zeros."""
    assert text is not None
    return text.rstrip("0").rstrip(".") if "." in text else text


@examples(200)
@given(at=INSTANTS_NS, unit=st.sampled_from(UNITS))
def test_a_timestamp_is_shown_to_its_last_digit(at: int, unit: str):
    column = pa.array([at * PER_SECOND[unit] // 10**9], pa.int64()).cast(pa.timestamp(unit))
    (shown,), (plain,) = cell_texts(column), json_values(column)
    assert [trimmed(shown)] == as_arrow_writes(column)
    assert plain.replace("T", " ") == shown


@examples(200)
@given(at=INSTANTS_NS, unit=st.sampled_from(UNITS), zone=ZONES)
def test_a_timestamp_of_a_zone_is_the_same_instant(at: int, unit: str, zone: str):
    counted = pa.array([at * PER_SECOND[unit] // 10**9], pa.int64())
    (text,) = json_values(counted.cast(pa.timestamp(unit, zone)))
    (naive,) = json_values(counted.cast(pa.timestamp(unit)))
    _, _, fraction = naive.partition(".")
    assert f".{fraction}" in text if fraction else "." not in text
    whole = datetime.fromisoformat(text.replace(f".{fraction}", "") if fraction else text)
    assert whole == datetime.fromisoformat(naive.partition(".")[0]).replace(tzinfo=UTC)


@examples(100)
@given(at=st.integers(0, 86_400 * 10**9 - 1), unit=st.sampled_from(UNITS))
def test_a_time_of_day_is_shown_to_its_last_digit(at: int, unit: str):
    is_short = unit in ("s", "ms")
    counted = pa.array([at * PER_SECOND[unit] // 10**9], pa.int32() if is_short else pa.int64())
    column = counted.cast(pa.time32(unit) if is_short else pa.time64(unit))
    assert [trimmed(text) for text in cell_texts(column)] == as_arrow_writes(column)
    assert json_values(column) == cell_texts(column)


@examples(100)
@given(days=st.integers(-700_000, 2_900_000))
def test_a_date_is_read_back_as_it_was(days: int):
    column = pa.array([days], pa.int32()).cast(pa.date32())
    assert pa.array(cell_texts(column)).cast(pa.date32()) == column
    assert cell_texts(column.cast(pa.date64())) == cell_texts(column)


def by_duckdb(intervals: Iterable[tuple[int, int, int]]) -> list[str]:
    """The texts of intervals of months, days and microseconds."""
    rows = ", ".join(f"({months}, {days}, {micros})" for months, days, micros in intervals)
    made = "to_months(a::integer) + to_days(b::integer) + to_microseconds(c)"
    found = duckdb.sql(f"select cast({made} as varchar) from (values {rows}) t(a, b, c)").fetchall()  # noqa: S608 - of numbers
    return [text for (text,) in found]


COUNTS = st.one_of(st.integers(-30, 30), st.integers(-(10**6), 10**6))


@examples(40)
@given(
    intervals=st.lists(
        st.tuples(COUNTS, COUNTS, st.one_of(COUNTS, st.integers(-(10**15), 10**15))), min_size=1, max_size=30
    )
)
def test_an_interval_reads_as_in_duckdb(intervals: list[tuple[int, int, int]]):
    column = pa.array(
        [(months, days, micros * 1_000) for months, days, micros in intervals], pa.month_day_nano_interval()
    )
    assert cell_texts(column) == by_duckdb(intervals)
    assert json_values(column) == cell_texts(column)


@examples(100)
@given(count=st.integers(-(10**14), 10**14))
def test_a_duration_reads_as_the_interval_of_its_days_and_the_rest(count: int):
    whole = abs(timedelta(microseconds=count))
    sign = -1 if count < 0 else 1
    rest = sign * (whole - timedelta(days=whole.days)) // timedelta(microseconds=1)
    column = pa.array([count], pa.int64()).cast(pa.duration("us"))
    assert cell_texts(column) == by_duckdb([(0, sign * whole.days, rest)])
    assert cell_texts(column.cast(pa.duration("ns"))) == cell_texts(column)


OF_TIME = [
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "Europe/Berlin", "+01:00")),
    *(pa.duration(unit) for unit in UNITS),
    pa.time64("us"),
    pa.time64("ns"),
    pa.date64(),
]


@examples(50)
@given(value=ANY)
def test_no_value_of_any_type_of_time_is_too_large_to_be_shown(value: int):
    for kind in OF_TIME:
        column = pa.Array.from_buffers(kind, 1, [None, pa.array([value], pa.int64()).buffers()[1]])
        (text,) = cell_texts(column)
        assert text
        assert len(json_values(column)) == 1


# A struct with two fields of one name.
TWICE = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
NS = 1_794_984_924_147_110_501
SHOWN = "2026-11-18T06:55:24.147110501"


@pytest.mark.parametrize(
    ("column", "text", "plain"),
    [
        (pa.array([None], pa.int8()), None, None),
        (pa.array([None], pa.null()), None, None),
        (pa.array([True]), "true", True),
        (pa.array([b"\xff\x00"]), "ff00", "/wA="),
        (pa.array([b"\xff\x00"], pa.binary_view()), "ff00", "/wA="),
        (pa.array(["1.50"]).cast(pa.decimal128(5, 2)), "1.50", "1.50"),
        (pa.array(["a"]).dictionary_encode(), "a", "a"),
        (pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([None], pa.string())), None, None),
        (pa.array([NS], pa.timestamp("ns")).dictionary_encode(), SHOWN.replace("T", " "), SHOWN),
        (pa.array([[NS, None]], pa.list_(pa.timestamp("ns"))), f'["{SHOWN}",null]', [SHOWN, None]),
        (pa.array([[NS]], pa.list_(pa.timestamp("ns"), 1)), f'["{SHOWN}"]', [SHOWN]),
        (pa.array([{"a": NS}], pa.struct([("a", pa.timestamp("ns"))])), f'{{"a":"{SHOWN}"}}', {"a": SHOWN}),
        (pa.array([[(1, NS), (1, None)]], pa.map_(pa.int8(), pa.timestamp("ns"))), None, [[1, SHOWN], [1, None]]),
        (pa.array([[b"a"]]), '["YQ=="]', ["YQ=="]),
        (pa.array(["é"], pa.string_view()), "é", "é"),
        (pa.array([1.5]), "1.5", 1.5),
        (pa.array([float("nan")]), "nan", "nan"),
        (pa.array([float("-inf")]), "-inf", "-inf"),
        (pa.array([[float("nan"), 1.0]]), '["nan",1.0]', ["nan", 1.0]),
        (TWICE, '[["a",1],["a",2]]', [["a", 1], ["a", 2]]),
        (pa.array([0], pa.timestamp("s", "Mars/Base")), "1970-01-01 00:00:00+00:00", "1970-01-01T00:00:00+00:00"),
        (pa.array([0], pa.timestamp("s", "+25:99")), "1970-01-01 00:00:00+00:00", "1970-01-01T00:00:00+00:00"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_of_a_type(column: "pa.Array[object]", text: str | None, plain: object):
    assert json_values(column) == [plain]
    if text is not None or plain is None:
        assert cell_texts(column) == [text]
    assert json_values(pa.chunked_array([column])) == [plain]
