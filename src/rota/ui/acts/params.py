"""Parameters of a run as fields of a form, and what was filled in as values: the checks are the coordinator's."""

import json
from collections.abc import Iterable
from typing import Any

from msgspec import structs

from rota.core.errors import Refused
from rota.core.model import Param, ParamType
from rota.ui.acts.acting import Field, Sent
from rota.wire.views import as_json, show_param

_KINDS = {
    ParamType.INTEGER: "number",
    ParamType.NUMBER: "number",
    ParamType.DATE: "date",
    ParamType.DATETIME: "datetime-local",
}
_TEXTS = (ParamType.STRING, ParamType.DATE, ParamType.DATETIME)
_NUMBERS = (ParamType.INTEGER, ParamType.NUMBER)
_NULL = "null"
# What a browser takes for `datetime-local`: no zone, and nothing finer than milliseconds.
_LOCAL_CHARS = 19


class Given(Sent, frozen=True, kw_only=True):
    """Parameters by name, and what was filled in for each, in the same order."""

    param: tuple[str, ...] = ()
    value: tuple[str, ...] = ()

    def said(self) -> dict[str, str]:
        """What was filled in, by the name of its parameter."""
        if len(self.param) != len(self.value):
            raise Refused("field.value", "parameters and values do not go together", "Look at the page again.")
        return dict(zip(self.param, self.value, strict=True))


def fields_of(params: Iterable[Param], form: Any) -> list[Field]:
    """A field for each parameter, with its default, or with what was filled in before."""
    said = form.said() if isinstance(form, Given) else {}
    return [_field(param, said.get(param.name)) for param in params]


def _field(param: Param, said: str | None) -> Field:
    shown = show_param(param)
    value = said if said is not None else _shown(param, shown["default"])
    given = Field(
        name="value",
        param=param.name,
        label=param.name,
        kind=_KINDS.get(param.type, "textarea"),
        value=value,
        note=_note(param, shown),
        # A browser does not send an empty one then. A text may be empty.
        is_required=shown["required"] and param.type is not ParamType.STRING and not param.nullable,
    )
    options = _options(param, shown)
    if options:
        # There is nothing to be told about what can only be chosen.
        return structs.replace(given, kind="select", options=tuple(options), note=param.doc)
    if param.type is ParamType.STRING and "\n" not in value:
        bounds = {"least": _number(param.least), "most": _number(param.most), "pattern": param.pattern}
        return structs.replace(given, kind="text", **bounds)
    if param.type in _NUMBERS:
        return structs.replace(given, least=_number(param.least), most=_number(param.most))
    return given


def _options(param: Param, shown: dict[str, Any]) -> list[tuple[str, str]]:
    options: list[tuple[str, str]] = []
    if shown["choices"]:
        options = [(_shown(param, each), _shown(param, each)) for each in shown["choices"]]
    elif param.type is ParamType.BOOLEAN:
        options = [("true", "true"), ("false", "false")]
    return [*options, ("", _NULL)] if options and param.nullable else options


def _shown(param: Param, value: Any) -> str:
    """A value as it is filled in: a text as it is, anything else as JSON."""
    if value is None:
        return ""
    if param.type is ParamType.DATETIME:
        return str(value)[:_LOCAL_CHARS]
    return str(value) if param.type in _TEXTS else as_json(value)


def _number(bound: float | None) -> str:
    return "" if bound is None else f"{bound:.15g}"


def _note(param: Param, shown: dict[str, Any]) -> str:
    """What it is, in words."""
    parts = [param.doc] if param.doc else []
    what = str(param.type)
    if param.type in (ParamType.ARRAY, ParamType.OBJECT, ParamType.ANY):
        what = "JSON" if param.type is ParamType.ANY else f"{param.type}, as JSON"
    if param.least is not None or param.most is not None:
        what += f", from {_number(param.least) or 'anything'} to {_number(param.most) or 'anything'}"
        what += "" if param.type in _NUMBERS else " long"
    if param.pattern:
        what += f", like {param.pattern}"
    if param.defaults_to_logical_date:
        what += "; leave empty for the run's logical date"
    elif param.nullable:
        what += "; empty is null"
    elif not shown["required"] and param.type is not ParamType.STRING:
        what += "; empty is the default"
    return ". ".join([*parts, what])


def read_given(params: Iterable[Param], form: Given) -> dict[str, Any]:
    """Values for a run, from what was filled in."""
    declared = {param.name: param for param in params}
    found: dict[str, Any] = {}
    for name, text in form.said().items():
        param = declared.get(name)
        if param is None:
            hint = "The workflow was deployed anew: look at the page again."
            raise Refused("command.stale", f"there is no parameter {name!r} any more", hint)
        if text == "" and param.defaults_to_logical_date:
            continue
        if text == "" and param.nullable:
            found[name] = None
        elif param.type is ParamType.STRING:
            found[name] = text.replace("\r\n", "\n")
        elif text.strip():
            found[name] = _read(param, text.strip())
    return found


def _read(param: Param, text: str) -> Any:
    if param.type in _TEXTS:
        return text
    try:
        return json.loads(text)
    except ValueError:
        if param.type is ParamType.ANY:
            return text
    raise Refused(
        "field.value", f"{text[:60]!r} is not {param.type}", f"{param.name} takes {param.type}.", path=param.name
    )


def words_of(params: dict[str, Any]) -> list[str]:
    """The same for a terminal."""
    return [word for name, value in params.items() for word in _words(name, value)]


def _words(name: str, value: Any) -> tuple[str, str]:
    is_text = isinstance(value, str)
    return ("--param", f"{name}={value}") if is_text else ("--param-json", f"{name}={as_json(value)}")
