"""Why a task is not running (or what it is doing), collected from the rules that decide it.

`explain` is total: every task that has not ended has at least one reason. A simulation in which one has none fails.
"""

from itertools import islice

from msgspec import structs

from rota.core.buckets import Bucket
from rota.core.demand import Demand, static_reasons, total_reasons
from rota.core.fits import dynamic_reasons
from rota.core.ids import Millis
from rota.core.live import LiveRun, LiveWorker
from rota.core.model import Approval
from rota.core.plan import past_of
from rota.core.reap import reaper_of
from rota.core.reasons import Reason, Reasons, reason
from rota.core.records import Task
from rota.core.spans import show_span
from rota.core.state import State
from rota.core.states import (
    ASSIGNED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    RUNNING,
    TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
)

_NAMED_MAX = 5
_LOOKED_AT_MAX = 50
_NEAREST_MAX = 1_000


def explain(state: State, run: LiveRun, idx: int, now: Millis) -> Reasons:
    """Every reason why a task waits, the outermost first; empty only for a task that has ended."""
    task = run.tasks.get(idx)
    if (task is not None and task.state in TERMINAL) or run.row.state in RUN_TERMINAL or idx in run.graph.retired:
        return ()
    held = run_reasons(state, run)
    if task is None or task.state == "none":
        return held + _upstream_reasons(run, idx)
    if task.state is ASSIGNED:
        return (reason("attempt.assigned", f"worker {task.worker} has not said that it started", worker=task.worker),)
    if task.state is RUNNING:
        text = f"running on {task.worker} for {show_span(now - task.started_at)}"
        return (reason("attempt.running", text, worker=task.worker, fence=task.fence),)
    if task.state is UP_FOR_RETRY:
        rest = show_span(max(0, task.due_at - now))
        text = f"attempt {task.attempt} failed ({task.failure}); the next one starts in {rest}"
        return (*held, reason("retry.cooldown", text, at=task.due_at))
    if task.state is UP_FOR_RESCHEDULE and task.interruptions and reaper_of(task.error):
        rest = show_span(max(0, task.due_at - now))
        text = f"was claimed and lost {task.interruptions} times ({task.error}); it is offered again in {rest}"
        return (*held, reason("redelivery.waiting", text, at=task.due_at))
    if task.state is UP_FOR_RESCHEDULE:
        text = f"asked to be tried again in {show_span(max(0, task.due_at - now))}"
        return (*held, reason("reschedule.waiting", text, at=task.due_at))
    if task.state is NEEDS_ATTENTION:
        return (reason("attention.parked", task.error or "parked", task=run.graph.task_id(idx)),)
    assert task.state is QUEUED or task.state == "scheduled", f"a state without an explanation: {task.state}"
    return held or queued_reasons(state, run, task, now)


def run_reasons(state: State, run: LiveRun) -> Reasons:
    """What holds a run as a whole, the outermost first; empty if nothing does."""
    row = run.row
    found: list[Reason] = []
    if row.fault:
        found.append(reason("run.faulted", f"held after an error of the scheduler: {row.fault}", run=row.id))
    above = state.paused_above(row)
    if above is not None:
        text = f"run {above.row.id}, which this one is part of, is paused"
        found.append(reason("run.paused", text, run=above.row.id))
    elif run.is_held:
        text = f"workflow {row.name} is paused"
        found.append(reason("workflow.paused", text, workflow=row.name))
    if row.paused:
        found.append(reason("run.paused", "the run is paused", run=row.id))
    if row.stopping is not None:
        found.append(reason("run.cancelling", f"the run is being stopped: {row.reason}", run=row.id))
    found += _gate_reasons(state, run)
    if row.state is RunState.QUEUED and not run.is_gated:
        cap = 0 if row.backfill else run.graph.graph.max_active_runs
        active = state.active_runs.get(run.admission, 0)
        text = f"graph {row.name} has {active} active runs of {cap}" if cap else "the run is about to start"
        found.append(reason("run.queued", text, run=row.id, graph=row.name))
    return tuple(found)


