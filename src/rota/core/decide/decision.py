"""What deciding gives back."""

from msgspec import Struct

from rota.core.changes import Change
from rota.core.errors import Refused
from rota.core.live import LiveRun
from rota.core.state import State
from rota.core.states import RUN_TERMINAL


class Decision(Struct):
    """The changes to make, all or none, and the answer to give once they are durable.

    `answer` is the id or word a client needs; `detail` carries what does not belong into a receipt.
    """

    changes: list[Change]
    answer: str = ""
    detail: object = None
    is_repeat: bool = False


def find_run(state: State, tenant: str, name: str, *, may_have_ended: bool = False) -> LiveRun:
    """A live run, or a refusal that says why not."""
    run = state.runs.get((tenant, name))
    if run is None:
        raise Refused("run.unknown", f"no live run {name!r}", "Ended runs move to history after a minute.", path="run")
    if run.row.state in RUN_TERMINAL and not may_have_ended:
        raise Refused("run.ended", f"run {name!r} has ended as {run.row.state}", path="run")
    return run


def find_task(run: LiveRun, name: str) -> int:
    """A task's number from its name: `extract`, or `extract[3]` in a group."""
    node_name, bracket, position = name.partition("[")
    node = run.graph.index.get(node_name)
    if node is None and name in run.graph.index:
        node, bracket = run.graph.index[name], ""
    number = int(position[:-1]) if bracket and position[:-1].isdigit() else 0
    if node is None or number >= run.graph.width[node]:
        raise Refused("task.unknown", f"run {run.row.id!r} has no task {name!r}", path="task")
    return run.graph.start[node] + number
