"""What people give to a stream, checked at the door: lengths of time, names of columns, policies."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from rota.core.errors import Refused
from rota.kinds.query.streams.policies import Policy

# A hundred years: more is a mistake, and far more does not fit into the engine's numbers.
SECONDS_MAX = 100 * 366 * 86_400


def millis(seconds: Any, path: str, *, least_ms: int = 0) -> int:
    """A length of time in milliseconds."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or abs(seconds) > SECONDS_MAX or round(seconds * 1_000) < least_ms:
        hint = f"Give seconds: a number from {least_ms / 1_000:g} to {SECONDS_MAX:,}."
        raise Refused("field.value", f"{seconds!r} is no length of time here", hint, path=path)
    return round(seconds * 1_000)


def check_counts(**given: Any) -> None:
    """Refuse what is no number of at least one, by the name of its option."""
    for name, count in given.items():
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 1 << 63:
            raise Refused("field.value", f"{count!r} is no number here", "Give a whole number from 1.", path=name)


def check_policies(**given: Any) -> None:
    """Refuse what is no policy, by the name of its option."""
    for name, policy in given.items():
        if policy not in get_args(Policy):
            hint = f"There are {', '.join(get_args(Policy))}."
            raise Refused("field.value", f"there is no policy {policy!r}", hint, path=name)


def names(given: Any, path: str) -> tuple[str, ...]:
    """Names of columns."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise Refused("field.value", f"{given!r} is no list of columns", f'Such as ["{given}"].', path=path)
    return tuple(given)


def mapping(given: Any, path: str) -> Mapping[str, str]:
    """Columns of an answer by their names."""
    if not isinstance(given, Mapping):
        raise Refused("field.value", f"{given!r} has no names of columns", 'Such as {"n": "count(*)"}.', path=path)
    return given
