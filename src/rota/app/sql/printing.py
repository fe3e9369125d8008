"""Answers as files: CSV, JSON and Parquet, written batch by batch."""

from collections.abc import Sequence
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from rota.kinds.query.cell_text import cell_texts, json_values
from rota.wire.targets import check_columns

_encode = msgspec.json.Encoder().encode


def write_as(answer: pa.RecordBatchReader, form: str, target: IO[bytes]) -> None:
    """Write all of an answer."""
    if form == "csv":
        _write_csv(answer, target)
    elif form == "json":
        _write_json(answer, target)
    else:
        schema = pa.schema(
            [field.with_name(name) for field, name in zip(answer.schema, unlike(answer.schema.names), strict=True)]
        )
        check_columns("parquet", schema)
        with pyarrow.parquet.ParquetWriter(target, schema) as writer:
            for batch in answer:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def unlike(names: Sequence[str]) -> list[str]:
    """Names of which none comes twice: where there can be one of each only, the second `id` is `id_2`."""
    found: dict[str, None] = {}
    for name in names:
        number = 2
        chosen = name
        while chosen in found or (chosen != name and chosen in names):
            chosen = f"{name}_{number}"
            number += 1
        found[chosen] = None
    return list(found)


def _write_csv(answer: pa.RecordBatchReader, target: IO[bytes]) -> None:
    schema = pa.schema([pa.field(field.name, _of_csv(field.type)) for field in answer.schema])
    with pyarrow.csv.CSVWriter(target, schema) as writer:
        for batch in answer:
            columns = [_csv_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _of_csv(kind: pa.DataType) -> pa.DataType:
    """What a column is written as in CSV: what its writer does not know, or writes as bare counts, becomes text."""
    types = pa.types
    is_number = types.is_primitive(kind) or types.is_decimal(kind)
    is_known = is_number or types.is_large_string(kind) or types.is_null(kind)
    return pa.string() if types.is_interval(kind) or types.is_duration(kind) or not is_known else kind


def _csv_column(column: "pa.Array[Any]", kind: pa.DataType) -> "pa.Array[Any]":
    if column.type == kind:
        return column
    if pa.types.is_string_view(column.type):
        return column.cast(kind)
    return pa.array(cell_texts(column), kind)


def _write_json(answer: pa.RecordBatchReader, target: IO[bytes]) -> None:
    """One array of objects, a line for each."""
    names = unlike(answer.schema.names)
    between = b"["
    for batch in answer:
        columns = [json_values(column) for column in batch.columns]
        for number in range(batch.num_rows):
            row = {name: column[number] for name, column in zip(names, columns, strict=True)}
            target.write(between + b"\n " + _encode(row))
            between = b","
    target.write(b"[]\n" if between == b"[" else b"\n]\n")
