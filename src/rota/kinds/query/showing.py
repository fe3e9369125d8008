"""Single values of an answer: for people, and as JSON has them."""

import base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

_encode = msgspec.json.Encoder().encode


def plain_value(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, pa.MonthDayNano | Decimal | timedelta):
        return show_value(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    return value


def show_value(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, pa.MonthDayNano):
        return _show_interval(*value)
    if isinstance(value, list | tuple | dict):
        return _encode(plain_value(value)).decode()
    return str(value)


def _show_interval(months: int, days: int, nanoseconds: int) -> str:
    counts = ((months, "month"), (days, "day"))
    parts = [f"{count} {what}" if abs(count) == 1 else f"{count} {what}s" for count, what in counts if count]
    if nanoseconds or not parts:
        parts.append(f"{nanoseconds / 1e9:.9f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)
