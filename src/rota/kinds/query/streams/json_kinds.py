"""Values of JSON that cannot be what their column is, whatever Arrow thinks of them.

Only what Arrow is sure to refuse is found here: it is asked about the rest, and that takes long for each line that it
refuses. A file of which all lines are wrong is wrong in a way that is seen here, most of the time.
"""

import re
from typing import Any

import pyarrow as pa
from msgspec import Struct

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DIGIT = re.compile(r"\d", re.ASCII)
# Also what is no number, and what is infinite.
_NUMBER = re.compile(r"\d|n", re.ASCII | re.IGNORECASE)


class Column(Struct, frozen=True):
    """A column, and which values of JSON may be some of it; `text` is what texts have in them then."""

    name: str
    kind: str
    takes: tuple[type, ...]
    text: re.Pattern[str] | None = None

    def may_have(self, value: object) -> bool:
        """Whether a value may be one of this column."""
        if value is None or (isinstance(value, str) and self.text is not None and self.text.search(value)):
            return True
        # Not with isinstance: True is no number.
        return type(value) in self.takes


def checked_columns(schema: pa.Schema) -> list[Column]:
    """All columns of which something is known."""
    found = [_column(field.name, field.type) for field in schema]
    return [each for each in found if each is not None]


def _column(name: str, kind: Any) -> Column | None:
    types, called = pa.types, str(kind)
    if types.is_integer(kind):
        return Column(name, called, (int,), _DIGIT)
    if types.is_floating(kind) or types.is_decimal(kind):
        return Column(name, called, (int, float), _NUMBER)
    if types.is_timestamp(kind) or types.is_date(kind):
        return Column(name, called, (int,), _DATE)
    if types.is_time(kind) or types.is_duration(kind):
        return Column(name, called, (int,))
    if types.is_boolean(kind):
        return Column(name, called, (bool, str))
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if is_text or types.is_binary(kind) or types.is_large_binary(kind):
        return Column(name, called, (str,))
    return None
