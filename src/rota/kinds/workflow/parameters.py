"""Parameters of a workflow's runs: what the function that writes it down says about its own."""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec
from msgspec import Struct

from rota.core.model import Param as ParamSpec
from rota.core.model import ParamType
from rota.kinds.workflow.draft import Parameter
from rota.kinds.workflow.later import Later
from rota.wire.given import plain

_TYPES: dict[Any, ParamType] = {
    str: ParamType.STRING,
    int: ParamType.INTEGER,
    float: ParamType.NUMBER,
    bool: ParamType.BOOLEAN,
    list: ParamType.ARRAY,
    tuple: ParamType.ARRAY,
    dict: ParamType.OBJECT,
    date: ParamType.DATE,
    datetime: ParamType.DATETIME,
    Sequence: ParamType.ARRAY,
    Mapping: ParamType.OBJECT,
}
NOT_A_VALUE = (
    "rota.logical_date() is the default of a workflow's parameter, and not a value. "
    "Declare one, such as `day: date = rota.logical_date()`, and pass that on."
)
_READ = {ParamType.DATE: "date", ParamType.DATETIME: "datetime"}


class Param(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """More about a parameter than its type: `count: Annotated[int, rota.Param(least=1, most=10)] = 3`.

    `least` and `most` bound a number, or the length of a text or a list.
    """

    least: float | None = None
    most: float | None = None
    pattern: str = ""
    doc: str = ""


class LogicalDate(Later):
    """The default of a parameter that is the logical date of each run."""

    __slots__ = ()

    def told(self) -> str:
        """How it is written."""
        return "rota.logical_date()"

    def __reduce__(self) -> Any:
        raise TypeError(NOT_A_VALUE)

    def __repr__(self) -> str:
        return self.told()


_LOGICAL_DATE = LogicalDate()


def logical_date() -> Any:
    """The run's logical date as the default of a workflow's parameter: `def etl(day: date = rota.logical_date())`.

    A `date` is the calendar day in the workflow's time zone, a `datetime` or a `str` the instant with its offset. The
    value is set when the run is made; a value that the run is given counts more.
    """
    return _LOGICAL_DATE


def params_of(name: str, function: Callable[..., Any]) -> tuple[ParamSpec, ...]:
    """The parameters of a workflow, from the signature of its function."""
    found: list[ParamSpec] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"workflow {name!r}: {parameter} cannot be a parameter of a run; give it a name")
        said = _looked_up(function, parameter)
        about = Param()
        if get_origin(said) is Annotated:
            said, *more = get_args(said)
            about = next((each for each in more if isinstance(each, Param)), about)
        kind, nullable, choices = _read(said)
        is_logical_date = isinstance(parameter.default, LogicalDate)
        has_value = parameter.default is not parameter.empty and not is_logical_date
        found.append(
            ParamSpec(
                name=parameter.name,
                type=kind,
                default=_packed(name, parameter.name, parameter.default) if has_value else None,
                defaults_to_logical_date=is_logical_date,
                nullable=nullable or parameter.default is None,
                choices=tuple(_packed(name, parameter.name, choice) for choice in choices),
                **msgspec.structs.asdict(about),
            )
        )
    return tuple(found)


def stand_ins(params: Iterable[ParamSpec]) -> dict[str, Parameter]:
    """What stands for the parameters while the workflow is written down."""
    return {param.name: Parameter(param.name, _READ.get(param.type, "")) for param in params}


def _looked_up(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """What an annotation means, also where it is written as text. One that cannot be looked up says nothing."""
    if parameter.annotation is parameter.empty:
        return Any
    # One at a time: a name that is imported for type checkers only must not take the other types with it.
    alone = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(alone, globalns=names, include_extras=True)[parameter.name]
    except Exception:  # the function works without
        return Any


def _read(said: Any) -> tuple[ParamType, bool, tuple[Any, ...]]:
    """What an annotation says: the type, whether there may be nothing, and the values that there are."""
    if get_origin(said) in (Union, types.UnionType):
        rest = [each for each in get_args(said) if each is not types.NoneType]
        nullable = len(rest) < len(get_args(said))
        if len(rest) != 1:
            return ParamType.ANY, nullable, ()
        kind, _, choices = _read(rest[0])
        return kind, nullable, choices
    if get_origin(said) is Literal:
        choices = get_args(said)
        return _type_of(choices), None in choices, tuple(each for each in choices if each is not None)
    if isinstance(said, type) and issubclass(said, Enum):
        values = tuple(member.value for member in said)
        return _type_of(values), False, values
    try:
        return _TYPES.get(cast(Any, get_origin(said) or said), ParamType.ANY), False, ()
    except TypeError:  # an annotation that is no type at all
        return ParamType.ANY, False, ()


def _type_of(values: Iterable[Any]) -> ParamType:
    kinds = dict.fromkeys(cast(type[object], type(value)) for value in values if value is not None)
    return _TYPES.get(next(iter(kinds)), ParamType.ANY) if len(kinds) == 1 else ParamType.ANY


def _packed(name: str, parameter: str, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(plain(value))
    except (TypeError, OverflowError, ValueError) as error:
        text = f"workflow {name!r}, parameter {parameter!r}: {value!r} cannot be a value of a run ({error})"
        raise TypeError(f"{text}. Use text, numbers, lists, dictionaries and dates.") from None
