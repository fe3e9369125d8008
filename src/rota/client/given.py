"""What callers give to a client, checked: graphs, names of states; and the ids of what they make."""

import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from rota.core.bounds import ID_CHARS_MAX, SCHEDULE_ID_CHARS_MAX
from rota.core.errors import Refused
from rota.core.model import Graph, Param, TaskSpec
from rota.core.states import RunState, TaskState

S = TypeVar("S", RunState, TaskState)


class GraphLike(Protocol):
    """A graph, or whatever can become one: what `@rota.workflow` makes."""

    def build(self) -> Graph:
        """The graph."""
        ...

    def params(self, given: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a run, checked."""
        ...


def declared_of(graph: Graph | GraphLike | TaskSpec) -> tuple[tuple[Param, ...], str]:
    """The parameters that the coordinator completes when it makes a run, and their time zone.

    There are some only if one of them defaults to the run's logical date, which the coordinator alone knows.
    """
    declared: tuple[Param, ...] = getattr(graph, "param_specs", ())
    if not any(param.defaults_to_logical_date for param in declared):
        return (), "UTC"
    return declared, getattr(graph, "zone", "UTC")


def built(graph: Graph | GraphLike | TaskSpec, params: dict[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """A graph and the parameters of a run of it, from whatever can become one."""
    if isinstance(graph, Graph):
        return graph, params
    if isinstance(graph, TaskSpec):
        return Graph(name=graph.id, tasks=(graph,)), params
    if not hasattr(graph, "build"):
        hint = "Decorate a function with @rota.workflow, or with @rota.task if it is the only one."
        raise Refused("field.type", f"{graph!r} is not a graph", hint, path="graph")
    return graph.build(), graph.params(params)


def states_of(kind: type[S], names: Iterable[str], of: str) -> tuple[S, ...]:
    """States of a run or task by their names."""
    try:
        return tuple(kind(name) for name in names)
    except ValueError as error:
        name = str(error).partition(" is not")[0]
        known = ", ".join(kind)
        raise Refused("field.value", f"{name} is no state of a {of}", f"Use some of {known}.", path="states") from None


def new_id(name: str, command_id: str, *, chars_max: int = ID_CHARS_MAX) -> str:
    """An id for a run. The same command makes the same run, however often it is sent and by whom."""
    letters = sha256(command_id.encode()).hexdigest()[:8] if command_id else secrets.token_hex(4)
    return f"{name[: chars_max - len(letters) - 1]}-{letters}"


def backfill_id(name: str, command_id: str = "") -> str:
    """An id for a backfill of a workflow, with room behind it for the slots of its runs."""
    mark = "-backfill"
    return new_id(f"{name[: SCHEDULE_ID_CHARS_MAX - len(mark) - 9]}{mark}", command_id, chars_max=SCHEDULE_ID_CHARS_MAX)
