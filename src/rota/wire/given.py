"""What people give a run, as it travels: its parameters and its priority."""

from collections.abc import Mapping
from datetime import date
from enum import Enum
from typing import Any, cast

import msgspec

from rota.core.errors import Refused
from rota.core.model import PriorityClass


def plain(value: Any) -> Any:
    """A value as a run is given it: dates as their text, members of an enumeration as their values."""
    match value:
        case date():
            return value.isoformat()
        case Enum():
            return value.value
        case dict():
            return {key: plain(each) for key, each in cast(dict[Any, Any], value).items()}
        case list() | tuple():
            return [plain(each) for each in cast(list[Any], value)]
        case _:
            return value


def packed(params: Mapping[str, Any]) -> bytes:
    """Parameters as they travel; nothing for none."""
    try:
        return msgspec.msgpack.encode(plain(dict(params))) if params else b""
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        hint = "Use text, numbers, lists, dictionaries and dates."
        raise Refused("field.type", f"a parameter cannot be sent: {error}", hint, path="params") from None


def priority_class(name: str) -> PriorityClass:
    """A priority by its name."""
    try:
        return PriorityClass(name)
    except ValueError:
        known = ", ".join(PriorityClass)
        raise Refused("field.value", f"{name!r} is no priority", f"Use one of {known}.", path="priority") from None
