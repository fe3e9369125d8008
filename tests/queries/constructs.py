"""Statements made of every construct that a plan can hold, and tables with values of every type.

Numbers are whole or small fractions of two, so that sums do not depend on the order of rows.
"""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import datafusion as df
import pyarrow as pa
import pyarrow.parquet as pq

CALLS = Path(__file__).with_name("function_calls.txt")

# Window functions and their arguments.
WINDOW_CALLS = {
    "row_number": "",
    "rank": "",
    "dense_rank": "",
    "percent_rank": "",
    "cume_dist": "",
    "ntile": "3",
    "lag": "a, 2, -1",
    "lead": "a",
    "first_value": "a",
    "last_value": "a",
    "nth_value": "a, 2",
    "sum": "a",
    "count": "a",
    "min": "a",
    "max": "s",
    "avg": "f",
    "array_agg": "a",
}
FRAMES = (
    "",
    "rows between 2 preceding and 1 following",
    "rows between unbounded preceding and current row",
    "rows between current row and unbounded following",
    "rows between unbounded preceding and unbounded following",
    "range between unbounded preceding and unbounded following",
    "range between 100000 preceding and 50000 following",
    "groups between 1 preceding and 1 following",
)
# Aggregates and their arguments.
AGGREGATE_CALLS = {
    "any_value": "k * 0",
    "approx_distinct": "a",
    "approx_median": "a",
    "approx_percentile_cont": "f, 0.5",
    "array_agg": "a order by a",
    "avg": "f",
    "bit_and": "a",
    "bit_or": "a",
    "bit_xor": "a",
    "bool_and": "b",
    "bool_or": "b",
    "corr": "a, f",
    "count": "a",
    "covar_pop": "a, f",
    "covar_samp": "a, f",
    "first_value": "a order by o",
    "last_value": "a order by o",
    "max": "s",
    "median": "a",
    "min": "s",
    "nth_value": "a, 2 order by o",
    "percentile_cont": "a, 0.25",
    "regr_avgx": "a, f",
    "regr_avgy": "a, f",
    "regr_count": "a, f",
    "regr_intercept": "a, f",
    "regr_r2": "a, f",
    "regr_slope": "a, f",
    "regr_sxx": "a, f",
    "regr_sxy": "a, f",
    "regr_syy": "a, f",
    "stddev": "f",
    "stddev_pop": "f",
    "string_agg": "s, ',' order by o",
    "sum": "a",
    "var": "f",
    "var_pop": "f",
}
JOINS = ("inner", "left", "right", "full", "left semi", "right semi", "left anti", "right anti")
_DAY = datetime.datetime(2020, 1, 2, 3, 4)


def register(context: df.SessionContext, folder: Path) -> None:
    """Make the tables known: `t` and `r` for all but types, `v` for calls, and tables of files."""
    context.register_record_batches("t", [[_rows(seed, count)] for seed, count in ((1, 20), (2, 25), (3, 5))])
    context.register_record_batches("r", [[_rows(seed, 9)] for seed in (4, 5)])
    values = value_batch()
    context.register_record_batches("v", [[values.slice(0, 3)], [values.slice(3)]])
    context.register_record_batches("little", [[_rows(6, 3)]])
    for name, (form, _, options) in SCANS.items():
        listed = ", ".join(f"'{key}' '{value}'" for key, value in options.items())
        place = folder / f"{name}.{form}{'.gz' if 'gzip' in options.values() else ''}"
        with_options = f"options ({listed})" if options else ""
        context.sql(f"create external table {name} stored as {form} {with_options} location '{place}'")
    context.register_parquet("parquet_parts", f"{folder}/parts/", table_partition_cols=[("part", pa.string())])


