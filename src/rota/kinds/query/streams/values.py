"""Values of columns as Python and people see them, and as keys are compared."""

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rota.kinds.query.streams.kernels import pc

# What reading a value raises that Python has none for: a year after 9999, or more days than it counts.
NO_VALUE = (ValueError, OverflowError)


def as_numbers(column: Any) -> Any:
    """A column, or one value, with moments, dates, times and durations as the numbers that they are."""
    kind = _numeric(column.type)
    return column if kind.equals(column.type) else column.cast(kind)


def _numeric(kind: Any) -> pa.DataType:
    types = pa.types
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_date64(kind) or types.is_time64(kind):
        return pa.int64()
    if types.is_list(kind):
        return pa.list_(_numeric_field(kind.value_field))
    if types.is_large_list(kind):
        return pa.large_list(_numeric_field(kind.value_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_numeric_field(kind.value_field), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([_numeric_field(kind.field(number)) for number in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_numeric(kind.key_type), _numeric_field(kind.item_field))
    return kind


def _numeric_field(field: Any) -> Any:
    return field.with_type(_numeric(field.type))


def with_equal_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows with floating keys of which equal ones are the same: there is one zero, and one that is no number.

    The engine groups both zeros together, and tells them apart where it numbers rows; hashes of ours do, too.
    """
    for key in dict.fromkeys(keys):
        column: Any = table.column(key)
        if pa.types.is_floating(column.type):
            table = table.set_column(table.column_names.index(key), table.schema.field(key), _equal(column))
    return table


def _equal(column: Any) -> Any:
    # Arrow does not add numbers of 16 bits.
    wide = column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
    nan = pa.scalar(math.nan, wide.type)
    return pc.if_else(pc.is_nan(wide), nan, pc.add(wide, pa.scalar(0.0, wide.type))).cast(column.type)
