"""Near what a task reads: of workers that would do equally well, the one that made most of it.

Whoever reads what it wrote itself needs no network for that. Nobody waits for such a worker to be free.
"""

from itertools import islice

from rota.core.ids import Millis, WorkerKey
from rota.core.live import LiveRun, LiveWorker
from rota.core.match import Index, Picked
from rota.core.records import Task

# Of an input that is a group, so many tasks are looked at: a grant must not cost more the wider a graph is.
LOOKED_AT_MAX = 64


def nearest(index: Index, picked: Picked, chosen: LiveWorker, now: Millis) -> LiveWorker:
    """The worker that made most of what a task reads, if it is as good as the chosen one and has room."""
    if chosen.shape is None:
        return chosen
    made = _makers(picked.run, picked.task)
    best, most = chosen, _count(made, chosen)
    for key in made:
        other = chosen.shape.workers.get(key)
        if other is not None and _count(made, other) > most and index.may_take(picked.bucket, other, now):
            best, most = other, _count(made, other)
    return best


def _makers(run: LiveRun, task: Task) -> dict[WorkerKey, dict[str, int]]:
    """How many of the inputs each worker has made, by incarnation: what an earlier one made may be gone with it."""
    found: dict[WorkerKey, dict[str, int]] = {}
    graph = run.graph
    for name in graph.spec(task.idx).inputs if run.makers else ():
        for idx in islice(graph.tasks_of(graph.index[name]), LOOKED_AT_MAX):
            maker = run.makers.get(idx)
            if maker is not None:
                key, incarnation = maker
                counts = found.setdefault(key, {})
                counts[incarnation] = counts.get(incarnation, 0) + 1
    return found


def _count(made: dict[WorkerKey, dict[str, int]], worker: LiveWorker) -> int:
    return made.get(worker.key, {}).get(worker.row.incarnation, 0)
