"""Reading about work that is claimed: how all of it stands, and what waits, in the order in which it would be had."""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

from msgspec import Struct

from rota.core.buckets import Bucket
from rota.core.decide.timers import unclaimed_tasks
from rota.core.graph import check_number
from rota.core.ids import Millis, RunId, TaskId
from rota.core.live import LiveRun
from rota.core.model import CLASS_WEIGHT, Pairs, PriorityClass
from rota.core.order import CLASSES
from rota.core.pauses import EVERYTHING, check_scope, pause_reasons, scope_of
from rota.core.question import Question
from rota.core.reasons import Reasons
from rota.core.records import Pause, Task
from rota.core.state import State
from rota.core.states import NEEDS_ATTENTION, QUEUED, RUN_TERMINAL
from rota.core.waking import in_order
from rota.core.why import explain

BACKLOG_MAX = 500


class GetScheduler(Question, frozen=True, kw_only=True, tag="GetScheduler"):
    """How the tenant's work that is claimed stands: pauses, and how much of it waits, is held or needs attention."""


class ListBacklog(Question, frozen=True, kw_only=True, tag="ListBacklog"):
    """Work that waits to be claimed, in the order in which it would be. `scope` is one of those that can be paused."""

    scope: str = ""
    include_paused: bool = True
    limit: int = 50


class SchedulerView(Struct, frozen=True, kw_only=True):
    """How work that is claimed stands. `starved` counts tasks that no registered worker could ever have, and those that
    climb the ladder because no session claims them.
    """

    paused: bool
    pauses: tuple[Pause, ...]
    queued: int
    held: int
    paused_items: int
    starved: int
    needs_attention: int
    gated: int
    sessions: int
    as_of: Millis


class BacklogLine(Struct, frozen=True, kw_only=True):
    """One piece of work that waits, and what keeps it from being claimed; nothing if it only waits to be."""

    run: RunId
    task: TaskId
    labels: Pairs
    priority: PriorityClass
    eligible_at: Millis
    attempt: int
    deliveries: int
    paused: bool
    reasons: Reasons


def view_scheduler(state: State, question: GetScheduler, now: Millis) -> SchedulerView:
    """How the tenant's work that is claimed stands, counted from what is in memory."""
    tenant = question.tenant
    pauses = tuple(pause for pause in state.pauses.values() if pause.tenant == tenant and pause.paused)
    queued = starved = paused = parked = gated = 0
    for bucket in _buckets(state, tenant):
        queued += bucket.live
        if not state.index.is_servable(bucket):
            starved += bucket.live
        if pause_reasons(state.pauses, bucket.demand.signature):
            paused += bucket.live
    starved += sum(run.row.tenant == tenant for run, _ in unclaimed_tasks(state, now))
    for run in _claimed_runs(state, tenant):
        gated += run.is_gated
        if not run.is_runnable and not run.is_gated:
            paused += sum(task.state is QUEUED for task in run.tasks.values())
        parked += sum(task.state is NEEDS_ATTENTION for task in run.tasks.values())
    return SchedulerView(
        paused=any(pause.scope == EVERYTHING for pause in pauses),
        pauses=pauses,
        queued=queued,
        held=sum(lease.worker.row.capacity.pull and lease.run.row.tenant == tenant for lease in state.leases.values()),
        paused_items=paused,
        starved=starved,
        needs_attention=parked,
        gated=gated,
        sessions=sum(worker.row.capacity.pull and worker.row.tenant == tenant for worker in state.workers.values()),
        as_of=now,
    )


def _buckets(state: State, tenant: str) -> Iterator[Bucket]:
    for bucket in state.index.buckets.values():
        if bucket.live and bucket.demand.pull and bucket.demand.signature.tenant == tenant:
            yield bucket


def _claimed_runs(state: State, tenant: str) -> Iterator[LiveRun]:
    """Runs that have not ended, of tasks that are claimed."""
    for run in state.runs.values():
        if run.row.tenant != tenant or run.row.state in RUN_TERMINAL:
            continue
        queue = state.queue(tenant, run.graph.specs[0].queue)
        if queue is not None and queue.pull:
            yield run


def list_backlog(state: State, question: ListBacklog, now: Millis) -> tuple[BacklogLine, ...]:
    """What waits, in the order of claims by a session that nothing prefers. What cannot be claimed yet comes last."""
    check_number(question.limit, 1, BACKLOG_MAX, "limit")
    check_scope(question.scope)
    lines: list[BacklogLine] = []
    found = merge(*(_in_order(state, bucket) for bucket in _buckets(state, question.tenant)), key=lambda one: one[0])
    for _, run, task in found:
        if len(lines) == question.limit:
            return tuple(lines)
        line = _line(state, run, task, now)
        if is_in(run, question.scope) and (question.include_paused or not line.paused):
            lines.append(line)
    if question.include_paused:
        left = question.limit - len(lines)
        lines += islice(_held_back(state, question, now), left)
    return tuple(lines)


Place = tuple[int, Millis, str]


def _in_order(state: State, bucket: Bucket) -> Iterator[tuple[Place, LiveRun, Task]]:
    for priority in CLASSES:
        for entry in in_order(bucket.ages.get(priority, ())):
            if state.index.is_waiting(bucket, entry):
                eligible_at, name, _, run, idx = entry
                yield (-CLASS_WEIGHT[priority], eligible_at, name), run, run.tasks[idx]


def _held_back(state: State, question: ListBacklog, now: Millis) -> Iterator[BacklogLine]:
    """Paused runs, and those that wait for others or for a person."""
    for run in _claimed_runs(state, question.tenant):
        if (run.is_runnable and not run.is_gated) or not is_in(run, question.scope):
            continue
        for idx in range(min(run.graph.total, BACKLOG_MAX)):
            task = run.tasks.get(idx) or Task(*run.key, idx)
            if run.is_gated or task.state is QUEUED:
                yield _line(state, run, task, now)


def _line(state: State, run: LiveRun, task: Task, now: Millis) -> BacklogLine:
    reasons = explain(state, run, task.idx, now)
    return BacklogLine(
        run=run.row.id,
        task=run.graph.task_id(task.idx),
        labels=run.row.labels,
        priority=run.row.priority,
        eligible_at=task.eligible_at,
        attempt=task.attempt,
        deliveries=task.interruptions,
        paused=any(reason.code in ("scheduler.paused", "run.paused") for reason in reasons),
        reasons=reasons,
    )


def is_in(run: LiveRun, scope: str) -> bool:
    """Whether a run's work is of a scope."""
    return not scope or any(scope_of(*pair) == scope for spec in run.graph.specs for pair in spec.requires)
