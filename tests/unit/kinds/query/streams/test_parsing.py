"""Lines of files as rows: what cannot be read costs nobody else anything."""

import time
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from rota.kinds.query.streams.csv_rows import csv_schema, read_csv
from rota.kinds.query.streams.json_kinds import checked_columns
from rota.kinds.query.streams.json_rows import json_lines, json_schema, read_json, ways
from rota.kinds.query.streams.parsing import Aside, Unfit
from rota.kinds.query.streams.policies import Unusable

VALUES = pa.schema([("k", pa.string()), ("v", pa.int64())])


def read(
    reader: Callable[..., pa.Table], folder: Path, content: bytes, schema: pa.Schema = VALUES, *, more: bool = True
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The rows of a file, and those that were set aside."""
    path = folder / "a"
    path.write_bytes(content)
    refused = Unusable()
    table = reader(path, schema, Aside("dead_letter", "s/a", refused), may_have_more=more)
    assert table.schema.equals(schema)
    table.validate(full=True)
    return table.to_pylist(), refused.dead


# JSON.

MOMENTS = pa.schema(
    [("z", pa.timestamp("us", "UTC")), ("t", pa.timestamp("us")), ("d", pa.decimal128(10, 2)), ("f", pa.float64())]
)
MOMENT = b'{"z":"2026-01-01T00:00:00","t":"2026-01-01T02:00:00+02:00","d":1.5,"f":Infinity}\n'


def test_a_line_of_json_is_the_same_row_beside_a_broken_one(tmp_path: Path) -> None:
    clean, _ = read(read_json, tmp_path, MOMENT * 3, MOMENTS)
    found, dead = read(read_json, tmp_path, MOMENT + b'{"d":\n' + MOMENT * 2, MOMENTS)
    assert found == clean
    assert found[0]["t"] == datetime(2026, 1, 1)  # noqa: DTZ001 - a column without a zone
    assert found[0]["d"] == Decimal("1.50")
    assert [("JSON" in each["reason"], each["row"]) for each in dead] == [(True, '{"d":')]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"null", "JSON object"),
        (b" null", "JSON object"),
        (b"5", "JSON object"),
        (b'[{"v":1}]', "JSON object"),
        (b'{"v":1} null', "JSON object"),
        (b'{"v":1}{"v":2}', "JSON object"),
        (b'{"v":1', "JSON object"),
        (b'{"k":"\xff"}', "UTF-8"),
        (b'{"k":"\\ud800"}', "JSON object"),
        (b'{"v":1,"v":2}', "Column(/v)"),
        (b'{"v":1.5}', "its column"),
        (b'{"v":"one"}', "its column"),
        (b'{"k":' * 5_000 + b"1" + b"}" * 5_000, "JSON object"),
    ],
)
def test_only_the_line_of_json_to_blame_is_set_aside(tmp_path: Path, line: bytes, reason: str) -> None:
    found, dead = read(read_json, tmp_path, b'{"k":"a","v":1}\n' + line + b'\n\n{"k":"b"}')
    assert found == [{"k": "a", "v": 1}, {"k": "b", "v": None}]
    (only,) = dead
    assert reason in only["reason"]
    assert only["row"] == line.decode(errors="replace")
    assert read(read_json, tmp_path, line + b"\n")[1] == dead, "also where there is nothing else"


def test_an_object_that_is_not_on_one_line_is_none(tmp_path: Path) -> None:
    found, dead = read(read_json, tmp_path, b'{"v":\n{"v":1}}\n{"v":2}\n')
    assert [row["v"] for row in found] == [2]
    assert len(dead) == 2


def test_a_file_without_lines_of_json_has_no_rows(tmp_path: Path) -> None:
    for content in (b"", b"\n", b" \r\n\n"):
        assert read(read_json, tmp_path, content) == ([], [])


def test_numbers_and_dates_may_be_texts_and_moments_and_durations_numbers(tmp_path: Path) -> None:
    schema = pa.schema([("d", pa.date32()), ("t", pa.timestamp("s")), ("p", pa.duration("s")), ("v", pa.int64())])
    lines = b'{"d":"2026-01-01","t":5,"p":7,"v":"8"}\n{"d":3,"t":"2026-01-01T00:00:00","v":null}\n{"v":9}\n'
    found, dead = read(read_json, tmp_path, lines, schema)
    assert not dead
    assert [tuple(row.values()) for row in found] == [
        (date(2026, 1, 1), datetime(1970, 1, 1, 0, 0, 5), timedelta(seconds=7), 8),  # noqa: DTZ001 - likewise
        (date(1970, 1, 4), datetime(2026, 1, 1), None, None),  # noqa: DTZ001 - likewise
        (None, None, None, 9),
    ]


def test_a_long_line_of_json_is_a_row(tmp_path: Path) -> None:
    found, dead = read(read_json, tmp_path, b'{"v":1}\n{"k":"' + b"x" * 3_000_000 + b'"}\n{"v":2}\n')
    assert ([row["v"] for row in found], dead) == ([1, None, 2], [])


def test_new_columns_of_json_are_found_beside_broken_lines(tmp_path: Path) -> None:
    for content in (b'{"v":1}\n{"w":1}\n', b'{"v":1}\n{"v":\n{"v":2,"w":NaN}\n'):
        with pytest.raises(Unfit, match=r"new columns: w$"):
            read(read_json, tmp_path, content, more=False)
    found, dead = read(read_json, tmp_path, b'{"v":1}\n{"v":\n', more=False)
    assert ([row["v"] for row in found], len(dead)) == ([1], 1)


# CSV.


@pytest.mark.parametrize(
    ("line", "shown", "reason"),
    [
        (b"\xff,5", '{"k":"\ufffd","v":"5"}', "Invalid UTF8"),
        (b"x,five", '{"k":"x","v":"five"}', "its column"),
        (b"x,5,6", "x,5,6", "as many values"),
        (b"\xff,5,6", "\ufffd,5,6", "as many values"),
    ],
)
def test_only_the_line_of_csv_to_blame_is_set_aside(tmp_path: Path, line: bytes, shown: str, reason: str) -> None:
    content = b"\xef\xbb\xbfk,v\n" + "größe".encode() + b",1\n" + line + b"\n\nb,\n"
    found, dead = read(read_csv, tmp_path, content)
    assert found == [{"k": "größe", "v": 1}, {"k": "b", "v": None}]
    assert [each["row"] for each in dead] == [shown]
    assert reason in dead[0]["reason"]


def test_names_of_columns_are_known_in_files_with_lines_that_are_not_utf_8(tmp_path: Path) -> None:
    schema = pa.schema([("größe", pa.int64()), ("b", pa.binary())])
    found, dead = read(read_csv, tmp_path, "b,größe\n".encode() + b"\xff,1\nx,\xff\n", schema)
    assert (found, len(dead)) == ([{"größe": 1, "b": b"\xff"}], 1)


def test_a_long_line_of_csv_is_a_row(tmp_path: Path) -> None:
    for letter in (b"x", b"\xff"):
        schema = pa.schema([("k", pa.binary()), ("v", pa.int64())])
        found, dead = read(read_csv, tmp_path, b"k,v\na,1\n" + letter * 3_000_000 + b",2\nb,3\n", schema)
        assert ([row["v"] for row in found], dead) == ([1, 2, 3], [])


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"k,v,k", "column called k$"),
        (b"k,\xff", "names .*UTF-8"),
        ("k,v".encode("utf-16"), "names .*UTF-8"),
        (b"k,v," + b"x" * 200_000, "names .*131072"),
        (b"k", "lacks v"),
        (b"", "lacks k, v"),
    ],
)
def test_a_csv_file_whose_names_cannot_be_read_has_other_columns(tmp_path: Path, head: bytes, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        read(read_csv, tmp_path, head + b"\n1,2\n")


def test_columns_of_csv_that_nobody_wants_may_be_called_anything(tmp_path: Path) -> None:
    assert read(read_csv, tmp_path, b"k,,v,\na,1,2,3\n") == ([{"k": "a", "v": 2}], [])


# Both.


@pytest.mark.parametrize("bad", [1, 2_000])
@pytest.mark.parametrize(("form", "reader"), [("csv", read_csv), ("json", read_json)])
def test_bad_rows_cost_little(tmp_path: Path, form: str, reader: Callable[..., pa.Table], bad: int) -> None:
    good, wrong = (b"a,1\n", b"a,x\n") if form == "csv" else (b'{"k":"a","v":1}\n', b'{"k":"a","v":"x"}\n')
    head = b"k,v\n" if form == "csv" else b""
    began = time.process_time()
    found, dead = read(reader, tmp_path, head + good * 10_000 + wrong * bad + good * 10_000)
    assert (len(found), len(dead)) == (20_000, bad)
    assert time.process_time() - began < 1


KINDS = [pa.int8(), pa.uint64(), pa.float32(), pa.float16(), pa.decimal128(5, 2), pa.bool_(), pa.string(), pa.binary()]
KINDS += [pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32(), pa.date64(), pa.time32("s"), pa.duration("us")]
WRITTEN = ["5", "-5", "1.5", "1e3", "1.0", "true", "null", "[1]", '{"x":1}', "NaN", '"5"', '"0x1F"', '"-.5"', '"nan"']
WRITTEN += ['"Infinity"', '"true"', '"1"', '"x"', '""', '"2026-01-01"', '"2026-01-01T00:00:00Z"', '"12:00:00"']


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_sieved_out_of_json_arrow_would_refuse(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema([("a", kind)])
    (column,) = checked_columns(schema)
    for value in WRITTEN:
        line = f'{{"a":{value}}}'.encode()
        for read_as in ways([line], schema):
            try:
                json_lines(line, 1, read_as, "ignore").cast(schema)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            assert value == "NaN" or column.may_have(msgspec.json.decode(value)), value


def test_what_a_first_file_does_not_show_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"k,t,z,n,c\n,2026-01-01T00:00:00,2026-01-01T00:00:00Z,1,12:00:00\n")
    assert csv_schema(path).types == [
        pa.string(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.int64(),
        pa.string(),
    ]
    path.write_bytes(b'{"k":null,"t":"2026-01-01T00:00:00","l":[],"s":{"x":null}}\n')
    listed, shaped = pa.list_(pa.string()), pa.struct([("x", pa.string())])
    assert json_schema(path).types == [pa.string(), pa.timestamp("us"), listed, shaped]
    schema = csv_schema_of(tmp_path, b"k,t\n,2026-01-01T00:00:00\n")
    found, dead = read(read_csv, tmp_path, b"k,t\nNA,2026-01-01T00:00:00.123456\n", schema)
    assert (found, dead) == ([{"k": "NA", "t": datetime(2026, 1, 1, microsecond=123_456)}], [])  # noqa: DTZ001 - likewise


def csv_schema_of(folder: Path, content: bytes) -> pa.Schema:
    path = folder / "first"
    path.write_bytes(content)
    return csv_schema(path)