def write_files(folder: Path) -> None:
    """The files of the tables that are made of some."""
    import gzip

    for name, (form, content, options) in SCANS.items():
        if "gzip" in options.values():
            (folder / f"{name}.{form}.gz").write_bytes(gzip.compress(content.encode()))
        else:
            (folder / f"{name}.{form}").write_text(content, encoding="utf-8")
    for number in range(3):
        (folder / "parts" / f"part={number}").mkdir(parents=True)
        pq.write_table(pa.Table.from_batches([_rows(number, 7)]), folder / "parts" / f"part={number}" / "a.parquet")


# Tables of files: their form, a file, and the options.
SCANS: dict[str, tuple[str, str, dict[str, str]]] = {
    "csv_plain": ("csv", "a,b\n1,x\n2,y\n", {"format.has_header": "true"}),
    "csv_bare": ("csv", "1,x\n2,y\n", {"format.has_header": "false"}),
    "csv_marks": (
        "csv",
        "a;b\n# not a row\n1;'x;1'\n2;y\n",
        {"format.has_header": "true", "format.delimiter": ";", "format.quote": "''", "format.comment": "#"},
    ),
    "csv_escaped": ("csv", 'a,b\n1,"x\\"1"\n', {"format.has_header": "true", "format.escape": "\\"}),
    "csv_lines": ("csv", 'a,b\n1,"x\ny"\n', {"format.has_header": "true", "format.newlines_in_values": "true"}),
    "csv_short": ("csv", "a,b\n1,x\n2\n", {"format.has_header": "true", "format.truncated_rows": "true"}),
    "csv_null": ("csv", "a,b\nw,NA\nNA,y\n", {"format.has_header": "true", "format.null_regex": "^NA$"}),
    "csv_ended": ("csv", "a|x|y|", {"format.has_header": "true", "format.terminator": "|"}),
    "csv_packed": ("csv", "a,b\n1,x\n2,y\n", {"format.has_header": "true", "format.compression": "gzip"}),
    "json_lines": ("json", '{"a": 1}\n{"a": 2}\n', {}),
    "json_array": ("json", '[{"a": 1}, {"a": 2}]', {"format.newline_delimited": "false"}),
    "json_packed": ("json", '{"a": 1}\n{"a": 2}\n', {"format.compression": "gzip"}),
}
# Whose options their encoded scan is without.
LOST_SCANS = ("csv_null", "csv_ended", "csv_packed", "json_array", "json_packed")


def _rows(seed: int, count: int) -> pa.RecordBatch:
    random = Random(seed)

    def column(*choices: Any) -> list[Any]:
        return [random.choice(choices) for _ in range(count)]

    return pa.record_batch(
        {
            "k": pa.array(column(1, 2, 3)),
            "o": pa.array([random.randrange(1_000_000) for _ in range(count)]),
            "a": pa.array(column(None, *range(10)), pa.int64()),
            "f": pa.array(column(None, 1.5, 2.5, 3.5), pa.float64()),
            "s": pa.array(column(None, "x", "y", "zz"), pa.string()),
            "b": pa.array(column(None, True, False), pa.bool_()),
        }
    )


def value_batch() -> pa.RecordBatch:
    """Rows of all the types that functions take."""
    times = [_DAY.replace(second=number) for number in range(6)]
    return pa.record_batch(
        {
            "i": pa.array([1, 2, None, 4, 5, -6]),
            "j": pa.array([3, None, 2, 7, 1, 2], pa.int32()),
            "u": pa.array([1, 2, 3, None, 5, 6], pa.uint8()),
            "f": pa.array([0.25, 0.5, None, -0.75, 0.125, 1.0]),
            "s": pa.array(["abc", "a,b,c", None, "10", "2020-01-02", "Zz z"]),
            "p": pa.array(["a", "b", ",", None, "%Y-%m-%d", "z"]),
            "b": pa.array([True, False, None, True, False, True]),
            "d": pa.array([time.date() for time in times]),
            "t": pa.array([*times[:3], None, *times[4:]], pa.timestamp("us")),
            "tz": pa.array(times, pa.timestamp("ns", "UTC")),
            "x": pa.array([b"ab", None, b"\x00\xff", b"", b"z", b"q"]),
            "l": pa.array([[1, 2, 3], [], None, [4, None], [5, 5], [2]]),
            "lf": pa.array([[1.0, 2.0], [0.5, 1.5], None, [3.0, 4.0], [0.0, 1.0], [1.0, 1.0]]),
            "ls": pa.array([["a", "b"], ["c"], None, [], ["a", None], ["z"]]),
            "ll": pa.array([[[1], [2, 3]], [[]], None, [[4]], [[5], [6]], [[7]]]),
            "st": pa.array([None, *({"a": number, "b": f"x{number}"} for number in range(5))]),
            "m": pa.array(
                [[("k", 1)], [("k", 2), ("z", 3)], None, [], [("q", 4)], [("k", 5)]], pa.map_(pa.string(), pa.int64())
            ),
            "dec": pa.array([Decimal(number) / 4 for number in range(6)], pa.decimal128(10, 2)),
        }
    )


