"""What waits in a run, and why: a few tasks, those that need somebody first.

Most tasks that have not started wait for others of the run, which says nothing. Of those only two sorts are looked at:
a run that has not begun says by its first task what holds it, and tasks that depend on the past may wait for another
run.
"""

from msgspec import Struct

from rota.client.runs import Run
from rota.core.errors import Refused
from rota.core.graph import LiveGraph
from rota.core.ids import RunId, TaskId
from rota.core.questions import ListTasks, RunView, TasksPage, TaskView
from rota.core.reasons import Reason
from rota.core.states import (
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
    TaskState,
)

WAITING_SHOWN = 5
# Of tasks that depend on the past so many are listed, and of those that no other of them holds so many asked about.
PAST_LISTED_MAX = 200
PAST_ASKED_MAX = 10
# States in which a task should be on its way, and may not be.
WAITING = (NEEDS_ATTENTION, QUEUED, UP_FOR_RETRY, UP_FOR_RESCHEDULE)
# Reasons that do not go away by themselves.
STUCK = (
    "attention.parked",
    "past.waiting",
    "pool.gone",
    "pool.too_small",
    "queue.gone",
    "run.faulted",
    "run.paused",
    "worker.absent",
    "worker.none_match",
    "worker.none_registered",
    "workflow.paused",
)


class Waiting(Struct):
    """Tasks that wait in one state for the same reasons."""

    state: TaskState
    tasks: list[str]
    reasons: tuple[Reason, ...]

    @property
    def is_stuck(self) -> bool:
        """Whether it goes on only if somebody does something."""
        return any(reason.code in STUCK for reason in self.reasons)


async def read_waiting(run: Run, view: RunView, graph: LiveGraph) -> list[Waiting]:
    """A few tasks that do not go on; who waits for the same is named together."""
    found: list[Waiting] = []
    if view.state in RUN_TERMINAL:
        return found
    left = WAITING_SHOWN
    for state in WAITING:
        if not view.tasks.get(state) or not left:
            continue
        page = await run.tasks_page(states=(state,), limit=left)
        left -= len(page.tasks)
        for task in page.tasks:
            _add(found, task, await run.why(task.id))
    if not view.tasks.get(NONE) or not left:
        return found
    if view.state is RunState.QUEUED:
        page = await run.tasks_page(states=(NONE,), limit=1)
        for task in page.tasks:
            _add(found, task, await run.why(task.id))
        return found
    for task in await _bound_to_past(run, graph):
        reasons = await run.why(task.id)
        if left and any(reason.code == "past.waiting" for reason in reasons):
            _add(found, task, reasons)
            left -= 1
    return found


def _add(found: list[Waiting], task: TaskView, reasons: tuple[Reason, ...]) -> None:
    if found and found[-1].state == task.state and found[-1].reasons == reasons:
        found[-1].tasks.append(task.id)
    elif reasons:
        found.append(Waiting(task.state, [task.id], reasons))


async def _bound_to_past(run: Run, graph: LiveGraph) -> list[TaskView]:
    """Tasks that have not started and may wait for the run before: the first of them in the order of the graph."""
    nodes = [node for node in graph.by_rank if node in graph.past][:PAST_LISTED_MAX]
    tasks = await _not_started(run, tuple(graph.specs[node].id for node in nodes if graph.width[node]))
    # Of what is mapped over something that comes later there may be no tasks yet, and asking for them is refused.
    for node in [node for node in nodes if not graph.width[node]][:PAST_ASKED_MAX]:
        tasks += await _not_started(run, (graph.specs[node].id,))
    held = dict.fromkeys(_node_of(task, graph) for task in tasks)
    free = [task for task in tasks if not any(up in held for up in graph.ups[_node_of(task, graph)])]
    return sorted(free, key=lambda task: graph.rank[_node_of(task, graph)])[:PAST_ASKED_MAX]


async def _not_started(run: Run, names: tuple[str, ...]) -> list[TaskView]:
    if not names:
        return []
    question = ListTasks(
        tenant=run.client.line.tenant,
        run=RunId(run.id),
        names=tuple(map(TaskId, names)),
        states=(NONE,),
        limit=PAST_LISTED_MAX,
    )
    try:
        page: TasksPage = await run.client.ask(question)
    except Refused as refused:
        if refused.code not in ("run.unknown", "task.unknown"):
            raise
        # Or the run ended, or was moved to another version, since it was looked at.
        return []
    return list(page.tasks)


def _node_of(task: TaskView, graph: LiveGraph) -> int:
    """Whose task it is; its number may be another in a run that has grown."""
    return graph.index[task.id] if task.id in graph.index else graph.index[TaskId(task.id.rpartition("[")[0])]
