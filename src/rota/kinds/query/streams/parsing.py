"""Tables as rows of a schema; and where lines go that are none, one by one."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct

from rota.kinds.query.streams.asking import fitted, row_schema
from rota.kinds.query.streams.policies import Policy, Unusable


class Unfit(Exception):
    """A file has other columns than its stream. `is_of_rows`: it is some of its values that do not fit."""

    def __init__(self, why: str, *, is_of_rows: bool = False) -> None:
        super().__init__(why)
        self.is_of_rows = is_of_rows


class Aside(Struct, frozen=True):
    """Where lines of one file go that cannot be read."""

    policy: Policy
    where: str
    refused: Unusable

    def take(self, reason: str, lines: list[str]) -> None:
        """Set lines aside, if there are any."""
        if lines:
            self.refused.take(self.policy, reason, self.where, lines)


def fit_table(table: pa.Table, schema: pa.Schema, *, may_have_more: bool) -> pa.Table:
    """A table as a schema has it, if nothing is lost by that; or Unfit. One that is damaged is Arrow's to refuse."""
    check_names(table.column_names, schema, may_have_more=may_have_more)
    wanted = table.select(schema.names)
    # The engine believes what is in a table, and ends this process if that is wrong.
    wanted.validate(full=True)
    try:
        return fitted(fitted(wanted, row_schema(wanted.schema)), schema)
    except pa.ArrowNotImplementedError as error:
        raise Unfit(f"its columns have other types: {error}") from None
    except pa.ArrowInvalid as error:
        raise Unfit(f"its columns have other types: {error}", is_of_rows=True) from None


def check_names(names: Sequence[str], schema: pa.Schema, *, may_have_more: bool) -> None:
    """Unfit, if a file has not each column of a schema once."""
    lacking = [name for name in schema.names if name not in names]
    if lacking:
        raise Unfit(f"it lacks {', '.join(lacking)}")
    check_new(names, schema, may_have_more=may_have_more)
    check_once([name for name in names if name in schema.names])


def check_new(names: Sequence[str], schema: pa.Schema, *, may_have_more: bool) -> None:
    """Unfit, if a file has columns that nobody knows, and may not."""
    more = [name for name in names if name not in schema.names]
    if more and not may_have_more:
        raise Unfit(f"it has new columns: {', '.join(more)}")


def check_once(names: Sequence[str]) -> None:
    """Unfit, if two columns have the same name."""
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    if doubled := [name for name, count in counts.items() if count > 1]:
        raise Unfit(f"it has more than one column called {', '.join(doubled)}")


def seen_as(kind: Any) -> pa.DataType:
    """What a column is of which the first file has shown values of a type: later ones may say more.

    One without values may get some, and moments may get fractions of seconds. Times of day are read from no text.
    """
    types = pa.types
    if types.is_null(kind) or types.is_time(kind):
        return pa.string()
    if types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("us", kind.tz)
    if types.is_list(kind):
        return pa.list_(seen_as(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([field.with_type(seen_as(field.type)) for field in kind])
    return kind
