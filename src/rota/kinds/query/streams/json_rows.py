"""Rows of JSON files: an object on each line."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
from pyarrow import json

from rota.kinds.query.streams.json_kinds import checked_columns
from rota.kinds.query.streams.parsing import Aside, Unfit, check_new, check_once, seen_as

_BOM = b"\xef\xbb\xbf"
# Arrow takes `null` for a row, and ends this process if there is nothing else; so it is given nothing but objects.
_ODD_LINE = re.compile(rb"\n[^{]")
_NO_NUMBERS = re.compile(rb"\b(NaN|Infinity|Inf)\b")
_BLOCK_BYTES = 1 << 20
_FEW = 8
# How often something may begin within something else in a line before it is looked at whether that is too deep.
_BEGINNINGS_MAX = 200
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NO_OBJECT = "a line is no JSON object"

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_Unexpected = Literal["ignore", "error", "infer"]


def read_json(path: Path, schema: pa.Schema, aside: Aside, *, may_have_more: bool) -> pa.Table:
    """Rows of a file; lines that are none are set aside. What a line is does not depend on the others."""
    content = path.read_bytes().removeprefix(_BOM)
    if content.startswith(b"{") and not _ODD_LINE.search(content):
        count = content.count(b"\n") + (not content.endswith(b"\n"))
        try:
            return json_lines(content, count, _known(schema), "ignore" if may_have_more else "error").cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # One by one, then.
            pass
    lines = _objects(content, aside)
    check_new(list(dict.fromkeys(_names(lines))), schema, may_have_more=may_have_more)
    found = _rows(_sieved(lines, schema, aside), schema, aside)
    return pa.concat_tables([schema.empty_table(), *found]).combine_chunks()


def json_schema(path: Path) -> pa.Schema:
    """The columns that a file shows."""
    lines = [line for line in path.read_bytes().removeprefix(_BOM).split(b"\n") if line.strip()]
    if not lines:
        raise Unfit("it is empty")
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith(b"{") or _is_deep(line):
            raise Unfit(f"line {number} is no JSON object, or one that is too deep")
    found = json_lines(b"\n".join(lines), len(lines), None, "infer", _longest(lines)).schema
    check_once(found.names)
    return pa.schema([(field.name, seen_as(field.type)) for field in found])


def check_json_schema(schema: pa.Schema) -> None:
    """Unfit, if nothing in JSON can be what a schema says."""
    for field in schema:
        try:
            only = pa.schema([field])
            json_lines(b"{}", 1, _known(only), "ignore").cast(only)
        except pa.ArrowNotImplementedError:
            raise Unfit(f"nothing in JSON is read as {field.type}, which is what {field.name} is") from None


def json_lines(
    content: bytes, count: int, schema: pa.Schema | None, unexpected: _Unexpected, block_bytes: int = _BLOCK_BYTES
) -> pa.Table:
    """So many lines as rows, or Arrow's error."""
    # Stubs know of no files that are Arrow's own.
    opened: Any = pa.BufferReader(content)
    found = json.read_json(
        opened,
        read_options=json.ReadOptions(block_size=block_bytes),
        parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )
    if found.num_rows != count:
        raise pa.ArrowInvalid("a line has more than one object, or a part of one")
    # Texts may be no UTF-8, for which the engine ends this process.
    found.validate(full=True)
    return found if schema is None else found.select(schema.names)


def _objects(content: bytes, aside: Aside) -> list[bytes]:
    """Lines that begin like objects."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    is_object = [line.lstrip().startswith(b"{") for line in lines]
    aside.take(_NO_OBJECT, [_shown(line) for line, is_it in zip(lines, is_object, strict=True) if not is_it])
    return [line for line, is_it in zip(lines, is_object, strict=True) if is_it]


def _names(lines: Sequence[bytes]) -> Iterator[str]:
    """The columns of all lines that can be read."""
    for line in lines:
        try:
            yield from _decode_names(line)
        except _NO_JSON:
            # Arrow knows numbers that JSON does not.
            known = _NO_NUMBERS.sub(b"0", line)
            if known != line:
                yield from _names([known])


def _sieved(lines: Sequence[bytes], schema: pa.Schema, aside: Aside) -> list[bytes]:
    """Lines of which nothing is wrong at first sight."""
    columns = checked_columns(schema)
    found: list[bytes] = []
    for line in lines:
        try:
            row = _decode_object(line)
        except _NO_JSON:
            # Arrow has the last word, and may know it all the same.
            found.append(line)
            continue
        wrong = next((each for each in columns if not each.may_have(row.get(each.name))), None)
        if wrong is None:
            found.append(line)
        else:
            aside.take(f"a value is not what its column is: {wrong.name} is {wrong.kind}", [_shown(line)])
    return found


def _rows(lines: Sequence[bytes], schema: pa.Schema, aside: Aside) -> list[pa.Table]:
    """Lines as rows. Those that are none are found by halving."""
    why: Exception | None = None
    for read_as in ways(lines, schema):
        try:
            return [json_lines(b"\n".join(lines), len(lines), read_as, "ignore", _longest(lines)).cast(schema)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            why = error
    if len(lines) == 1:
        aside.take(_reason(lines[0], why), [_shown(lines[0])])
    if len(lines) <= 1:
        return []
    # Few are looked at one by one, since looking at two takes as long as at one.
    size = len(lines) // 2 if len(lines) > _FEW else 1
    parts = [lines[at : at + size] for at in range(0, len(lines), size)]
    return [each for part in parts for each in _rows(part, schema, aside)]


def _longest(lines: Sequence[bytes]) -> int:
    """How much Arrow has to read at once."""
    return max(_BLOCK_BYTES, max(map(len, lines)) + 2)


def ways(lines: Sequence[bytes], schema: pa.Schema) -> list[pa.Schema]:
    """How lines may be read: as the schema says, or as the first of them is written, and cast then."""
    if not lines:
        return []
    known = _known(schema)
    try:
        row = _decode_object(lines[0])
    except _NO_JSON:
        return [known]
    written = pa.schema([(field.name, _written_as(field.type, row.get(field.name))) for field in known])
    return [known] if written.equals(known) else [known, written]


def _known(schema: pa.Schema) -> pa.Schema:
    """A schema of types that Arrow reads from JSON, as far as there are such."""
    return pa.schema([(field.name, _read_as(field.type)) for field in schema])


def _read_as(kind: Any) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.int64()
    return pa.float32() if pa.types.is_float16(kind) else kind


def _written_as(kind: Any, value: object) -> pa.DataType:
    """Numbers and dates may be texts, and moments numbers."""
    types = pa.types
    if isinstance(value, str) and (types.is_primitive(kind) and not types.is_timestamp(kind)):
        return pa.string()
    if isinstance(value, int) and not isinstance(value, bool) and types.is_timestamp(kind):
        return pa.int64()
    return kind


def _is_deep(line: bytes) -> bool:
    """Whether a line is more deeply nested than anybody wants: seeing its columns would end this process."""
    if line.count(b"{") + line.count(b"[") <= _BEGINNINGS_MAX:
        return False
    try:
        _decode_object(line)
    except _NO_JSON:
        return True
    return False


def _reason(line: bytes, error: Exception | None) -> str:
    try:
        line.decode()
        _decode_names(line)
    except UnicodeDecodeError:
        return "a line is not UTF-8"
    except _NO_JSON:
        return _NO_OBJECT
    return f"a value is not what its column is: {error}"


def _shown(line: bytes) -> str:
    return line.decode(errors="replace")
