"""Arguments of tasks: values, outputs of other tasks, parameters of the run, and collections of all three."""

from collections.abc import Iterable
from typing import Any, cast

from rota.kinds.workflow.draft import Draft, Output, Parameter
from rota.wire.scripts import pack_by_name
from rota.wire.values import Unserialisable, pack
from rota.wire.work import Argument, DictOf, ListOf, OutputOf, ParamOf, Value


def argument(value: Any, draft: Draft, upstream: list[str], *, by_name: bool) -> Argument:
    """An argument as it travels. The tasks whose outputs it has in it are added to `upstream`.

    `by_name`: who opens it has loaded the script that wrote it.
    """
    kind = cast(type[object], type(value))
    if kind is Output:
        if value.draft is not draft:
            raise TypeError(f"the output of {value.id!r} belongs to another graph")
        upstream.append(value.id)
        return OutputOf(value.id)
    if kind is Parameter:
        return ParamOf(value.name)
    if kind in (list, tuple) and _is_mixed(value):
        items = tuple(argument(item, draft, upstream, by_name=by_name) for item in value)
        return ListOf(items, is_tuple=kind is tuple)
    if kind is dict and _is_mixed(value.values()):
        pairs = (
            (_value(key, by_name=by_name), argument(item, draft, upstream, by_name=by_name))
            for key, item in value.items()
        )
        return DictOf(tuple(pairs))
    return _value(value, by_name=by_name)


def _value(value: Any, *, by_name: bool) -> Value:
    try:
        return pack_by_name(value) if by_name else Value(*pack(value))
    except Unserialisable as error:
        kind = cast(type[object], type(value))
        raise TypeError(
            f"a value of type {kind.__module__}.{kind.__qualname__} cannot be sent to another process "
            f"({error.__cause__}). Make it inside the task, from what can be sent."
        ) from None


def _is_mixed(values: Iterable[Any]) -> bool:
    """Whether an output or a parameter is among values, at any depth of lists, tuples and dictionaries."""
    for value in values:
        kind = cast(type[object], type(value))
        if kind in (Output, Parameter):
            return True
        if kind in (list, tuple) and _is_mixed(value):
            return True
        if kind is dict and _is_mixed(value.values()):
            return True
    return False
