"""Texts as rows of a schema; lines that are none are set aside, one by one."""

import csv as texts
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
from pyarrow import csv, json

from rota.kinds.query.streams.asking import plain
from rota.kinds.query.streams.policies import Policies, Refuse


class Unfit(Exception):
    """A file has other columns than its stream."""


def fit_table(table: pa.Table, schema: pa.Schema, *, may_have_more: bool) -> pa.Table:
    """A table as a schema has it, if nothing is lost by that; or Unfit."""
    _check_names(table.column_names, schema, may_have_more=may_have_more)
    try:
        return plain(table.select(schema.names)).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unfit(f"its columns have other types: {error}") from None


def _check_names(names: Sequence[str], schema: pa.Schema, *, may_have_more: bool) -> None:
    lacking = [name for name in schema.names if name not in names]
    if lacking:
        raise Unfit(f"it lacks {', '.join(lacking)}")
    if more := [name for name in names if name not in schema.names]:
        if may_have_more:
            return
        raise Unfit(f"it has new columns: {', '.join(more)}")


def read_csv(
    path: Path, schema: pa.Schema, where: str, policies: Policies, refused: Refuse, *, may_have_more: bool
) -> pa.Table:
    """Rows of a file with a line of names first."""
    broken: list[str] = []

    def set_aside(row: csv.InvalidRow) -> Literal["skip"]:
        broken.append(row.text)
        return "skip"

    # As texts first: one value that is no number must not cost all others.
    with path.open(newline="", encoding="utf-8-sig") as file:
        head = next(texts.reader(file), [])
    _check_names(head, schema, may_have_more=may_have_more)
    table = csv.read_csv(
        path,
        parse_options=csv.ParseOptions(invalid_row_handler=set_aside),
        # Nothing is missing but what is empty, as in batch queries: NA is a country.
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() for name in head},
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    if broken:
        refused.take(policies.poison, "a line has not as many values as there are columns", where, broken)
    try:
        return table.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _row_by_row(table.to_pylist(), schema, where, policies, refused)


def read_json(
    path: Path, schema: pa.Schema, where: str, policies: Policies, refused: Refuse, *, may_have_more: bool
) -> pa.Table:
    """Rows of a file with an object on each line."""
    more = "ignore" if may_have_more else "error"
    try:
        options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=more)
        return json.read_json(path, parse_options=options).select(schema.names).cast(schema)
    except (pa.ArrowInvalid, KeyError):
        rows: list[dict[str, Any]] = []
        broken: list[str] = []
        for line in path.read_bytes().split(b"\n"):
            if not line.strip():
                continue
            try:
                rows.append(msgspec.json.decode(line, type=dict[str, Any]))
            except msgspec.DecodeError:
                broken.append(line.decode(errors="replace"))
        if broken:
            refused.take(policies.poison, "a line is no JSON object", where, broken)
        if rows and not may_have_more:
            _check_names(list(dict.fromkeys(name for row in rows for name in row)), schema, may_have_more=False)
        return _row_by_row(rows, schema, where, policies, refused)


def _row_by_row(
    rows: list[dict[str, Any]], schema: pa.Schema, where: str, policies: Policies, refused: Refuse
) -> pa.Table:
    """Rows of which some do not fit."""
    good: list[pa.Table] = [schema.empty_table()]
    for row in rows:
        try:
            good.append(_row(row, schema))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            text = f"a value is not what its column is: {error}"
            refused.take(policies.poison, text, where, as_json_values(row))
    return pa.concat_tables(good).combine_chunks()


def _row(row: dict[str, Any], schema: pa.Schema) -> pa.Table:
    columns: list[pa.Array] = []
    for field in schema:
        value = row.get(field.name)
        # What a number or a time is, as a text, is what Arrow says.
        columns.append(pa.array([value]).cast(field.type) if isinstance(value, str) else pa.array([value], field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def as_json_values(row: dict[str, Any]) -> list[str]:
    """A row that is no table yet, like those that are."""
    return [msgspec.json.encode(row, enc_hook=str).decode()]