def _gate_reasons(state: State, run: LiveRun) -> list[Reason]:
    """What has to happen before a run may start."""
    row = run.row
    found: list[Reason] = []
    if row.approval is Approval.PENDING:
        text = f"a person has to approve of it: rota work approve {row.id}"
        found.append(reason("approval.waiting", text, run=row.id))
    for name in row.after[:_NAMED_MAX]:
        awaited = state.runs[(row.tenant, name)].row
        if awaited.state in RUN_TERMINAL and awaited.state is not RunState.SUCCESS:
            way = "try it again, or cancel this one" if awaited.started_at else "it never started: cancel this one"
            text = f"{name} has to succeed first, and is {awaited.state}; {way}"
            found.append(reason("after.failed", text, run=name))
        else:
            found.append(reason("after.waiting", f"{name} has to succeed first, and is {awaited.state}", run=name))
    if len(row.after) > _NAMED_MAX:
        text = f"{len(row.after) - _NAMED_MAX} more runs have to succeed first"
        found.append(reason("after.waiting", text, run=row.id))
    return found


def _upstream_reasons(run: LiveRun, idx: int) -> Reasons:
    graph = run.graph
    for piece in run.row.pending:
        if piece.to is NONE and piece.next <= graph.rank[graph.node(idx)] < piece.end:
            return (reason("cascade.pending", "its trigger rule will be answered in one of the next turns"),)
        if piece.to is not NONE and piece.next <= idx < piece.end:
            return (reason("cascade.pending", f"will be {piece.to} in one of the next turns", at=piece.next),)
    node = graph.node(idx)
    waiting: list[str] = []
    named: list[str] = []
    count = 0
    for up in (*graph.ups[node], *graph.setups.get(node, ())):
        if not graph.width[up]:
            name = graph.specs[up].id
            return (reason("expand.unknown", f"the width of {name} is not known yet", task=name),)
        for task_idx in graph.tasks_of(up):
            task = run.tasks.get(task_idx)
            if task is None or task.state not in TERMINAL:
                count += 1
                if len(waiting) < _NAMED_MAX:
                    named.append(graph.task_id(task_idx))
                    waiting.append(f"{named[-1]} ({'none' if task is None else task.state})")
    if count:
        text = f"{count} upstream tasks have not ended: {', '.join(waiting)}"
        held = reason("upstream.waiting", text, rule=graph.rules[node])
        # Each by itself, so that whoever shows it can lead there.
        return (structs.replace(held, about=(*held.about, *(("task", name) for name in named))),)
    if run.row.state is RunState.QUEUED:
        return ()
    if node in graph.past and run.before is not None and (waited := past_of(run, node)):
        return (_past_reason(run.before, waited, graph.specs[node].id),)
    return (reason("upstream.waiting", "its trigger rule has not been answered yet", rule=graph.rules[node]),)


def _past_reason(before: LiveRun, waited: list[int], name: str) -> Reason:
    """Which task of the run before is waited for, and how that stands: a person may have to clear or mark it."""
    tasks = [before.tasks.get(idx) for idx in waited[:_NAMED_MAX]]
    states = [f"{before.graph.task_id(task.idx)} is {task.state}" for task in tasks if task is not None]
    how = ", ".join(states) or "has not started there"
    text = f"{name} depends on the past: in run {before.row.id}, {how}"
    return reason("past.waiting", text, run=before.row.id, task=name)


def queued_reasons(state: State, run: LiveRun, task: Task, now: Millis) -> Reasons:
    """Why a queued task has no worker: pools, then workers (impossible, absent, busy), then its turn."""
    return bucket_reasons(state, state.bucket_of(run, task), now)


def bucket_reasons(state: State, bucket: Bucket, now: Millis) -> Reasons:
    """The same for all tasks of a bucket: nothing tells them apart but their turn."""
    found = list(state.hold_reasons(bucket, now))
    found += _worker_reasons(state, bucket, now)
    if not found:
        ahead = state.index.queued - 1
        text = f"{ahead} other tasks wait too; fair order decides" if ahead else "a worker is being found"
        found.append(reason("order.turn", text))
    return tuple(found)


