"""What people give to a stream, checked at the door: numbers, lengths of time, names, places, policies, parts."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pyarrow as pa

from rota.core.errors import Refused
from rota.kinds.query.streams.policies import Policy
from rota.wire.standings import is_text

# A hundred years: more is a mistake, and far more does not fit into the engine's numbers.
SECONDS_MAX = 100 * 366 * 86_400
# What fits into 64 bits, as numbers of files and of the engine do.
WHOLE_MAX = (1 << 63) - 1
# Each partition has an offset and a watermark in every round.
PARTITIONS_MAX = 1_024
_SHOWN_CHARS = 100


def shown(value: Any) -> str:
    """A value as a message has it, whatever it is."""
    try:
        text = repr(value)
    except ValueError:
        # Of very many digits Python makes no text.
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _refused(value: Any, is_no: str, hint: str, path: str) -> Refused:
    return Refused("field.value", f"{shown(value)} is no {is_no}", hint, path=path)


def millis(seconds: Any, path: str, *, least_ms: int = 0) -> int:
    """A length of time in milliseconds."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    # Written like that, since NaN is neither more nor less than anything.
    if not is_number or not abs(seconds) <= SECONDS_MAX or round(seconds * 1_000) < least_ms:
        hint = f"Give seconds: a number from {least_ms / 1_000:g} to {SECONDS_MAX:,}."
        raise _refused(seconds, "length of time here", hint, path)
    return round(seconds * 1_000)


def whole(value: Any, path: str, *, least: int = 1, most: int = WHOLE_MAX) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        limits = f"from {least:,}" if most == WHOLE_MAX else f"from {least:,} to {most:,}"
        raise _refused(value, "number here", f"Give a whole number {limits}.", path)
    return value


def check_counts(**given: Any) -> None:
    """Refuse what is no number of at least one, by the name of its option."""
    for name, count in given.items():
        whole(count, name)


def text(value: Any, path: str) -> str:
    """A text that can be told to others."""
    if not isinstance(value, str):
        raise _refused(value, "text", "Give a text.", path)
    if not is_text(value):
        raise _refused(value, "text of UTF-8", "Give one that is.", path)
    return value


def place(value: Any, path: str) -> str:
    """A path, or a URL, of what is told to others by its name."""
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(found, str) or not found or "\0" in found or not is_text(found):
        raise _refused(value, "path", "Give the path of a folder, as a text of UTF-8 or as a Path.", path)
    return found


def choice(value: Any, choices: Sequence[Any], path: str) -> Any:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise Refused("field.value", f"there is no {shown(value)}", f"There are {', '.join(choices)}.", path=path)
    return value


def check_policies(**given: Any) -> None:
    """Refuse what is no policy, by the name of its option."""
    for name, policy in given.items():
        choice(policy, get_args(Policy), name)


def is_true(value: Any, path: str) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if not isinstance(value, bool):
        raise _refused(value, "truth", "Give True or False.", path)
    return value


def names(given: Any, path: str) -> tuple[str, ...]:
    """Names of columns."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        hint = f'Such as ["{given}"].' if isinstance(given, str) else 'Such as ["city"].'
        raise _refused(given, "list of columns", hint, path)
    return tuple(text(each, path) for each in given)


def pair(given: Any, path: str, example: str) -> tuple[Any, Any]:
    """Two values of a kind."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or len(given) != 2:
        raise _refused(given, "pair", f"Such as {example}.", path)
    return given[0], given[1]


def mapping(given: Any, path: str) -> dict[str, str]:
    """Columns of an answer by their names."""
    if not isinstance(given, Mapping):
        raise _refused(given, "table of columns by their names", 'Such as {"n": "count(*)"}.', path)
    return {text(name, path): text(value, path) for name, value in given.items()}


def check_kind(value: Any, kind: type, path: str) -> None:
    """Refuse what is of another kind."""
    if not isinstance(value, kind):
        raise _refused(value, kind.__name__, f"Give a {kind.__module__}.{kind.__name__}.", path)


def check_callable(value: Any, path: str) -> None:
    """Refuse what nobody can call."""
    if not callable(value):
        raise _refused(value, "function", "Give one.", path)


def check_schema(value: Any, path: str) -> None:
    """Refuse what is no schema, and one with two columns that nobody could tell apart."""
    check_kind(value, pa.Schema, path)
    if len(dict.fromkeys(value.names)) != len(value.names):
        text = f"two columns have the same name: {', '.join(value.names)}"
        raise Refused("query.column", text, "Give one another name.", path=path)


def check_part(value: Any, protocol: type, path: str) -> None:
    """Refuse what has not all that a protocol asks for: a source or a sink of somebody's own."""
    methods = (name for name, each in vars(protocol).items() if callable(each) and not name.startswith("_"))
    wanted = (*protocol.__annotations__, *methods)
    # A class has methods, too, that nobody can call.
    lacking = [name for name in wanted if isinstance(value, type) or not hasattr(value, name)]
    if lacking:
        hint = f"See {protocol.__module__}.{protocol.__name__} for what it takes."
        raise Refused("field.value", f"{shown(value)} has no {', '.join(lacking)}", hint, path=path)
    text(value.called, path)


def check_tables(given: Sequence[Any], path: str) -> None:
    """Refuse what are no tables, and tables that have not the same columns."""
    for table in given:
        check_kind(table, pa.Table, path)
        if sorted(table.schema.names) != sorted(given[0].schema.names):
            shown_names = " and ".join(", ".join(each.schema.names) or "none" for each in (given[0], table))
            hint = "Give tables with the same columns."
            raise Refused("field.value", f"tables have other columns: {shown_names}", hint, path=path)
