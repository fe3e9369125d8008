"""Answers as drivers can take them: types that all of them know, in messages that none of them refuses."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

# Drivers refuse messages of more than 16 MB unless told otherwise.
MESSAGE_BYTES_MAX = 8 << 20


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without the engine's views of texts, which many drivers cannot read."""
    return pa.schema([_plain_field(field) for field in schema])


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _plain(kind: Any) -> pa.DataType:
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(number)) for number in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain_field(kind.item_field), kind.keys_sorted)  # pyright: ignore[reportArgumentType] - a field is taken too
    return kind


def pieces(batch: pa.RecordBatch, schema: pa.Schema, bytes_max: int = MESSAGE_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """A batch with the types of `schema`, as several if it is large. A row is never divided."""
    if batch.schema.types != schema.types:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if batch.nbytes <= bytes_max or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from pieces(batch.slice(0, half), schema, bytes_max)
    yield from pieces(batch.slice(half), schema, bytes_max)
