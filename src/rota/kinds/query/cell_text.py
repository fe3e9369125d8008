"""Values of an answer's columns: as text for people, and as JSON.

Read from Arrow's own values. Its conversion to Python objects cuts nanoseconds of times, fails on nanoseconds of
timestamps and durations where pandas is not installed, and fails outside of Python's calendar.
"""

import base64
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import pyarrow as pa

_encode = msgspec.json.Encoder().encode

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_S = 86_400
# Those of text are among them.
_BYTES = (pa.BinaryScalar, pa.LargeBinaryScalar, pa.FixedSizeBinaryScalar, pa.BinaryViewScalar)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone are counted from it, too


def cell_texts(column: "pa.Array[Any] | pa.ChunkedArray[Any]") -> list[str | None]:
    """A column's values as text for people; None for NULL."""
    return [_text(_unwrapped(value)) for value in column]


def json_values(column: "pa.Array[Any] | pa.ChunkedArray[Any]") -> list[Any]:
    """A column's values as JSON has them. It has no NaN and no infinity: these are texts."""
    if _is_json(column.type):
        return column.to_pylist()
    return [_plain(_unwrapped(value)) for value in column]


def _is_json(kind: pa.DataType) -> bool:
    """Whether Python's objects for values of a type are what JSON has."""
    types = pa.types
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return is_text or types.is_integer(kind) or types.is_boolean(kind)


def _text(value: Any) -> str | None:
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(kind):
        return _timestamp(value, " ")
    if pa.types.is_boolean(kind):
        return "true" if value.as_py() else "false"
    content: Any = value.as_py() if isinstance(value, _BYTES) else None
    if isinstance(content, bytes):
        return content.hex()
    plain = _plain(value)
    return _encode(plain).decode() if isinstance(plain, list | dict) else str(plain)


def _plain(value: Any) -> Any:
    kind = value.type
    types = pa.types
    if not value.is_valid:
        return None
    if types.is_struct(kind):
        fields = [(kind.field(number).name, _plain(_unwrapped(value[number]))) for number in range(kind.num_fields)]
        named = dict(fields)
        # Names may come twice, and JSON has room for one of each.
        return named if len(named) == len(fields) else [list(field) for field in fields]
    if types.is_map(kind):
        # A key may come twice, and need not be text.
        keys, items = (json_values(value.values.field(number)) for number in range(2))
        return [list(entry) for entry in zip(keys, items, strict=True)]
    if types.is_nested(kind):
        return json_values(value.values)
    if types.is_temporal(kind):
        return _time(value)
    found = value.as_py()
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    is_text = isinstance(found, Decimal) or (isinstance(found, float) and not isfinite(found))
    return str(found) if is_text else found


def _time(value: Any) -> str:
    """A value of one of the types of time."""
    kind = value.type
    types = pa.types
    if types.is_timestamp(kind):
        return _timestamp(value, "T")
    if types.is_date(kind):
        return _date(value)
    if types.is_interval(kind):
        return _interval(*value.as_py())
    nanoseconds = value.value * (10**9 // _PER_SECOND[kind.unit])
    if types.is_duration(kind):
        return _interval(0, *_days(nanoseconds))
    seconds, fraction = divmod(nanoseconds, 10**9)
    return _clock(seconds) + _fraction(fraction)


def _unwrapped(value: Any) -> Any:
    """The value that a dictionary, an extension, a union or a run stands for."""
    while isinstance(value, pa.DictionaryScalar | pa.ExtensionScalar | pa.UnionScalar | pa.RunEndEncodedScalar):
        value = value.value
    return value


def _timestamp(value: Any, between: str) -> str:
    seconds, fraction = divmod(value.value * (10**9 // _PER_SECOND[value.type.unit]), 10**9)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
        if value.type.tz is not None:
            moment = moment.replace(tzinfo=UTC).astimezone(_zone(value.type.tz))
    except OverflowError:
        # Python's calendar ends with the year 9999.
        return f"{value.value} {value.type.unit} since 1970"
    text = moment.isoformat(between)
    at = len("0000-00-00 00:00:00")
    return text[:at] + _fraction(fraction) + text[at:]


@cache
def _zone(name: str) -> tzinfo:
    """A zone by its name, or by its offset from UTC (`+05:30`); UTC for a name that this machine does not know."""
    try:
        return datetime.strptime(name, "%z").tzinfo or UTC if name[:1] in ("+", "-") else ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return UTC


def _date(value: Any) -> str:
    days = value.value if pa.types.is_date32(value.type) else value.value // (_DAY_S * 1_000)
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days} days since 1970"


def _clock(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}"


def _fraction(nanoseconds: int) -> str:
    """A fraction of a second: nothing, six digits, or nine if six do not hold it."""
    if not nanoseconds:
        return ""
    return f".{nanoseconds:09}" if nanoseconds % 1_000 else f".{nanoseconds // 1_000:06}"


def _days(nanoseconds: int) -> tuple[int, int]:
    """Whole days and the rest, both with the sign of the whole."""
    days, rest = divmod(abs(nanoseconds), _DAY_S * 10**9)
    return (days, rest) if nanoseconds >= 0 else (-days, -rest)


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """As DuckDB has it: `1 year 2 months 3 days 04:05:06.5`. Each part has its own sign."""
    years, rest = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    counts = ((sign * years, "year"), (sign * rest, "month"), (days, "day"))
    parts = [f"{count} {word}" if abs(count) == 1 else f"{count} {word}s" for count, word in counts if count]
    if nanoseconds or not parts:
        seconds, fraction = divmod(abs(nanoseconds), 10**9)
        digits = f".{fraction:09}".rstrip("0") if fraction else ""
        parts.append(("-" if nanoseconds < 0 else "") + _clock(seconds) + digits)
    return " ".join(parts)
