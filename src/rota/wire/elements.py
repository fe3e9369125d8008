"""What tasks can be mapped over."""

from typing import Any, cast


class Unforeseen(Exception):
    """A value that nothing can follow from: trying again would not help."""


def elements_of(value: Any) -> list[Any]:
    """What there is to map over; of a dictionary its pairs."""
    if isinstance(value, dict):
        return list(cast(dict[Any, Any], value).items())
    if isinstance(value, list | tuple | range):
        return list(cast(list[Any], value))
    kind = "nothing" if value is None else f"a {type(value).__name__}"
    raise Unforeseen(f"tasks are mapped over lists, tuples and dictionaries, and this is {kind}")
