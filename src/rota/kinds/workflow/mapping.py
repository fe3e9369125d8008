"""Mapping a task over lists: what is known while the workflow is written down, and what its run will tell."""

from itertools import product
from math import prod
from typing import Any, NamedTuple

from rota.core.bounds import GROWTH_TASKS_MAX
from rota.kinds.workflow.arguments import Taken
from rota.kinds.workflow.draft import Draft, Output, Parameter
from rota.running import Fail
from rota.wire.elements import elements_of
from rota.wire.work import PYTHON, OutputOf, Over, PythonWork


class Plan(NamedTuple):
    """What a task is mapped over: `factor` tasks for each element that `source` gives, or in all if there is none."""

    over: Over
    taken: Taken
    source: str
    factor: int


def mapped_over_lists(draft: Draft, task: str, taken: Taken, lists: dict[str, Any]) -> Plan:
    """A task mapped over lists, outputs and parameters, in every combination.

    One task can tell how many elements it gave. If there are several, or if it is for the run to say, a task of its own
    puts them together.
    """
    unknown = {name: value for name, value in lists.items() if isinstance(value, Output | Parameter)}
    if len(unknown) > 1 or any(isinstance(value, Parameter) for value in unknown.values()):
        return _combined(draft, task, taken, "combine", lists)
    known = [_count(task, name, value) for name, value in lists.items() if name not in unknown]
    each = tuple((name, taken.take(name, _listed(value))) for name, value in lists.items())
    source = next((value.id for value in unknown.values() if isinstance(value, Output)), "")
    return Plan(Over(each), taken, source, prod(known))


def mapped_over_rows(draft: Draft, task: str, taken: Taken, rows: Any) -> Plan:
    """A task mapped over a list of dictionaries of arguments."""
    if isinstance(rows, Parameter):
        return _combined(draft, task, taken, "rows_of", {"rows": rows})
    if isinstance(rows, Output):
        return Plan(Over(rows=taken.take("expand_kwargs()", rows)), taken, rows.id, 1)
    count = _count(task, "expand_kwargs()", rows)
    for row in rows:
        if not isinstance(row, dict):
            raise TypeError(f"task {task!r}: expand_kwargs() takes a list of dictionaries, and {row!r} is none")
    return Plan(Over(rows=taken.take("expand_kwargs()", _listed(rows))), taken, "", count)


def _combined(draft: Draft, task: str, taken: Taken, function: str, lists: dict[str, Any]) -> Plan:
    kwargs = tuple((name, taken.take(name, _listed(value))) for name, value in lists.items())
    call = PythonWork(function=f"{__name__}:{function}", kwargs=kwargs)
    output = draft.add(f"{task}.combine", PYTHON, call, {}, taken.upstream)
    # What it takes is taken; the mapped task takes only the rows.
    taken.upstream.clear()
    taken.upstream.append(output.id)
    return Plan(Over(rows=OutputOf(output.id)), taken, output.id, 1)


def combine(**lists: Any) -> list[dict[str, Any]]:
    """The task that puts several outputs together: every combination of their elements, the last varying fastest."""
    elements = {name: elements_of(value) for name, value in lists.items()}
    count = prod(len(items) for items in elements.values())
    if count > GROWTH_TASKS_MAX:
        raise Fail(f"these are {count:,} combinations, and {GROWTH_TASKS_MAX:,} are the most that can be mapped over")
    return [dict(zip(elements, row, strict=True)) for row in product(*elements.values())]


def rows_of(rows: Any) -> Any:
    """The task that tells how many rows a parameter has."""
    return rows


def _count(task: str, name: str, value: Any) -> int:
    if not isinstance(value, list | tuple | dict | range):
        kind = type(value).__name__
        raise TypeError(
            f"task {task!r}, {name}: tasks are mapped over lists, tuples and dictionaries, not over a {kind}"
        )
    return len(value)  # pyright: ignore[reportUnknownArgumentType] - of anything


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, range) else value