def _worker_reasons(state: State, bucket: Bucket, now: Millis) -> list[Reason]:
    signature = bucket.demand.signature
    match state.unservable_code(bucket):
        case "queue.gone":
            return [reason("queue.gone", f"queue {signature.queue} does not exist any more", queue=signature.queue)]
        case "worker.none_registered":
            return [reason("worker.none_registered", "no worker is registered")]
        case "worker.none_match":
            return [_none_match(state, bucket)]
        case _:
            pass
    if bucket.demand.pull:
        return [reason("worker.pull", "waits to be claimed by a worker that asks for work")]
    absent = busy = 0
    nearest_text = nearest = ""
    alone = state.index.is_alone(bucket, now)
    for worker in _suitable(bucket):
        reasons = dynamic_reasons(bucket.demand, worker, now, alone=alone)
        if not reasons:
            return []
        if any(item.code in ("worker.absent", "worker.silent") for item in reasons):
            absent += 1
        else:
            busy += 1
            nearest_text = nearest_text or f"; nearest is {worker.row.id}: {reasons[0].text}"
            nearest = nearest or worker.row.id
    if busy:
        text = f"{busy} suitable workers are busy{nearest_text}"
        return [reason("worker.busy", text, workers=busy, worker=nearest)]
    return [reason("worker.absent", f"{absent} suitable workers are registered but away", workers=absent)]


def _suitable(bucket: Bucket) -> list[LiveWorker]:
    workers = [worker for _, shape in bucket.shapes for worker in shape.workers.values()]
    return [worker for worker in workers if not total_reasons(bucket.demand, worker.totals)][:_LOOKED_AT_MAX]


def _none_match(state: State, bucket: Bucket) -> Reason:
    """That nobody could ever run this: who comes nearest, and everything that is wrong with it."""
    nearest = _nearest(state, bucket)
    text = "no registered worker could ever run this"
    if nearest is None:
        return reason("worker.none_match", text)
    worker, reasons = nearest
    wrong = ", ".join(item.text for item in reasons[:_NAMED_MAX])
    about = {name: value for item in reversed(reasons) for name, value in item.about}
    return reason("worker.none_match", f"{text}; nearest is {worker.row.id}: {wrong}", worker=worker.row.id, **about)


def _nearest(state: State, bucket: Bucket) -> tuple[LiveWorker, Reasons] | None:
    """The worker with the least against it: what a person would have to change. What it is doing now does not count.

    One that serves other tenants is none of this one's business, and not named. Of those that are alike one is looked
    at.
    """
    best: tuple[tuple[int, int, int], LiveWorker, Reasons] | None = None
    demand = bucket.demand
    seen: dict[tuple[int, tuple[tuple[str, int], ...]], None] = {}
    for worker in islice(state.workers.values(), _NEAREST_MAX):
        served, sort = worker.row.capacity.tenants, (id(worker.shape), tuple(worker.totals.items()))
        if worker.row.gone_at or sort in seen or (served and demand.signature.tenant not in served):
            continue
        seen[sort] = None
        reasons = (
            *static_reasons(demand, worker.row.capacity, worker.values),
            *total_reasons(demand, worker.totals),
        )
        if reasons and (best is None or _distance(demand, worker, reasons) < best[0]):
            best = (_distance(demand, worker, reasons), worker, reasons)
    return best[1:] if best is not None else None


def _distance(demand: Demand, worker: LiveWorker, reasons: Reasons) -> tuple[int, int, int]:
    """How far a worker is from being able to: a property is changed more easily than what it is there for."""
    properties = sum(item.code == "worker.incompatible" for item in reasons)
    short = sum(max(0, need - worker.totals.get(name, 0)) * 1_000 // need for name, need in demand.minimum if need)
    return len(reasons) - properties, properties, short
