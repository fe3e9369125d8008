"""How everything of a tenant stands at once, from what memory has at hand: no task is looked at.

The coordinator stands still while it answers, so each part looks at so many things at most, and says if there are more.
"""

from collections.abc import Iterable
from heapq import nlargest

from msgspec import Struct

from rota.core.buckets import Bucket
from rota.core.ids import Millis, RunId, TaskId
from rota.core.live import LiveRun, LiveWorker
from rota.core.question import Question
from rota.core.reasons import Reason
from rota.core.state import State
from rota.core.states import RUN_TERMINAL, TERMINAL, RunState
from rota.core.why import bucket_reasons, run_reasons

# Newest first; the rest is not counted.
RUNS_COUNTED_MAX = 5_000
RUNS_EXPLAINED_MAX = 200
BUCKETS_EXPLAINED_MAX = 50
WORKER_STANDINGS = ("present", "away", "draining", "quarantined")


class GetOverview(Question, frozen=True, kw_only=True, tag="GetOverview"):
    """How everything of the tenant stands."""


class QueueLine(Struct, frozen=True):
    """How many tasks wait for a worker in a queue, and since when the oldest may run."""

    queue: str
    tasks: int
    oldest_at: Millis


class WaitingLine(Struct, frozen=True, kw_only=True):
    """Tasks, or whole runs, that wait for the same thing, and one of them: of tasks the one that has waited longest."""

    reason: Reason
    run: RunId
    task: TaskId = TaskId("")
    tasks: int = 0
    runs: int = 0


class Overview(Struct, frozen=True, kw_only=True):
    """`unexplained` tasks wait too, and were not asked why. `ended` are tasks of all tenants, by how they ended in this
    reign; whoever asks twice knows how many ended in between.
    """

    # Live runs by state; `is_all`: there are no others.
    runs: dict[str, int]
    is_all: bool
    waiting: tuple[WaitingLine, ...]
    unexplained: int
    queues: tuple[QueueLine, ...]
    leases: int
    workers: dict[str, int]
    # Leases that workers could hold in all.
    slots: int
    ended: dict[str, int]
    epoch: int
    as_of: Millis


def overview(state: State, question: GetOverview, now: Millis) -> Overview:
    """How everything of a tenant stands."""
    tenant = question.tenant
    buckets = [
        bucket for bucket in state.index.buckets.values() if bucket.live and bucket.demand.signature.tenant == tenant
    ]
    runs, held, is_all = _look_at_runs(state, tenant)
    explained, unexplained = _explain(state, buckets, now)
    workers = [worker for worker in state.workers.values() if _serves(worker, tenant)]
    standings: dict[str, int] = dict.fromkeys(WORKER_STANDINGS, 0)
    for worker in workers:
        standings[standing_of(worker, now)] += 1
    ended: dict[str, int] = {}
    for (_, there), count in state.moves.items():
        if there in TERMINAL and count:
            ended[there] = ended.get(there, 0) + count
    return Overview(
        runs=runs,
        is_all=is_all,
        waiting=(*held, *explained),
        unexplained=unexplained,
        queues=_queues(state, buckets),
        leases=sum(lease.run.row.tenant == tenant for lease in state.leases.values()),
        workers=standings,
        slots=sum(worker.row.capacity.slots for worker in workers if worker.present),
        ended=ended,
        epoch=state.epoch,
        as_of=now,
    )


def standing_of(worker: LiveWorker, now: Millis) -> str:
    """Whether a worker takes work, in a word."""
    if worker.row.quarantined_until > now:
        return "quarantined"
    if worker.row.draining:
        return "draining"
    return "present" if worker.present else "away"


def _serves(worker: LiveWorker, tenant: str) -> bool:
    tenants = worker.row.capacity.tenants
    return not worker.row.gone_at and (not tenants or tenant in tenants)


def _look_at_runs(state: State, tenant: str) -> tuple[dict[str, int], list[WaitingLine], bool]:
    """Live runs by state, those that something holds as a whole, and whether these are all."""
    counts: dict[str, int] = {}
    held: list[tuple[Reason, LiveRun]] = []
    counted = explained = 0
    for key in reversed(state.runs):
        if key[0] != tenant:
            continue
        if counted == RUNS_COUNTED_MAX:
            return counts, _by_reason(held), False
        run = state.runs[key]
        counted += 1
        counts[run.row.state] = counts.get(run.row.state, 0) + 1
        if run.row.state in RUN_TERMINAL or not _is_held(run) or explained == RUNS_EXPLAINED_MAX:
            continue
        explained += 1
        held += [(reason, run) for reason in run_reasons(state, run)[:1]]
    return counts, _by_reason(held), True


def _is_held(run: LiveRun) -> bool:
    return run.row.state is RunState.QUEUED or run.is_gated or not run.is_runnable


def _by_reason(held: list[tuple[Reason, LiveRun]]) -> list[WaitingLine]:
    found: dict[tuple[object, ...], tuple[Reason, LiveRun, int]] = {}
    for reason, run in held:
        # What holds one run alone names it; those of one sort are one line.
        about = tuple(pair for pair in reason.about if pair != ("run", run.row.id))
        known = found.get((reason.code, about))
        found[reason.code, about] = (reason, run, 1) if known is None else (known[0], known[1], known[2] + 1)
    lines = [WaitingLine(reason=reason, run=run.row.id, runs=count) for reason, run, count in found.values()]
    return sorted(lines, key=lambda line: -line.runs)


def _explain(state: State, buckets: list[Bucket], now: Millis) -> tuple[list[WaitingLine], int]:
    """Tasks by the first reason of their bucket, the most first, and how many were not explained."""
    explained = nlargest(BUCKETS_EXPLAINED_MAX, buckets, key=lambda bucket: bucket.live)
    found: dict[tuple[object, ...], WaitingLine] = {}
    for bucket in explained:
        oldest = state.index.oldest(bucket)
        reason = bucket_reasons(state, bucket, now)[0]
        known = found.get((reason.code, reason.about))
        if known is None and oldest is not None:
            _, run, task = oldest
            line = WaitingLine(reason=reason, run=run.row.id, task=run.graph.task_id(task.idx), tasks=bucket.live)
            found[reason.code, reason.about] = line
        elif known is not None:
            line = WaitingLine(reason=known.reason, run=known.run, task=known.task, tasks=known.tasks + bucket.live)
            found[reason.code, reason.about] = line
    lines = sorted(found.values(), key=lambda line: -line.tasks)
    return lines, sum(bucket.live for bucket in buckets) - sum(bucket.live for bucket in explained)


def _queues(state: State, buckets: Iterable[Bucket]) -> tuple[QueueLine, ...]:
    found: dict[str, QueueLine] = {}
    for bucket in buckets:
        name = bucket.demand.signature.queue
        known = found.get(name, QueueLine(name, 0, 0))
        oldest = state.index.oldest(bucket)
        at = oldest[0] if oldest is not None else 0
        found[name] = QueueLine(name, known.tasks + bucket.live, min(at or known.oldest_at, known.oldest_at or at))
    return tuple(sorted(found.values(), key=lambda line: (-line.tasks, line.queue)))