def typed_arrays() -> dict[str, pa.Array]:
    """Values of every type that a table can have."""
    whole: list[int | None] = [1, None, 3]
    found: dict[str, pa.Array] = {
        str(kind): pa.array(whole, kind)
        for kind in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(
                pa.float32(),
                pa.float64(),
                pa.date32(),
                pa.time32("s"),
                pa.time32("ms"),
                pa.time64("us"),
                pa.time64("ns"),
            ),
            *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
            *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
            pa.timestamp("us", "Europe/Berlin"),
        )
    }
    texts = [None, "", "a much longer text than fits a view"]
    found |= {str(kind): pa.array(texts, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())}
    packed = [None, b"", b"a much longer text than fits a view"]
    found |= {str(kind): pa.array(packed, kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())}
    numbers = [Decimal("1.25"), None, Decimal("-3.50")]
    for kind in (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(12, 2), pa.decimal256(50, 2)):
        found[str(kind)] = pa.array(numbers, kind)
    found |= {
        "null": pa.nulls(3),
        "bool": pa.array([True, None, False]),
        "halffloat": pa.array([1.5, None, 2.5], pa.float16()),
        "date64": pa.array([_DAY.date(), None, _DAY.date()], pa.date64()),
        "fixed": pa.array([b"abc", None, b"def"], pa.binary(3)),
        "interval": pa.array([(1, 2, 3), None, (0, 0, 5)], pa.month_day_nano_interval()),
        "list": pa.array([[1], None, []], pa.list_(pa.int64())),
        "large_list": pa.array([["a"], None, []], pa.large_list(pa.string())),
        "fixed_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
        "struct": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    }
    return found


def window_statements() -> Iterator[str]:
    """Every window function, with every frame, order, NULL treatment, FILTER and DISTINCT."""
    ways = product(
        WINDOW_CALLS.items(), FRAMES, ("o", "o desc"), ("", "ignore nulls"), ("", "filter (where o > 300000)")
    )
    for (name, args), frame, order, nulls, kept in ways:
        for distinct in ("", "distinct ") if args else ("",):
            call = f"{name}({distinct}{args}) {kept} {nulls} over (partition by k order by {order} {frame})"
            yield f"select k, o, {call} as x from t"


def turned_windows() -> Iterator[str]:
    """Two windows in opposite orders, of which the engine computes one from the other's order."""
    for name, args in WINDOW_CALLS.items():
        both = (f"{name}({args}) over (partition by k order by o{way}) as x{way}" for way in (" ", " desc"))
        yield f"select k, o, {', '.join(both).replace('x desc', 'y')} from t"


