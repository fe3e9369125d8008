"""Arguments of tasks: values, outputs of other tasks, parameters of the run, templates, and collections of them."""

from collections.abc import Iterable
from typing import Any, cast

from rota.core.errors import Refused
from rota.kinds.workflow.draft import Draft, Output, Parameter
from rota.kinds.workflow.parameters import NOT_A_VALUE, LogicalDate
from rota.kinds.workflow.places import RefusedAt, here
from rota.wire.scripts import pack_by_name
from rota.wire.templates import check_template, is_template
from rota.wire.values import Unserialisable, pack
from rota.wire.work import Argument, DictOf, ListOf, OutputOf, ParamOf, TemplateOf, Value


class Literal(str):
    """A text that is meant as it stands."""

    __slots__ = ()


def literal(text: str) -> str:
    """A text that is not rendered, whatever is in it."""
    return Literal(text)


class Taken:
    """Takes the arguments of one task, and notes the tasks whose outputs are among them in `upstream`."""

    def __init__(self, draft: Draft, task: str, *, by_name: bool = False) -> None:
        """`by_name`: who opens them has loaded the script that wrote them."""
        self._draft = draft
        self._task = task
        self._by_name = by_name
        self.upstream: list[str] = []

    def take(self, name: str, value: Any) -> Argument:
        """An argument as it travels."""
        try:
            return self._argument(value)
        except TypeError as error:
            raise TypeError(f"task {self._task!r}, {name}: {error}") from None
        except Refused as error:
            if error.code != "template.bad":
                raise
            text = f"task {self._task!r}, {name}: {error.reason}"
            raise RefusedAt(Refused(error.code, text, error.hint, path=name), here()) from None

    def _argument(self, value: Any) -> Argument:
        kind = cast(type[object], type(value))
        if kind is Output:
            return self._output(value)
        if kind is Parameter:
            return ParamOf(value.name, value.read)
        if kind is LogicalDate:
            raise TypeError(NOT_A_VALUE)
        if kind is str and is_template(value):
            check_template(value, self._draft.params)
            return TemplateOf(value)
        if kind in (list, tuple) and _is_mixed(value):
            return ListOf(tuple(self._argument(item) for item in value), is_tuple=kind is tuple)
        if kind is dict and _is_mixed(value.values()):
            return DictOf(tuple((self._value(key), self._argument(item)) for key, item in value.items()))
        return self._value(str(value) if kind is Literal else value)

    def _output(self, output: Output) -> OutputOf:
        if output.draft is not self._draft:
            raise TypeError(f"the output of {output.id!r} belongs to another workflow")
        self.upstream.append(output.id)
        return OutputOf(output.id)

    def _value(self, value: Any) -> Value:
        try:
            return pack_by_name(value) if self._by_name else Value(*pack(value))
        except Unserialisable as error:
            kind = cast(type[object], type(value))
            raise TypeError(
                f"a value of type {kind.__module__}.{kind.__qualname__} cannot be sent to another process "
                f"({error.__cause__}). Make it inside the task, from what can be sent."
            ) from None


def is_known_later(value: Any) -> bool:
    """Whether a value can only be made where the code runs: an output, a parameter or a template is in it."""
    return _is_mixed((value,))


def _is_mixed(values: Iterable[Any]) -> bool:
    """Whether there is something to replace among values, at any depth of lists, tuples and dictionaries."""
    for value in values:
        kind = cast(type[object], type(value))
        if kind in (Output, Parameter, Literal) or (kind is str and is_template(value)):
            return True
        if kind in (list, tuple) and _is_mixed(value):
            return True
        if kind is dict and _is_mixed(value.values()):
            return True
    return False
