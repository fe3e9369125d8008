"""Answers as drivers can take them: types that all of them know, in messages that none of them refuses."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rota.wire.plain import plain_type, with_leaves

# Drivers refuse messages of more than 16 MB unless told otherwise.
MESSAGE_BYTES_MAX = 8 << 20


def driver_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without views, and without dictionaries: drivers fail on them."""
    return pa.schema([field.with_type(with_leaves(field.type, _plain)) for field in schema])


def _plain(kind: Any) -> Any:
    return with_leaves(kind.value_type, _plain) if pa.types.is_dictionary(kind) else plain_type(kind)


def _converted(column: Any, kind: Any) -> Any:
    """A column as one of another type. Arrow cannot take the values of a dictionary that are views."""
    if pa.types.is_dictionary(column.type):
        values = column.dictionary.cast(with_leaves(column.type.value_type, _plain))
        column = pa.DictionaryArray.from_arrays(column.indices, values)
    try:
        return column.cast(kind)
    except pa.ArrowNotImplementedError:
        # Such a dictionary within a list, a struct or a map.
        return pa.array(column.to_pylist(), kind)


def pieces(batch: pa.RecordBatch, schema: pa.Schema, bytes_max: int = MESSAGE_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """A batch with the types of `schema`, as several if it is large. A row is never divided."""
    if batch.schema.types != schema.types:
        columns = [
            column if column.type == field.type else _converted(column, field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if batch.nbytes <= bytes_max or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half), schema, bytes_max)
    yield from pieces(batch.slice(half), schema, bytes_max)
