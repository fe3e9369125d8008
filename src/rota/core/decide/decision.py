"""What deciding gives back."""

import re
from itertools import islice

from msgspec import Struct

from rota.core.bounds import ERROR_CHARS_MAX, NAMES_PER_COMMAND_MAX, RECEIPTS_KEPT_MS_LEAST, RECEIPTS_MAX
from rota.core.changes import Change, ReceiptDropped
from rota.core.errors import Refused
from rota.core.ids import Fence, Millis, RunId, TaskId, WorkerId
from rota.core.live import Lease, LiveRun, LiveWorker
from rota.core.state import State
from rota.core.states import RUN_TERMINAL

# What some decisions hand back besides: when to look again, whom a sweep found, until when a fence is renewed.
Detail = int | list[tuple[str, RunId, int]] | tuple[Fence, Millis] | None

# What is answered where a run, or a slot, finds as many active runs as there may be.
AT_CAP = "at_cap"


class Decision(Struct):
    """The changes to make, all or none, and the answer to give once they are durable.

    `answer` is the id or word a client needs; `detail` carries what does not belong into a receipt.
    """

    changes: list[Change]
    answer: str = ""
    detail: Detail = None
    is_repeat: bool = False


def clean_text(text: str) -> str:
    """A worker's or user's words in a form that every store can keep: no NUL, no half characters, not too long."""
    return text[:ERROR_CHARS_MAX].encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def spare_receipts(state: State, now: Millis) -> list[Change]:
    """The oldest answers, where a new one is one too many; two for one, so that a surplus shrinks.

    None goes before its least time: within that a retry is answered, at whatever rate commands come.
    """
    if len(state.receipts) < RECEIPTS_MAX:
        return []
    oldest = islice(state.receipts.values(), 2)
    return [
        ReceiptDropped(receipt.tenant, receipt.command_id)
        for receipt in oldest
        if now - receipt.at >= RECEIPTS_KEPT_MS_LEAST
    ]


def find_run(state: State, tenant: str, name: RunId, *, may_have_ended: bool = False) -> LiveRun:
    """A live run, or a refusal that says why not."""
    run = state.runs.get((tenant, name))
    if run is None:
        raise Refused("run.unknown", f"no live run {name!r}", "Ended runs move to history after a minute.", path="run")
    if run.row.state in RUN_TERMINAL and not may_have_ended:
        raise Refused("run.ended", f"run {name!r} has ended as {run.row.state}", path="run")
    return run


def run_of_timer(state: State, key: tuple[object, ...]) -> LiveRun | None:
    """The live run that a timer is about: its key begins with tenant and run."""
    return state.runs.get((str(key[0]), RunId(str(key[1]))))


def worker_of_timer(state: State, key: tuple[object, ...]) -> LiveWorker | None:
    """The worker that a timer is about, by tenant and id."""
    return state.workers.get((str(key[0]), WorkerId(str(key[1]))))


def find_lease(state: State, key: tuple[object, ...]) -> Lease | None:
    """The live lease of a task, by the key of a timer: tenant, run and number of the task."""
    run = run_of_timer(state, key)
    task = run.tasks.get(int(str(key[2]))) if run is not None else None
    return state.leases.get(task.fence) if task is not None else None


_NAME = re.compile(r"(?P<node>.*)\[(?P<number>[0-9]{1,7})\]", re.DOTALL)


def find_task(run: LiveRun, name: TaskId) -> int:
    """A task's number from its name: `extract`, or `extract[3]` in a group."""
    tasks = find_tasks(run, name)
    if len(tasks) != 1:
        hint = f"Name one of them, {name}[0] to {name}[{len(tasks) - 1}]."
        raise Refused("task.unknown", f"{name!r} is a group of {len(tasks)} tasks", hint, path="task")
    return tasks[0]


def find_all(run: LiveRun, names: tuple[TaskId, ...]) -> list[int]:
    """The numbers of all tasks that are named, each once."""
    if len(names) > NAMES_PER_COMMAND_MAX:
        raise Refused("field.size", f"{len(names)} names", f"Name at most {NAMES_PER_COMMAND_MAX}.", path="tasks")
    return list(dict.fromkeys(idx for name in dict.fromkeys(names) for idx in find_tasks(run, name)))


def find_tasks(run: LiveRun, name: TaskId) -> range:
    """The numbers of the tasks that a name stands for: one task, or a whole group."""
    graph = run.graph
    node = graph.index.get(name)
    if node is not None:
        tasks = graph.tasks_of(node)
    else:
        match = _NAME.fullmatch(name)
        node = graph.index.get(TaskId(match["node"])) if match else None
        number = int(match["number"]) if match else 0
        tasks = graph.tasks_of(node)[number : number + 1] if node is not None else range(0)
    if node is not None and not graph.width[node]:
        text = f"how many tasks {name!r} will be is not known yet"
        raise Refused("task.not_started", text, "Wait for what it is mapped over.", path="task")
    if not tasks:
        raise Refused("task.unknown", f"run {run.row.id!r} has no task {name!r}", path="task")
    return tasks
