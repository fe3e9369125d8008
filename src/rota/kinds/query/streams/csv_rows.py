"""Rows of CSV files: a line of names first, and then one for each row."""

import csv as texts
import io
from collections.abc import Callable
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
    return pa.concat_tables([schema.empty_table(), *_fitting(found, schema, aside)]).combine_chunks()


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


def _fitting(rows: pa.Table, schema: pa.Schema, aside: Aside) -> list[pa.Table]:
    """Rows with the types of a schema. Those that cannot have them are found by halving."""
    try:
        return [_cast(rows, schema)]
    except pa.ArrowInvalid as error:
        if rows.num_rows == 1:
            aside.take(f"a value is not what its column is: {error}", [_shown(rows)])
            return []
    half = rows.num_rows // 2
    return [*_fitting(rows.slice(0, half), schema, aside), *_fitting(rows.slice(half), schema, aside)]


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    # Bytes are texts first, and only then numbers.
    texts_ = [pa.field(field.name, field.type if _is_bytes(field.type) else pa.string()) for field in schema]
    return rows.cast(pa.schema(texts_)).cast(schema)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)


def _shown(rows: pa.Table) -> str:
    (row,) = rows.to_pylist()
    shown = {name: each.decode(errors="replace") if isinstance(each, bytes) else each for name, each in row.items()}
    return msgspec.json.encode(shown).decode()
