"""Tasks of a run together, node by node: how many are in which state, and from when to when.

Whoever draws a graph of ten thousand tasks needs no more, and no task is copied for it.
"""

from collections.abc import Mapping

from msgspec import Struct

from rota.core.errors import headline
from rota.core.graph import LiveGraph
from rota.core.ids import Millis, RunId, TaskId
from rota.core.question import Question
from rota.core.records import Task
from rota.core.states import FAILED, NONE

ERROR_CHARS_MAX = 160


class SumTasks(Question, frozen=True, kw_only=True, tag="SumTasks"):
    """How the tasks of each of these nodes of a live run's graph stand; a name that it has not is left out."""

    run: RunId
    names: tuple[TaskId, ...]


class TaskSum(Struct):
    """Tasks together: how many are in which state, when the first of them could run, was given to a worker and
    started, and when the last one ended. No counts: there are none yet.
    """

    counts: dict[str, int] = {}
    eligible_at: Millis = 0
    assigned_at: Millis = 0
    started_at: Millis = 0
    ended_at: Millis = 0
    attempt: int = 0
    # The last line of what one of them failed with.
    error: str = ""


def sum_tasks(graph: LiveGraph, tasks: Mapping[int, Task], names: tuple[TaskId, ...]) -> dict[TaskId, TaskSum]:
    """The sum of each node that there is."""
    nodes = ((name, graph.index.get(name)) for name in names)
    return {name: _sum(graph, tasks, node) for name, node in nodes if node is not None}


def _sum(graph: LiveGraph, tasks: Mapping[int, Task], node: int) -> TaskSum:
    found = TaskSum()
    counts = found.counts
    failed: Task | None = None
    for idx in graph.tasks_of(node):
        task = tasks.get(idx)
        if task is None:
            counts[NONE] = counts.get(NONE, 0) + 1
            continue
        counts[task.state] = counts.get(task.state, 0) + 1
        if not task.eligible_at and not task.ended_at:
            continue
        found.eligible_at = _first(found.eligible_at, task.eligible_at)
        found.assigned_at = _first(found.assigned_at, task.assigned_at)
        found.started_at = _first(found.started_at, task.started_at)
        found.ended_at = max(found.ended_at, task.ended_at)
        found.attempt = max(found.attempt, task.attempt)
        if task.error and (failed is None or (task.state is FAILED and failed.state is not FAILED)):
            failed = task
    if failed is not None:
        found.error = headline(failed.error)[:ERROR_CHARS_MAX]
    return found


def _first(one: Millis, other: Millis) -> Millis:
    return min(one or other, other or one)


def add_up(parts: list[TaskSum]) -> TaskSum:
    """Several nodes as one."""
    if len(parts) == 1:
        return parts[0]
    found = TaskSum()
    for part in parts:
        for state, count in part.counts.items():
            found.counts[state] = found.counts.get(state, 0) + count
        found.eligible_at = _first(found.eligible_at, part.eligible_at)
        found.assigned_at = _first(found.assigned_at, part.assigned_at)
        found.started_at = _first(found.started_at, part.started_at)
        found.ended_at = max(found.ended_at, part.ended_at)
        found.attempt = max(found.attempt, part.attempt)
        found.error = found.error or part.error
    return found
