"""Rows of CSV files: a line of names first, and then one for each row."""

import csv as texts
import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
from pyarrow import csv

from rota.kinds.query.streams.parsing import Aside, Unfit, check_names, check_once, seen_as

_BOM = b"\xef\xbb\xbf"
# How much Arrow reads at once: more than a line, if it can be.
_BLOCK_BYTES = 1 << 20
_BLOCK_BYTES_MAX = (1 << 31) - 1
# An encoding with a letter for each byte, so that nothing is lost of what is not UTF-8.
_ANY_BYTES = "latin-1"


def read_csv(path: Path, schema: pa.Schema, aside: Aside, *, may_have_more: bool) -> pa.Table:
    """Rows of a file; lines that are none are set aside."""
    content = path.read_bytes().removeprefix(_BOM)
    head = _head(content)
    check_names(head, schema, may_have_more=may_have_more)
    found = _texts(content, head, schema, aside)
    return _fitting(found, schema, aside).combine_chunks()


def csv_schema(path: Path) -> pa.Schema:
    """The columns that a file shows."""
    content = path.read_bytes().removeprefix(_BOM)
    check_once(_head(content))
    options = csv.ConvertOptions(null_values=[""], strings_can_be_null=True)

    def read(blocks: csv.ReadOptions) -> pa.Table:
        return csv.read_csv(_opened(content), read_options=blocks, convert_options=options)

    found = _with_long_lines(content, read).schema
    return pa.schema([(field.name, seen_as(field.type)) for field in found])


def check_csv_schema(schema: pa.Schema) -> None:
    """Unfit, if no text can be what a schema says."""
    for field in schema:
        try:
            pa.array([], pa.string()).cast(field.type)
        except pa.ArrowNotImplementedError:
            raise Unfit(f"no text is read as {field.type}, which is what {field.name} is") from None


def _head(content: bytes) -> list[str]:
    """The names of columns."""
    lines = io.TextIOWrapper(io.BytesIO(content), "utf-8", errors="surrogateescape", newline="")
    try:
        head = next(texts.reader(lines), [])
        for name in head:
            name.encode()
    except texts.Error as error:
        raise Unfit(f"its line of names cannot be read: {error}") from None
    except UnicodeEncodeError:
        raise Unfit("its line of names is not UTF-8") from None
    return head


def _opened(content: bytes) -> Any:
    # Stubs know of no files that are Arrow's own.
    return pa.BufferReader(content)


def _with_long_lines(content: bytes, read: Callable[[csv.ReadOptions], pa.Table], encoding: str = "utf-8") -> pa.Table:
    """What is read in blocks, or at once if a line is longer than a block."""
    try:
        return read(csv.ReadOptions(block_size=_BLOCK_BYTES, encoding=encoding))
    except pa.ArrowInvalid:
        if len(content) <= _BLOCK_BYTES:
            raise
    # Letters may take two bytes once they are in UTF-8.
    return read(csv.ReadOptions(block_size=min(2 * len(content), _BLOCK_BYTES_MAX), encoding=encoding))


def _texts(content: bytes, head: list[str], schema: pa.Schema, aside: Aside) -> pa.Table:
    """All values as texts, or as bytes if some are no texts: one that is no number must not cost all others."""
    try:
        content.decode()
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = _ANY_BYTES
    names = {name: name.encode().decode(encoding) for name in head}
    broken: list[str] = []

    def set_aside(row: csv.InvalidRow) -> Literal["skip"]:
        broken.append(row.text.encode(encoding).decode(errors="replace"))
        return "skip"

    def read(blocks: csv.ReadOptions) -> pa.Table:
        broken.clear()
        return csv.read_csv(
            _opened(content),
            read_options=blocks,
            parse_options=csv.ParseOptions(invalid_row_handler=set_aside),
            # Nothing is missing but what is empty, as in batch queries: NA is a country.
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in names.values()},
                include_columns=[names[name] for name in schema.names],
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    table = _with_long_lines(content, read, encoding).rename_columns(schema.names)
    aside.take("a line has not as many values as there are columns", broken)
    return table if encoding == "utf-8" else _bytes_again(table)


def _bytes_again(table: pa.Table) -> pa.Table:
    """Values as the bytes that stand in the file."""

    def again(column: pa.ChunkedArray) -> pa.Array:
        values: list[Any] = column.to_pylist()
        return pa.array([None if each is None else each.encode(_ANY_BYTES) for each in values], pa.binary())

    return pa.table([again(column) for column in table.columns], table.column_names)


def _fitting(rows: pa.Table, schema: pa.Schema, aside: Aside) -> pa.Table:
    """Rows with the types of a schema; those that cannot have them are set aside."""
    with suppress(pa.ArrowInvalid):
        return _cast_all(rows, schema)
    reasons: dict[int, str] = {}
    for field in schema:
        for number, reason in _to_blame(rows.column(field.name), field.type, 0):
            reasons.setdefault(number, reason)
    for number in sorted(reasons):
        aside.take(f"a value is not what its column is: {reasons[number]}", [_shown(rows.slice(number, 1))])
    return _cast_all(rows.filter(pa.array([number not in reasons for number in range(rows.num_rows)])), schema)


def _cast_all(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.table([_cast(rows.column(field.name), field.type) for field in schema], schema=schema)


def _to_blame(values: pa.ChunkedArray, kind: pa.DataType, first: int) -> Iterator[tuple[int, str]]:
    """Values that cannot be of a type, by their numbers; they are found by halving."""
    try:
        _cast(values, kind)
    except pa.ArrowInvalid as error:
        if len(values) == 1:
            yield first, str(error)
            return
        half = len(values) // 2
        yield from _to_blame(values.slice(0, half), kind, first)
        yield from _to_blame(values.slice(half), kind, first + half)


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    # Bytes are texts first, and only then numbers.
    return values.cast(kind if _is_bytes(kind) else pa.string()).cast(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _shown(rows: pa.Table) -> str:
    (row,) = rows.to_pylist()
    shown = {name: each.decode(errors="replace") if isinstance(each, bytes) else each for name, each in row.items()}
    return msgspec.json.encode(shown).decode()
