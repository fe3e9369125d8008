"""Edges of a graph, checked at the door: what is waited for exists, and nobody waits for itself."""

from collections.abc import Container

from rota.core.errors import Refused
from rota.core.ids import TaskId
from rota.core.model import TaskSpec

_NAMED_MAX = 10


def check_edges(
    tasks: tuple[TaskSpec, ...], known: dict[TaskId, int], path: str = "graph.tasks", above: Container[str] = ()
) -> None:
    """Every upstream exists, none is named twice, and there is an order in which to run.

    `known` has the positions of these tasks; `above` are tasks that were there before and wait for none of them.
    """
    missing = [0] * len(tasks)
    downs: list[list[int]] = [[] for _ in tasks]
    for position, spec in enumerate(tasks):
        for upstream in spec.upstream:
            source = known.get(upstream)
            if source is None and upstream in above:
                continue
            if source is None:
                raise Refused(
                    "graph.unknown_upstream",
                    f"task {spec.id!r} waits for {upstream!r}, which does not exist",
                    "Define it or take it out of `upstream`.",
                    path=f"{path}[{position}].upstream",
                )
            downs[source].append(position)
            missing[position] += 1
        if len(set(spec.upstream)) != len(spec.upstream):
            text = f"task {spec.id!r} names an upstream twice"
            raise Refused("graph.duplicate_id", text, path=f"{path}[{position}].upstream")
    ready = [position for position, count in enumerate(missing) if not count]
    seen = 0
    while ready:
        seen += 1
        for down in downs[ready.pop()]:
            missing[down] -= 1
            if not missing[down]:
                ready.append(down)
    if seen < len(tasks):
        raise Refused(
            "graph.cycle",
            f"these tasks wait for each other: {_name_cycle(_find_cycle(tasks, known, missing))}",
            "Remove one of the edges.",
            path=path,
        )


def _find_cycle(tasks: tuple[TaskSpec, ...], known: dict[TaskId, int], missing: list[int]) -> list[str]:
    """One circle, in order, so that a person can see which edge to cut."""
    here = next(position for position, count in enumerate(missing) if count)
    path: dict[int, int] = {}
    while here not in path:
        path[here] = len(path)
        here = next(known[name] for name in tasks[here].upstream if name in known and missing[known[name]])
    circle = list(path)[path[here] :]
    return [tasks[position].id for position in reversed(circle)]


def _name_cycle(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    return shown if len(names) <= _NAMED_MAX else f"{shown} and {len(names) - _NAMED_MAX} more"
