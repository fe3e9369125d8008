"""What callers give to a client, checked: graphs, parameters, instants, names of states and priorities."""

import secrets
from collections.abc import Iterable
from datetime import UTC as UTC_ZONE
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any, Protocol, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.model import Graph, PriorityClass, TaskSpec
from rota.core.states import RunState, TaskState

S = TypeVar("S", RunState, TaskState)


UTC = "UTC"
_DATE_CHARS = len("2026-11-16")


class GraphLike(Protocol):
    """A graph, or whatever can become one: what `@rota.workflow` makes."""

    def build(self) -> Graph:
        """The graph."""
        ...

    def params(self, given: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a run, checked."""
        ...


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


def priority_class(name: str) -> PriorityClass:
    """A priority by its name."""
    try:
        return PriorityClass(name)
    except ValueError:
        known = ", ".join(PriorityClass)
        raise Refused("field.value", f"{name!r} is no priority", f"Use one of {known}.", path="priority") from None


def states_of(kind: type[S], names: Iterable[str], of: str) -> tuple[S, ...]:
    """States of a run or task by their names."""
    try:
        return tuple(kind(name) for name in names)
    except ValueError as error:
        name = str(error).partition(" is not")[0]
        known = ", ".join(kind)
        raise Refused("field.value", f"{name} is no state of a {of}", f"Use some of {known}.", path="states") from None


def packed(params: dict[str, Any]) -> bytes:
    """Parameters as they travel."""
    try:
        return msgspec.msgpack.encode(params) if params else b""
    except (TypeError, OverflowError, ValueError) as error:
        raise Refused(
            "field.type",
            f"a parameter cannot be sent: {error}",
            "Use text, numbers, lists and dictionaries.",
            path="params",
        ) from None


def new_id(name: str, command_id: str) -> str:
    """An id for a run. The same command makes the same run, however often it is sent and by whom."""
    return f"{name}-{sha256(command_id.encode()).hexdigest()[:8] if command_id else secrets.token_hex(4)}"


def instant(said: datetime | str, zone: str, path: str) -> Millis:
    """An instant that somebody named, in this zone unless they said otherwise. One that does not exist is refused."""
    try:
        moment = datetime.fromisoformat(said) if isinstance(said, str) else said
    except ValueError as error:
        hint = "Write it like 2026-11-16 or 2026-11-16T12:00:00+01:00."
        raise Refused("field.value", f"{said!r} is not a date: {error}", hint, path=path) from None
    if moment.tzinfo is None:
        here = ZoneInfo(zone)
        local = moment.replace(tzinfo=here)
        # A day begins when it does, also where its midnight is left out.
        is_day = isinstance(said, str) and len(said) == _DATE_CHARS
        if not is_day and local.astimezone(UTC_ZONE).astimezone(here).replace(tzinfo=None) != moment:
            text = f"there is no {moment.isoformat()} in {zone}: clocks were put forward"
            raise Refused("field.value", text, "Name an instant that exists there.", path=path)
        moment = local
    return round(moment.timestamp() * 1_000)


def end_of(said: datetime | str, zone: str, path: str) -> Millis:
    """The end of a stretch: a date alone means all of that day."""
    if isinstance(said, str) and len(said) == _DATE_CHARS:
        day = instant(said, zone, path)
        after = date.fromisoformat(said) + timedelta(days=1)
        return max(day, instant(after.isoformat(), zone, path) - 1)
    return instant(said, zone, path)
