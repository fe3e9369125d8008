"""Answers as files: CSV, JSON and Parquet, written batch by batch."""

import base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

_encode = msgspec.json.Encoder().encode


def write_as(answer: pa.RecordBatchReader, form: str, target: IO[bytes]) -> None:
    """Write all of an answer."""
    if form == "csv":
        _write_csv(answer, target)
    elif form == "json":
        _write_json(answer, target)
    else:
        with pyarrow.parquet.ParquetWriter(target, answer.schema) as writer:
            for batch in answer:
                writer.write_batch(batch)


def _write_csv(answer: pa.RecordBatchReader, target: IO[bytes]) -> None:
    # Its writer knows no views of texts.
    schema = pa.schema([pa.field(field.name, _plain(field.type)) for field in answer.schema])
    with pyarrow.csv.CSVWriter(target, schema) as writer:
        for batch in answer:
            columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _plain(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.string()
    return pa.binary() if kind == pa.binary_view() else kind


def _write_json(answer: pa.RecordBatchReader, target: IO[bytes]) -> None:
    """One array of objects, a line for each."""
    between = b"["
    for batch in answer:
        for row in batch.to_pylist():
            target.write(between + b"\n " + _encode({name: _json(value) for name, value in row.items()}))
            between = b","
    target.write(b"[]\n" if between == b"[" else b"\n]\n")


def _json(value: Any) -> Any:
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    return value
