"""Parameters of a workflow's runs: what may be given, checked once, with defaults for the rest.

A value is plain (JSON's types, and what MessagePack has besides); dates are text in ISO form. The checks are made where
a run is accepted, so that every way in refuses the same. A default that is the run's logical date becomes a value
there too: the parameters of a run are always concrete.
"""

import re
from collections.abc import Callable
from datetime import date, datetime
from functools import lru_cache
from math import isfinite
from typing import Any, cast

import msgspec

from rota.core.bounds import PARAMS_BYTES_MAX, PARAMS_MAX, PATTERN_CHARS_MAX, PATTERN_SUBJECT_CHARS_MAX
from rota.core.calendar import local_time
from rota.core.errors import Refused
from rota.core.graph import check_id, check_number, check_size, check_text
from rota.core.ids import Millis
from rota.core.model import Param, ParamType
from rota.core.records import Schedule, Version

UTC = "UTC"
# What the run's logical date can be: a day, an instant, or an instant as text.
LOGICAL_DATE_TYPES = (ParamType.DATE, ParamType.DATETIME, ParamType.STRING)

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def _is_date(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_datetime(value: str) -> bool:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_number(value: Any) -> bool:
    # A number that is none, or without end, compares with nothing.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_endless(value: Any) -> bool:
    """Whether a number is none, or without end, at any depth: it could not be shown as JSON."""
    match value:
        case float():
            return not isfinite(value)
        case list() | tuple():
            return any(_is_endless(each) for each in cast("list[Any]", value))
        case dict():
            return any(_is_endless(each) for each in cast("dict[Any, Any]", value).values())
        case _:
            return False


_IS: dict[ParamType, Callable[[Any], bool]] = {
    ParamType.ANY: lambda value: True,  # noqa: ARG005 - one shape for all
    ParamType.STRING: lambda value: isinstance(value, str),
    ParamType.INTEGER: lambda value: isinstance(value, int) and not isinstance(value, bool),
    ParamType.NUMBER: _is_number,
    ParamType.BOOLEAN: lambda value: isinstance(value, bool),
    ParamType.ARRAY: lambda value: isinstance(value, list | tuple),
    ParamType.OBJECT: lambda value: isinstance(value, dict),
    ParamType.DATE: lambda value: isinstance(value, str) and _is_date(value),
    ParamType.DATETIME: lambda value: isinstance(value, str) and _is_datetime(value),
}
_A: dict[ParamType, str] = {
    ParamType.STRING: "a text",
    ParamType.INTEGER: "a whole number",
    ParamType.NUMBER: "a number",
    ParamType.BOOLEAN: "true or false",
    ParamType.ARRAY: "a list",
    ParamType.OBJECT: "an object",
    ParamType.DATE: "a date such as 2026-11-16",
    ParamType.DATETIME: "an instant such as 2026-11-16T12:00:00+00:00",
}


def check_declared(params: tuple[Param, ...]) -> None:
    """Refuse declarations that contradict themselves: a default that its own parameter would refuse."""
    check_number(len(params), 0, PARAMS_MAX, "params")
    names: dict[str, None] = {}
    for position, param in enumerate(params):
        path = f"params[{position}]"
        check_id(param.name, path, "name")
        check_text(param.doc, path, "doc")
        check_size(b"".join((param.default or b"", *param.choices)), PARAMS_BYTES_MAX, path, "default")
        if param.name in names:
            raise Refused("field.value", f"two parameters are called {param.name!r}", path=f"{path}.name")
        names[param.name] = None
        _check_pattern(param, f"{path}.pattern")
        if any(bound is not None and not isfinite(bound) for bound in (param.least, param.most)):
            raise Refused("field.value", "a bound without end is none", "Leave it out.", path=path)
        for choice in param.choices:
            _check_value(_without_choices(param), _decoded(choice, f"{path}.choices"), f"{path}.choices")
        if param.defaults_to_logical_date:
            _check_logical_date(param, f"{path}.default")
        if param.default is not None:
            _check_value(param, _decoded(param.default, f"{path}.default"), f"{path}.default")


def _check_logical_date(param: Param, path: str) -> None:
    """Refuse the logical date as the default of a parameter that could refuse it when a run is made."""
    if param.default is not None:
        text = f"the parameter {param.name!r} has two defaults: a value, and the run's logical date"
        raise Refused("field.value", text, "Leave one of them out.", path=path)
    if param.type not in LOGICAL_DATE_TYPES:
        known = ", ".join(LOGICAL_DATE_TYPES)
        text = f"the run's logical date cannot be the default of {param.name!r}, which is of type {param.type}"
        raise Refused("field.value", text, f"Declare it as one of {known}.", path=path)
    if param.choices or param.pattern or param.least is not None or param.most is not None:
        text = f"the parameter {param.name!r} has limits on its values, and the run's logical date may not fit them"
        raise Refused("field.value", text, "Leave out its choices, pattern and bounds.", path=path)


def _without_choices(param: Param) -> Param:
    """The same parameter as if it had no list of choices: what a choice itself is compared with."""
    return msgspec.structs.replace(param, choices=())


def check_params(
    params: tuple[Param, ...], given: bytes, path: str = "params", *, logical_at: Millis | None = None, zone: str = UTC
) -> bytes:
    """The parameters of a run: what was given and the defaults of the rest, packed in the order of declaration.

    `logical_at` is the run's logical date. None, where there is no run yet, leaves out what defaults to it.
    """
    values = read_params(given, path)
    known = {param.name: param for param in params}
    unknown = [name for name in values if name not in known]
    if unknown:
        names = ", ".join(known) or "none"
        raise Refused("field.value", f"there is no parameter {unknown[0]!r}", f"There are: {names}.", path=path)
    found: dict[str, Any] = {}
    for param in params:
        where = f"{path}.{param.name}"
        if param.name in values:
            _check_value(param, values[param.name], where)
            found[param.name] = _settled(param, values[param.name])
        elif param.default is not None:
            found[param.name] = default_of(param)
        elif param.defaults_to_logical_date:
            if logical_at is not None:
                found[param.name] = logical_date(param, logical_at, zone)
        else:
            raise Refused("field.value", f"the parameter {param.name!r} is missing", _wanted(param), path=where)
    return _encode(found) if found else b""


def fill_logical_dates(params: tuple[Param, ...], given: bytes, logical_at: Millis, zone: str) -> bytes:
    """Checked parameters, completed for one run: each that defaults to the logical date and has no value gets it."""
    if not any(param.defaults_to_logical_date for param in params):
        return given
    values = read_params(given)
    dates = {
        param.name: logical_date(param, logical_at, zone)
        for param in params
        if param.defaults_to_logical_date and param.name not in values
    }
    declared = [param.name for param in params if param.name in values or param.name in dates]
    return _encode({name: {**values, **dates}[name] for name in dict.fromkeys((*declared, *values))})


def complete_params(params: tuple[Param, ...], given: bytes, logical_at: Millis, zone: str) -> bytes:
    """The parameters of a run under another version: those it has, and the defaults of those that are new.

    What the run has and the version does not declare is kept, so that the run can be moved back.
    """
    values = read_params(given)
    missing = tuple(param for param in params if param.name not in values)
    if not missing:
        return given
    added = read_params(check_params(missing, b"", logical_at=logical_at, zone=zone))
    completed = _encode({**values, **added})
    check_size(completed, PARAMS_BYTES_MAX, "params")
    return completed


def zone_of(version: Version | None, schedule: Schedule | None) -> str:
    """The time zone of a workflow's dates: that of the version, or where none is stored that of the schedule."""
    of_schedule = UTC if schedule is None else schedule.spec.zone
    return of_schedule if version is None else version.zone or of_schedule


def logical_date(param: Param, logical_at: Millis, zone: str) -> str:
    """A logical date as a value of a parameter: the day in the time zone if that is a date, else the instant."""
    at = local_time(logical_at, zone)
    return at.date().isoformat() if param.type is ParamType.DATE else at.isoformat()


def _settled(param: Param, value: Any) -> Any:
    """A value as its task gets it: one that was declared as a float is one, however it was written."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if param.type is ParamType.NUMBER and is_whole else value


def default_of(param: Param) -> Any:
    """What a run is given of a parameter if nobody says."""
    return None if param.default is None else _settled(param, _decoded(param.default, param.name))


def read_params(packed: bytes, path: str = "params") -> dict[str, Any]:
    """Parameters by name, as they were packed."""
    if not packed:
        return {}
    values = _decoded(packed, path)
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in cast("dict[Any, Any]", values)):
        raise Refused("field.type", "parameters are an object of names and values", path=path)
    return cast("dict[str, Any]", values)


def _decoded(packed: bytes, path: str) -> Any:
    try:
        return msgspec.msgpack.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:
        raise Refused("field.type", f"this is not MessagePack: {error}", path=path) from None


def _check_value(param: Param, value: Any, path: str) -> None:
    if value is None and param.nullable:
        return
    if not _IS[param.type](value):
        raise Refused("field.value", f"{_show(value)} is not {_A[param.type]}", _wanted(param), path=path)
    if _is_endless(value):
        raise Refused("field.value", f"{_show(value)} has a number without end in it", _wanted(param), path=path)
    if param.choices and _encode(value) not in param.choices:
        raise Refused("field.value", f"{_show(value)} is not one of its choices", _wanted(param), path=path)
    size = len(cast("list[Any]", value)) if isinstance(value, str | list | tuple | dict) else value
    if isinstance(size, int | float) and not isinstance(size, bool):
        too_small = param.least is not None and size < param.least
        if too_small or (param.most is not None and size > param.most):
            raise Refused("field.value", f"{_show(value)} is out of bounds", _wanted(param), path=path)
    if param.pattern and isinstance(value, str):
        _check_match(param, value, path)


def _check_match(param: Param, value: str, path: str) -> None:
    if len(value) > PATTERN_SUBJECT_CHARS_MAX:
        text = f"a text of {len(value)} characters is too long to be compared with a pattern"
        raise Refused("field.size", text, f"Use at most {PATTERN_SUBJECT_CHARS_MAX}.", path=path)
    if _compiled(param.pattern).fullmatch(value) is None:
        raise Refused("field.value", f"{_show(value)} does not match {param.pattern}", _wanted(param), path=path)


# A pattern is compared inside the coordinator, where it must not take long, whatever it is compared with. So it is a
# row of characters and classes, a few of which may be repeated: no groups, no alternatives, no repeated repetition.
_ATOM = r"(?:\\[dwsDWS\W]|\[(?:\\.|[^\]\\])+\]|[^\\\[\](){}*+?|^$])"
_TIMES = r"(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})"
_PATTERN = re.compile(rf"\^?(?:{_ATOM}{_TIMES}?)*\$?")
_REPEATED = re.compile(rf"{_ATOM}(?P<times>{_TIMES})")
_REPEATED_MAX = 4


def _check_pattern(param: Param, path: str) -> None:
    if not param.pattern:
        return
    hint = "Use characters and classes such as [a-z] or \\d, a few of them repeated; for alternatives use choices."
    if len(param.pattern) > PATTERN_CHARS_MAX or not _PATTERN.fullmatch(param.pattern):
        raise Refused("field.value", f"the pattern {param.pattern[:60]!r} is more than is compared", hint, path=path)
    if len(_REPEATED.findall(param.pattern)) > _REPEATED_MAX:
        text = f"the pattern {param.pattern[:60]!r} repeats more than {_REPEATED_MAX} things"
        raise Refused("field.value", text, hint, path=path)
    try:
        _compiled(param.pattern)
    except re.error as error:
        raise Refused("field.value", f"the pattern {param.pattern!r} cannot be read: {error}", path=path) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _wanted(param: Param) -> str:
    """What a value has to be, in a sentence."""
    parts = [_A.get(param.type, "any value")]
    if param.choices:
        parts.append("one of " + ", ".join(_show(msgspec.msgpack.decode(choice)) for choice in param.choices))
    if param.least is not None or param.most is not None:
        of = "" if param.type in (ParamType.INTEGER, ParamType.NUMBER) else " of its length"
        low = "" if param.least is None else f" from {param.least:g}"
        high = "" if param.most is None else f" to {param.most:g}"
        parts.append(f"bounds{of}{low}{high}")
    if param.pattern:
        parts.append(f"matching {param.pattern}")
    if param.nullable:
        parts.append("or null")
    doc = f" ({param.doc})" if param.doc else ""
    return f"{param.name} is {', '.join(parts)}{doc}."


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
