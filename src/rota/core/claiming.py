"""What a pull worker gets that asks for work: the most urgent, then what prefers it, then the oldest, then by name.

Other than in fair order, what is more urgent always comes first. So that nothing waits for ever all the same, every so
often the oldest overdue task goes before its turn, as it does everywhere.
"""

from collections.abc import Callable

from rota.core.buckets import Bucket
from rota.core.commands import ClaimTask
from rota.core.demand import score
from rota.core.ids import Millis
from rota.core.live import LiveRun, LiveWorker
from rota.core.match import Picked
from rota.core.model import CLASS_WEIGHT
from rota.core.order import CLASSES
from rota.core.records import Task
from rota.core.state import State
from rota.core.states import QUEUED


def pick_claim(state: State, worker: LiveWorker, command: ClaimTask, now: Millis) -> Picked | None:
    """The best task that fits a worker and what it asks for; nothing if there is none."""

    def may_claim(bucket: Bucket) -> bool:
        return is_asked_for(bucket, command) and not state.hold_reasons(bucket, now)

    shape = worker.shape
    if shape is None or not shape.waiting:
        return None
    if command.run:
        return _pick_one(state, worker, command, now, may_claim)
    overdue = state.index.pick_overdue(shape, worker, now, lambda bucket: not may_claim(bucket))
    if overdue is not None and is_urgent(overdue.run, command):
        return overdue
    best: tuple[tuple[int, int, Millis, str], Picked] | None = None
    for bucket in shape.waiting:
        head = _head(state, bucket, command)
        if head is None:
            continue
        run, task = head
        place = (
            -CLASS_WEIGHT[run.row.priority],
            -score(bucket.demand, worker.values),
            task.eligible_at,
            run.row.id,
        )
        is_better = best is None or place < best[0]
        if is_better and may_claim(bucket) and state.index.may_take(bucket, worker, now):
            best = (place, Picked(bucket, run, task))
    return best[1] if best is not None else None


def _head(state: State, bucket: Bucket, command: ClaimTask) -> tuple[LiveRun, Task] | None:
    """The first of a bucket in the order of claims. Inside one bucket everybody is preferred alike."""
    for priority in CLASSES:
        if CLASS_WEIGHT[priority] >= CLASS_WEIGHT[command.least] and bucket.waiting[priority]:
            oldest = state.index.oldest_of(bucket, priority)
            if oldest is not None:
                return oldest[1], oldest[2]
    return None


def _pick_one(
    state: State, worker: LiveWorker, command: ClaimTask, now: Millis, may_claim: Callable[[Bucket], bool]
) -> Picked | None:
    """A task of the one run that is asked for."""
    run = state.runs.get((worker.row.tenant, command.run))
    if run is None or not run.is_runnable or not is_urgent(run, command):
        return None
    for task in run.tasks.values():
        if task.state is not QUEUED:
            continue
        bucket = state.bucket_of(run, task)
        if worker.shape is None or bucket not in worker.shape.waiting:
            continue
        if may_claim(bucket) and state.index.may_take(bucket, worker, now):
            return Picked(bucket, run, task)
    return None


def is_asked_for(bucket: Bucket, command: ClaimTask) -> bool:
    """Whether a bucket's tasks ask for what the worker wants them to ask for."""
    requires = bucket.demand.signature.requires
    return all(pair in requires for pair in command.where)


def is_urgent(run: LiveRun, command: ClaimTask) -> bool:
    """Whether a run is urgent enough for a claim."""
    return CLASS_WEIGHT[run.row.priority] >= CLASS_WEIGHT[command.least]