def aggregate_statements() -> Iterator[str]:
    """Every aggregate, in groups and without, with FILTER, DISTINCT and in GROUPING SETS."""
    for (name, args), kept, distinct in product(
        AGGREGATE_CALLS.items(), ("", " filter (where o > 300000)"), ("", "distinct ")
    ):
        if distinct and "order by" in args:
            continue
        call = f"{name}({distinct}{args}){kept} as x"
        yield f"select {call} from t"
        yield f"select k, {call} from t group by k"
        yield f"select k, s, {call} from t group by grouping sets ((k), (k, s), ())"
    for sets in ("rollup (k, s)", "cube (k, s)", "grouping sets ((k), (s))", "grouping sets (())"):
        yield f"select count(*) as n, sum(a) as x from t group by {sets}"


def join_statements() -> Iterator[str]:
    """Every type of join, with a smaller left or right side, by equal keys, by comparison, and both."""
    for kind, left, right, on in product(
        JOINS,
        ("t", "little"),
        ("r", "little"),
        ("x.k = y.k", "x.o < y.o", "x.k = y.k and x.o < y.o", "x.a = y.k and y.f > 2"),
    ):
        columns = "x.o" if "left s" in kind or "left a" in kind else "y.o" if "right " in kind else "x.o, y.o as p"
        yield f"select {columns} from {left} x {kind} join {right} y on {on}"
    yield "select o from t where a not in (select k from r)"
    yield "select o from t where a in (select k from r) or s = 'x'"
    yield "select x.o, y.o as p from t x, little y"


def other_statements() -> Iterator[str]:
    """What is none of these: sets, limits, unnesting, series, predicates."""
    yield "select k from t union select a from r"
    yield "select a from t intersect select a from r"
    yield "select o, first_value(o) over (partition by k order by a nulls first, o) as x from t"
    yield "select k, o from t order by o desc limit 7 offset 2"
    yield "select k, unnest([k, a]) as u from t"
    yield "select unnest(st) from v"
    yield "select value * 2 as x from generate_series(1, 50, 7)"
    yield "select i between 2 and 4 as x, s like 'a%' as y, s ilike '%ZZ%' as z, s in ('abc', '10') as w from v"
    yield "select case i when 1 then 'one' when 2 then 'two' else s end as x, case when b then i end as y from v"
    yield "select try_cast(s as int) as x, cast(i as double) as y, -i as z, not b as w, i is null as n from v"
    yield "select s ~ '^a' as x, s || p as y, i & 3 as z, i % 3 as w, l[1] as v, st['a'] as u from v"
    yield "select part, count(*) as n from parquet_parts where part <> '1' group by part"
    yield "select o from parquet_parts where a > 3 and s is not null order by o"
    yield "select max(a) as x, min(o) as y from parquet_parts where f > 2"
    yield "select o, part from parquet_parts order by o desc limit 3"
    yield "select x.o from parquet_parts x join parquet_parts y on x.o = y.o where y.a > 4"
    yield "select o from t where a > (select min(k) from r) and f < (select avg(f) from r)"
    yield "select sum(a) filter (where o > (select min(o) from r)) as x, (select max(s) from r) as y from t"
    for name in (each for each in SCANS if each not in LOST_SCANS):
        yield f"select * from {name}"


