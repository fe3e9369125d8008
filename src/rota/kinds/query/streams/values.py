"""Values of columns as Python and people see them, and as keys are compared."""

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rota.kinds.query.streams.kernels import pc
from rota.wire.plain import with_leaves

# What reading a value raises that Python has none for: a year after 9999, or more days than it counts.
NO_VALUE = (ValueError, OverflowError)


def as_numbers(column: Any) -> Any:
    """A column, or one value, with moments, dates, times and durations as the numbers that they are."""
    kind = with_leaves(column.type, _numeric)
    return column if kind.equals(column.type) else column.cast(kind)


def _numeric(kind: Any) -> Any:
    types = pa.types
    if types.is_date32(kind) or types.is_time32(kind):
        return pa.int32()
    is_long = types.is_timestamp(kind) or types.is_duration(kind) or types.is_date64(kind) or types.is_time64(kind)
    return pa.int64() if is_long else kind


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
