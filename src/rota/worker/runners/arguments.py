"""Arguments of a call, opened where user code runs: values, outputs, parameters, templates, elements of what is mapped.

Everything that is wrong here is wrong for good: trying again would not help.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any, Protocol, cast
from zoneinfo import ZoneInfo

from rota.running import Context
from rota.wire.elements import elements_of
from rota.wire.scripts import SCRIPT
from rota.wire.templates import render
from rota.wire.values import unpack
from rota.wire.work import (
    Argument,
    DictOf,
    ListOf,
    OutputOf,
    Over,
    ParamOf,
    PythonWork,
    StoredValue,
    TemplateOf,
    Value,
    decode_value,
)

Open = Callable[[StoredValue], Any]


class AnyInput(Protocol):
    """An input of an offer, as the core has it or as it came over a channel."""

    @property
    def task(self) -> str: ...
    @property
    def results(self) -> tuple[bytes | None, ...]: ...
    @property
    def is_group(self) -> bool: ...
    @property
    def is_grown(self) -> bool: ...


class Uncallable(Exception):
    """There is no such function, or no such argument: trying again would not help."""


class Arguments:
    """The arguments of one call."""

    def __init__(
        self,
        work: PythonWork,
        context: Context,
        inputs: Sequence[AnyInput],
        open_stored: Open,
        load_script: Callable[[], None],
    ) -> None:
        self._work = work
        self._context = context
        self._inputs = inputs
        self._open_stored = open_stored
        self._load_script = load_script
        self._names: dict[str, Any] | None = None

    @property
    def is_grown(self) -> bool:
        """Whether the task went on as others, and this attempt is given what they gave."""
        return any(given.is_grown for given in self._inputs)

    def pieces(self) -> dict[str, Any]:
        """What they gave, by their names; None where there was nothing."""
        found: dict[str, Any] = {}
        for given in self._inputs:
            for number, result in enumerate(given.results if given.is_grown else ()):
                name = f"{given.task}[{number}]" if given.is_group else given.task
                found[name] = None if result is None else self._result(result)
        return found

    def opened(self) -> tuple[list[Any], dict[str, Any]]:
        """Those by position and those by name."""
        args = [self._argument(argument) for argument in self._work.args]
        kwargs = {name: self._argument(argument) for name, argument in self._work.kwargs}
        if self._work.over is not None:
            kwargs.update(self._mapped(self._work.over))
        if self._work.context:
            kwargs[self._work.context] = self._context
        return args, kwargs

    def fields(self) -> dict[str, Any]:
        """What stands beside the call in the command that it prepares."""
        return {name: self._argument(argument) for name, argument in self._work.fields}

    def _argument(self, argument: Argument) -> Any:
        match argument:
            case Value():
                return self._opened(lambda: unpack(argument.encoding, argument.content, trusted=True))
            case OutputOf():
                return self._output(argument)
            case ParamOf():
                return self._param(argument)
            case TemplateOf():
                return render(argument.text, self._template_names())
            case ListOf():
                items = [self._argument(item) for item in argument.items]
                return tuple(items) if argument.is_tuple else items
            case DictOf():
                return {self._argument(key): self._argument(item) for key, item in argument.items}

    # What a mapped task is given.

    def _mapped(self, over: Over) -> dict[str, Any]:
        index = self._context.map_index
        if over.rows is not None:
            row = self._element("its rows", self._argument(over.rows), index)
            if not isinstance(row, dict) or any(not isinstance(key, str) for key in cast(dict[object, Any], row)):
                kind = type(cast(object, row)).__name__
                raise Uncallable(f"expand_kwargs() takes dictionaries of arguments; element {index} is a {kind}")
            return cast(dict[str, Any], row)
        lists = {name: elements_of(self._argument(argument)) for name, argument in over.each}
        found: dict[str, Any] = {}
        for name, items in reversed(lists.items()):
            index, place = divmod(index, max(1, len(items)))
            found[name] = self._element(f"argument {name!r}", items, place)
        if index:
            raise Uncallable(f"{self._context.task!r} is more than there are elements to map over")
        return {name: found[name] for name in lists}

    def _element(self, what: str, value: Any, index: int) -> Any:
        items = elements_of(value)
        if index >= len(items):
            raise Uncallable(f"{self._context.task!r} has no element to map over: {what} has {len(items)}")
        return items[index]

    # What is known of the run.

    def _param(self, argument: ParamOf) -> Any:
        params = self._context.params
        if argument.name not in params:
            given = ", ".join(sorted(params)) or "none"
            raise Uncallable(f"the run has no parameter {argument.name!r}; it was given: {given}")
        value = params[argument.name]
        if not argument.read or not isinstance(value, str):
            return value
        try:
            if argument.read == "date":
                return date.fromisoformat(value)
            return _in_zone(datetime.fromisoformat(value), ZoneInfo(self._context.zone))
        except ValueError as error:
            raise Uncallable(f"the parameter {argument.name!r} is no {argument.read}: {error}") from None

    def _template_names(self) -> dict[str, Any]:
        if self._names is None:
            context = self._context
            at = context.logical_date
            self._names = {
                "params": context.params,
                "run_id": context.run,
                "task_id": context.task,
                "attempt": context.attempt,
                "fence": context.fence,
                "map_index": context.map_index,
                "workflow": context.workflow,
                "version": context.version,
                "logical_date": at,
                "ds": f"{at:%Y-%m-%d}",
                "ds_nodash": f"{at:%Y%m%d}",
                "ts": at.isoformat(),
                "ts_nodash": f"{at:%Y%m%dT%H%M%S}",
            }
        return self._names

    # What others gave.

    def _output(self, argument: OutputOf) -> Any:
        for given in self._inputs:
            if given.task == argument.task:
                values = [None if result is None else self._result(result) for result in given.results]
                return values if given.is_group else values[0]
        raise Uncallable(f"the output of {argument.task!r} was asked for, but is not among the task's inputs")

    def _result(self, result: bytes) -> Any:
        value = decode_value(result)
        if isinstance(value, StoredValue):
            return self._opened(lambda: self._open_stored(value))
        return self._opened(lambda: unpack(value.encoding, value.content, trusted=True))

    def _opened(self, open_value: Callable[[], Any]) -> Any:
        """A value, with the script whose classes it is made of, if it takes one."""
        try:
            return open_value()
        except ModuleNotFoundError as error:
            if error.name != SCRIPT or not self._work.script:
                raise
            self._load_script()
            return open_value()


def _in_zone(moment: datetime, zone: ZoneInfo) -> datetime:
    """An instant of a parameter: in the workflow's time zone, unless it has an offset that clocks there do not have."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=zone)
    there = moment.astimezone(zone)
    return there if there.utcoffset() == moment.utcoffset() else moment