# Literals of every type that one can be of: what `arrow_cast` is given, and the type.
_UNITS = ("Second", "Millisecond", "Microsecond", "Nanosecond")
_ZONES = ("None", 'Some("UTC")', 'Some("+02:00")', 'Some("Europe/Berlin")')
_INSTANTS = ("'2020-01-01T12:00:00'", "'1970-01-01T00:00:00'", "'1931-07-08T09:10:11'")
LITERALS: tuple[tuple[str, tuple[str, ...]], ...] = (
    *((f"Timestamp({unit}, {zone})", _INSTANTS) for unit, zone in product(_UNITS, _ZONES)),
    *((f"Time32({unit})", ("'00:00:00'", "'12:34:56'")) for unit in _UNITS[:2]),
    *((f"Time64({unit})", ("'00:00:00'", "'12:34:56.789'")) for unit in _UNITS[2:]),
    *((f"Duration({unit})", ("0", "-5", "86400")) for unit in _UNITS),
    *((name, ("'1970-01-01'", "'2020-02-29'", "'1931-07-08'")) for name in ("Date32", "Date64")),
    *((f"Int{bits}", ("0", "-7", "100")) for bits in (8, 16, 32, 64)),
    *((f"UInt{bits}", ("0", "7", "200")) for bits in (8, 16, 32, 64)),
    *((f"Float{bits}", ("0.0", "-0.5", "1e10")) for bits in (32, 64)),
    *((f"Decimal{bits}(9, 2)", ("0", "-1.25", "'12345.67'")) for bits in (32, 64, 128, 256)),
    ("Decimal256(50, -2)", ("1200", "-100")),
    ("Boolean", ("true", "false")),
    *((name, ("''", "'a'", "'a text that is longer than a view'")) for name in ("Utf8", "LargeUtf8", "Utf8View")),
    *((name, ("X''", "X'00ff'", "X'000102030405060708090a0b0c0d0e0f'")) for name in ("Binary", "LargeBinary")),
    ("BinaryView", ("X''", "X'00ff'", "X'000102030405060708090a0b0c0d0e0f'")),
    ("FixedSizeBinary(2)", ("X'00ff'", "X'6162'")),
    ("Interval(YearMonth)", ("'1 year 2 months'", "'-3 months'")),
    ("Interval(DayTime)", ("'1 day 2 hours'", "'-3 minutes'")),
    ("Interval(MonthDayNano)", ("'1 month 2 days 3 hours'", "'-1 day'")),
    *((f"Dictionary({key}, Utf8)", ("''", "'a'")) for key in ("Int8", "Int32", "UInt16")),
    ("Dictionary(Int32, Int64)", ("0", "9")),
    ("List(Int64)", ("[1, null]", "[0]")),
    ("LargeList(Utf8)", ("['a', '']", "['b']")),
    ("FixedSizeList(2 x Int64)", ("[1, 2]", "[0, null]")),
)
# Literals that are written without `arrow_cast`.
WRITTEN_LITERALS: tuple[tuple[str, ...], ...] = (
    ("timestamp '2020-01-01 12:00:00'", "timestamp '1970-01-01'"),
    ("time '10:00:00'", "time '00:00:00'"),
    ("date '2020-01-05'", "date '1970-01-01'"),
    ("interval '1 month 2 days'", "interval '3 hours'"),
    ("named_struct('x', 1, 'y', timestamp '2020-01-01')", "named_struct('x', 0, 'y', timestamp '1970-01-01')"),
    ("map(['k'], [time '10:00:00'])", "map(['z'], [time '00:00:00'])"),
    ("[timestamp '2020-01-01', null]", "[timestamp '1970-01-01']"),
)


def literals() -> Iterator[tuple[str, ...]]:
    """Literals of one type each, NULL among them."""
    for kind, values in LITERALS:
        yield tuple(f"arrow_cast({value}, '{kind}')" for value in (*values, "null"))
    yield from WRITTEN_LITERALS


def literal_statements() -> Iterator[str]:
    """Literals of every type as results, in a choice, in comparisons, in a list, and as the default of a window."""
    for each in literals():
        first, second, *_ = each
        yield f"select k, {', '.join(f'{value} as x{number}' for number, value in enumerate(each))} from t"
        chosen = f"case when a > 4 then {first} when a > 2 then {second} end"
        yield f"select o, {chosen} as x from t"
        yield f"select o from t where {chosen} = {first}"
        yield f"select o from t where {chosen} > {second} or {chosen} is null"
        yield f"select o from t where {chosen} in ({', '.join(each)})"
        yield f"select x, count(*) as n, min(x) as y from (select {chosen} as x from t) group by x"
        yield f"select o, lag({chosen}, 1, {first}) over (order by o) as x from t"


def call_statements() -> Iterator[str]:
    """A call of every scalar function of the engine, with arguments of several types."""
    for call in CALLS.read_text(encoding="utf-8").splitlines():
        yield f"select {call} as x from v"
