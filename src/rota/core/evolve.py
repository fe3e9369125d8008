"""Applying changes to the state. Nothing here decides, and nothing here can fail.

One function per change, found by its type. `move` is the only place where a task changes state; it keeps every
countdown, index and sum in step, and refuses a move that the table does not list.
"""

from collections.abc import Callable
from typing import Any

from rota.core import changes as ch
from rota.core.bounds import RECEIPTS_KEPT_MS
from rota.core.graph import LiveGraph, graph_pool
from rota.core.ids import Fence, Millis
from rota.core.limits import Usage
from rota.core.live import Lease, LiveRun, LiveWorker
from rota.core.buckets import Bucket
from rota.core.order import SHARE
from rota.core.records import GraphRecord, Receipt, Task
from rota.core.state import State
from rota.core.states import (
    ASSIGNED,
    CANCELLED,
    FAILED,
    LEASED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUNNING,
    SCHEDULED,
    SKIPPED,
    SUCCESS,
    TASK_MOVES,
    TASK_RESETS,
    TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    UPSTREAM_FAILED,
    RunState,
    TaskState,
    can_transition_run,
)

_BAD = frozenset({FAILED, UPSTREAM_FAILED, CANCELLED})


def evolve(state: State, change: ch.Change) -> None:
    """Make the state what it is after `change`."""
    _APPLY[type(change)](state, change)


# Moving tasks.


def move(state: State, run: LiveRun, task: Task, to: TaskState) -> None:
    """Change a task's state and everything that is counted from it."""
    here = task.state
    assert (here, to) in TASK_MOVES or (here, to) in TASK_RESETS, f"no move from {here} to {to}"
    if here is QUEUED:
        state.withdraw(run, task)
    task.state = to
    if here is NONE:
        run.moving += 1
    elif here in TERMINAL:
        run.moving += 1
        run.ended -= 1
        _count(run, task.idx, here, -1)
    if to in TERMINAL:
        run.moving -= 1
        run.ended += 1
        _count(run, task.idx, to, 1)
    elif to is NONE:
        run.moving -= 1
    elif to is QUEUED:
        state.offer(run, task)


def _count(run: LiveRun, idx: int, to: TaskState, step: int) -> None:
    graph = run.graph
    node = graph.node(idx)
    if to in _BAD and graph.leaf[node]:
        run.leaf_bad += step
    downs = graph.downs[node]
    if not downs:
        return
    if to is SUCCESS:
        counts = run.success
    elif to is SKIPPED:
        counts = run.skipped
    elif to is UPSTREAM_FAILED:
        counts = run.upstream_failed
    else:
        counts = run.failed
    assert counts is not None, "a graph with edges has countdowns"
    for down in downs:
        counts[down] += step


def _task(run: LiveRun, idx: int) -> Task:
    task = run.tasks.get(idx)
    if task is None:
        task = run.tasks[idx] = Task(run.row.tenant, run.row.id, idx)
    return task


def touch(state: State, run: LiveRun, task: Task) -> None:
    """Remember that a task's row must be written; the only task of a run lives in the run's row."""
    if is_solo(run):
        state.touched.runs[run.key] = run
    else:
        state.touched.tasks[id(task)] = task


def is_solo(run: LiveRun) -> bool:
    """Whether the run's one task is stored inside the run's row."""
    return run.graph.total == 1 and not run.graph.unknown and not run.row.grown


def _tell(state: State, run: LiveRun, change: ch.Change) -> None:
    story = state.touched.stories.get(run.key)
    if story is None:
        state.touched.stories[run.key] = [change]
        state.touched.runs[run.key] = run
    else:
        story.append(change)


# Leases.


def begin_lease(
    state: State, run: LiveRun, task: Task, worker: LiveWorker, bucket: Bucket, now: Millis
) -> Lease:
    """Count a lease against its worker and pools. Used for grants and for leases found while loading."""
    fence = task.fence
    lease = Lease(fence, run, task, worker, bucket, now - state.stalled_ms)
    state.leases[fence] = lease
    worker.leases[fence] = lease
    worker.take(bucket)
    run.leased += 1
    tenant = run.row.tenant
    for need in bucket.demand.signature.pools:
        usage = state.usage.get((tenant, need.pool))
        if usage is None:
            usage = state.usage[(tenant, need.pool)] = Usage(now)
        usage.take(need)
    share = SHARE // max(1, worker.row.capacity.slots)
    for name, need in bucket.demand.minimum:
        total = worker.totals.get(name, 0)
        if total:
            share = max(share, need * SHARE // total)
    lease.share = share
    return lease


def end_lease(state: State, fence: Fence, at: Millis) -> None:
    """Give back what a lease took, and settle its account."""
    lease = state.leases.pop(fence)
    run, task, worker, bucket = lease.run, lease.task, lease.worker, lease.bucket
    del worker.leases[fence]
    worker.give_back(bucket)
    state.uses += 1
    worker.used = state.uses
    run.leased -= 1
    state.index.touch(worker, freed=True)
    tenant = run.row.tenant
    for need in bucket.demand.signature.pools:
        state.usage[(tenant, need.pool)].give_back(need)
        for waiter in state.pool_waiters.pop((tenant, need.pool), ()):
            state.index.fresh[waiter] = None
    took_ms = max(0, at - lease.granted_at)
    run.purse.settle(took_ms * lease.share // SHARE - lease.charged)
    if task.state is RUNNING or task.state in TERMINAL:
        run.account.learn(took_ms)
    task.fence = 0
    task.worker_tenant = task.worker = task.incarnation = ""


def _lease_granted(state: State, change: ch.LeaseGranted) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    bucket = state.bucket_of(run, task)
    move(state, run, task, ASSIGNED)
    state.lease_number += 1
    task.attempt = change.attempt
    task.fence = change.fence
    task.worker_tenant = change.worker_tenant
    task.worker = change.worker
    task.incarnation = change.incarnation
    task.lease_ms = change.lease_ms
    task.assigned_at = change.at
    task.started_at = task.ended_at = task.due_at = 0
    worker = state.workers[(change.worker_tenant, change.worker)]
    lease = begin_lease(state, run, task, worker, bucket, change.at)
    lease.expires_at = change.at - state.stalled_ms + change.lease_ms
    tenant = run.row.tenant
    for need in bucket.demand.signature.pools:
        pool = state.pools.get((tenant, need.pool))
        if pool is not None:
            state.usage[(tenant, need.pool)].spend(pool, change.at)
    lease.charged = state.books.charge(run.purse, lease.share, in_turn=not change.overdue)
    state.uses += 1
    worker.used = state.uses
    if worker.shape is not None:
        shape = worker.shape
        shape.grants = 0 if change.overdue else shape.grants + 1
        shape.park(worker)
    if not worker.watched:
        worker.watched = True
        state.set_timer(change.at + min(state.limits.dispatch_ms, change.lease_ms), "worker", *worker.key)
    if worker.row.capacity.pull:
        state.set_timer(change.at + change.lease_ms, "lease", change.fence)
    touch(state, run, task)
    _tell(state, run, change)


def _attempt_started(state: State, change: ch.AttemptStarted) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    move(state, run, task, RUNNING)
    task.started_at = change.at
    touch(state, run, task)
    _tell(state, run, change)


def _attempt_ended(state: State, change: ch.AttemptEnded) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    worker = state.leases[change.fence].worker
    worker.strikes = worker.strikes + 1 if change.failure == "internal" else 0
    move(state, run, task, change.state)
    task.ended_at = change.at
    task.result = change.result
    task.failure = change.failure
    task.error = change.error
    task.done_fence = change.fence
    end_lease(state, change.fence, change.at)
    if change.state is UP_FOR_RETRY or change.state is UP_FOR_RESCHEDULE:
        task.due_at = change.due_at
        if change.state is UP_FOR_RESCHEDULE:
            task.budget_from += 1
        state.set_timer(change.due_at, "due", change.tenant, change.run, change.task)
    elif change.state is SUCCESS:
        task.interruptions = 0
        task.avoid = ""
    touch(state, run, task)
    _tell(state, run, change)


def _lease_returned(state: State, change: ch.LeaseReturned) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    worker = task.worker
    end_lease(state, change.fence, change.at)
    if change.counted:
        task.interruptions += 1
        task.avoid = worker
    # The attempt was not spent: the next grant has the same number.
    task.attempt -= 1
    task.error = change.cause if change.state is NEEDS_ATTENTION else ""
    move(state, run, task, change.state)
    if change.state in TERMINAL:
        task.ended_at = change.at
    touch(state, run, task)
    _tell(state, run, change)


def _report_refused(state: State, change: ch.ReportRefused) -> None:
    state.refused_reports[change.cause] = state.refused_reports.get(change.cause, 0) + 1
    run = state.runs.get((change.tenant, change.run))
    if run is not None:
        run.told += 1
        _tell(state, run, change)


# Tasks without a lease.


def _tasks_scheduled(state: State, change: ch.TasksScheduled) -> None:
    run = state.runs[(change.tenant, change.run)]
    fired = run.fired
    graph = run.graph
    for idx in change.tasks:
        task = _task(run, idx)
        task.eligible_at = change.at
        task.ended_at = 0
        node = graph.node(idx)
        fired[node] = 1
        if run.reset:
            _forget_reset(run, node, idx)
        assert task.state is NONE, f"no move from {task.state} to {SCHEDULED}"
        run.moving += 1
        task.state = SCHEDULED
        move(state, run, task, QUEUED)
        touch(state, run, task)
    _tell(state, run, change)


def _tasks_settled(state: State, change: ch.TasksSettled) -> None:
    run = state.runs[(change.tenant, change.run)]
    for idx in change.tasks:
        task = _task(run, idx)
        node = run.graph.node(idx)
        run.fired[node] = 1
        if run.reset:
            _forget_reset(run, node, idx)
        move(state, run, task, change.state)
        task.ended_at = change.at
        touch(state, run, task)
    _tell(state, run, change)


def _forget_reset(run: LiveRun, node: int, idx: int) -> None:
    waiting = run.reset.get(node)
    if waiting is not None:
        waiting.pop(idx, None)
        if not waiting:
            del run.reset[node]


def _tasks_reset(state: State, change: ch.TasksReset) -> None:
    run = state.runs[(change.tenant, change.run)]
    for idx in change.tasks:
        task = run.tasks[idx]
        if task.state in LEASED:
            end_lease(state, task.fence, change.at)
            task.attempt -= 1
        if change.fresh:
            task.budget_from = task.attempt
            task.interruptions = task.losses = 0
        else:
            task.losses += task.state is SUCCESS
        move(state, run, task, NONE)
        task.result = None
        task.failure = None
        task.error = ""
        task.avoid = ""
        task.started_at = task.ended_at = task.due_at = 0
        task.cycles = task.tier = 0
        run.reset.setdefault(run.graph.node(idx), {})[idx] = None
        touch(state, run, task)
    _tell(state, run, change)


def _task_requeued(state: State, change: ch.TaskRequeued) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    task.eligible_at = change.at
    task.due_at = 0
    if task.state is NEEDS_ATTENTION:
        task.interruptions = task.cycles = task.tier = 0
        task.avoid = ""
    move(state, run, task, SCHEDULED)
    move(state, run, task, QUEUED)
    touch(state, run, task)
    _tell(state, run, change)


def _task_amended(state: State, change: ch.TaskAmended) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    state.withdraw(run, task)
    task.requires = change.requires
    state.offer(run, task)
    touch(state, run, task)
    _tell(state, run, change)


def _task_ended(state: State, change: ch.TaskEnded) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    move(state, run, task, change.state)
    task.failure = change.failure
    task.error = change.error
    if change.state in TERMINAL:
        task.ended_at = change.at
    touch(state, run, task)
    _tell(state, run, change)


def _task_starved(state: State, change: ch.TaskStarved) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    task.cycles = change.cycles
    task.tier = change.tier
    touch(state, run, task)
    _tell(state, run, change)


# Runs.


def _run_submitted(state: State, change: ch.RunSubmitted) -> None:
    row = change.row
    graph = state.graphs[(row.tenant, row.graph)]
    graph.users += 1
    run = LiveRun(row, graph, state.books.purse(row.priority, row.tenant))
    state.runs[run.key] = run
    if row.command_id:
        state.by_command[(row.tenant, row.command_id)] = run.key
    _wait_to_start(state, run)
    _tell(state, run, change)


def count_scheduled(state: State, run: LiveRun, step: int) -> None:
    """Keep the number of unfinished runs that a schedule made."""
    if run.row.schedule:
        key = (run.row.tenant, run.row.schedule)
        state.scheduled_runs[key] = state.scheduled_runs.get(key, 0) + step


def _wait_to_start(state: State, run: LiveRun) -> None:
    count_scheduled(state, run, 1)
    name = (run.row.tenant, run.row.name)
    state.waiting_runs.setdefault(name, {})[run.key] = None
    state.starts[name] = None


def _run_started(state: State, change: ch.RunStarted) -> None:
    run = state.runs[(change.tenant, change.run)]
    row = run.row
    name = (row.tenant, row.name)
    waiting = state.waiting_runs[name]
    del waiting[run.key]
    if not waiting:
        del state.waiting_runs[name]
        state.starts.pop(name, None)
    _set_run_state(row.state, RunState.RUNNING)
    row.state = RunState.RUNNING
    row.started_at = row.started_at or change.at
    row.ended_at = 0
    state.active_runs[name] = state.active_runs.get(name, 0) + 1
    timeout_ms = run.graph.graph.run_timeout_ms
    if timeout_ms:
        row.deadline_at = change.at + timeout_ms
        state.set_timer(row.deadline_at, "deadline", *run.key)
    _tell(state, run, change)


def _set_run_state(here: RunState, there: RunState) -> None:
    assert can_transition_run(here, there), f"no move of a run from {here} to {there}"


def _run_ended(state: State, change: ch.RunEnded) -> None:
    run = state.runs[(change.tenant, change.run)]
    row = run.row
    name = (row.tenant, row.name)
    if row.state is RunState.RUNNING:
        _free_run_slot(state, name)
    else:
        waiting = state.waiting_runs[name]
        del waiting[run.key]
        if not waiting:
            del state.waiting_runs[name]
    _set_run_state(row.state, change.state)
    row.state = change.state
    row.ended_at = change.at
    row.reason = change.reason
    row.pending = ()
    state.continues.pop(run.key, None)
    state.set_timer(change.at + state.limits.retain_ended_ms, "archive", *run.key)
    count_scheduled(state, run, -1)
    if row.schedule:
        state.set_timer(change.at, "schedule", row.tenant, row.schedule)
    _tell(state, run, change)


def _free_run_slot(state: State, name: tuple[str, str]) -> None:
    left = state.active_runs[name] - 1
    if left:
        state.active_runs[name] = left
    else:
        del state.active_runs[name]
    if name in state.waiting_runs:
        state.starts[name] = None


def _run_reopened(state: State, change: ch.RunReopened) -> None:
    run = state.runs[(change.tenant, change.run)]
    _set_run_state(run.row.state, RunState.QUEUED)
    run.row.state = RunState.QUEUED
    run.row.stopping = None
    run.row.reason = ""
    run.row.ended_at = 0
    _wait_to_start(state, run)
    _tell(state, run, change)


def _hold(state: State, run: LiveRun, set_flag: Callable[[], None]) -> None:
    """Change whether a run may have workers, taking its queued tasks out of matching or putting them back."""
    was = run.is_runnable
    queued = [task for task in run.tasks.values() if task.state is QUEUED]
    if was:
        for task in queued:
            state.withdraw(run, task)
    set_flag()
    if run.is_runnable:
        for task in queued:
            state.offer(run, task)


def _run_paused(state: State, change: ch.RunPaused) -> None:
    run = state.runs[(change.tenant, change.run)]

    def flag() -> None:
        run.row.paused = change.paused
        if not change.paused:
            run.row.fault = ""

    _hold(state, run, flag)
    _tell(state, run, change)


def _run_stopping(state: State, change: ch.RunStopping) -> None:
    run = state.runs[(change.tenant, change.run)]

    def flag() -> None:
        run.row.stopping = change.state
        run.row.reason = change.reason

    _hold(state, run, flag)
    _tell(state, run, change)


def _run_faulted(state: State, change: ch.RunFaulted) -> None:
    run = state.runs[(change.tenant, change.run)]

    def flag() -> None:
        run.row.fault = change.fault

    _hold(state, run, flag)
    state.continues.pop(run.key, None)
    _tell(state, run, change)


def _pending_set(state: State, change: ch.PendingSet) -> None:
    run = state.runs[(change.tenant, change.run)]
    run.row.pending = change.pending
    if change.pending:
        state.continues[run.key] = None
    else:
        state.continues.pop(run.key, None)
    _tell(state, run, change)


def _run_grew(state: State, change: ch.RunGrew) -> None:
    run = state.runs[(change.tenant, change.run)]
    was_solo = is_solo(run)
    if run.row.grown:
        _leave_buckets(state, run.graph)
    grow(run, run.graph.grown(change.growth))
    run.row.grown += 1
    run.growths.append(change.growth)
    state.touched.puts[("Growth", change.tenant, change.run, change.growth.number)] = change.growth
    if was_solo:
        for task in run.tasks.values():
            touch(state, run, task)
    _tell(state, run, change)


def grow(run: LiveRun, graph: LiveGraph) -> None:
    """Lay a run out over a larger graph: countdowns are counted again from the tasks that have ended."""
    fired = run.fired
    run.allot(graph)
    run.fired[: len(fired)] = fired
    for idx, node in graph.retired.items():
        # The one that stood for all of them has made room: its node is judged again.
        if idx in run.reset.get(node, {}):
            del run.reset[node]
            run.fired[node] = 0
    run.leaf_bad = 0
    for idx, task in run.tasks.items():
        if task.state in TERMINAL:
            _count(run, idx, task.state, 1)


def _leave_graph(state: State, tenant: str, digest: str, at: Millis) -> None:
    graph = state.graphs[(tenant, digest)]
    graph.users -= 1
    if not graph.users:
        state.set_timer(at + state.limits.retain_ended_ms, "graph", tenant, digest)


def _run_archived(state: State, change: ch.RunArchived) -> None:
    key = (change.tenant, change.run)
    run = state.runs.pop(key)
    row = run.row
    if row.command_id:
        state.by_command.pop((row.tenant, row.command_id), None)
        receipt = Receipt(row.tenant, row.command_id, 0, row.id, change.at)
        _keep_receipt(state, receipt)
    if row.grown:
        _leave_buckets(state, run.graph)
    _leave_graph(state, row.tenant, row.graph, change.at)
    _tell(state, run, change)
    state.touched.archives[key] = None


# Workers.


def _worker_registered(state: State, change: ch.WorkerRegistered) -> None:
    row = change.row
    worker = state.workers.get((row.tenant, row.id))
    if worker is None:
        worker = state.add_worker(row, row.registered_at)
    else:
        state.index.part(worker)
        worker.row = row
        worker.describe(state.consumable)
        state.index.join(worker)
    worker.present = worker.has_spoken = True
    worker.seen_at = row.registered_at
    worker.strikes = 0
    state.index.touch(worker, freed=True)
    state.touched.drops.pop(("Worker", row.tenant, row.id), None)
    state.touched.puts[("Worker", row.tenant, row.id)] = row


def _worker_drained(state: State, change: ch.WorkerDrained) -> None:
    worker = state.workers[(change.tenant, change.worker)]
    worker.row.draining = change.draining
    state.index.touch(worker, freed=not change.draining)
    state.index.wake_avoiders()
    state.touched.puts[("Worker", change.tenant, change.worker)] = worker.row


def _worker_quarantined(state: State, change: ch.WorkerQuarantined) -> None:
    worker = state.workers[(change.tenant, change.worker)]
    worker.row.quarantined_until = change.until
    worker.strikes = 0
    state.set_timer(change.until, "rested", *worker.key)
    state.touched.puts[("Worker", change.tenant, change.worker)] = worker.row


def _worker_gone(state: State, change: ch.WorkerGone) -> None:
    key = (change.tenant, change.worker)
    worker = state.workers.pop(key)
    assert not worker.leases, "a worker that holds leases cannot go; they are returned first"
    worker.row.gone_at = change.at
    state.index.part(worker)
    state.touched.puts.pop(("Worker", *key), None)
    state.touched.drops[("Worker", *key)] = None


# Definitions.


def _queue_put(state: State, change: ch.QueuePut) -> None:
    state.put_queue(change.queue)
    state.touched.puts[("Queue", change.queue.tenant, change.queue.name)] = change.queue


def _pool_put(state: State, change: ch.PoolPut) -> None:
    state.put_pool(change.pool, change.at)
    state.touched.drops.pop(("Pool", change.pool.tenant, change.pool.name), None)
    state.touched.puts[("Pool", change.pool.tenant, change.pool.name)] = change.pool


def _pool_dropped(state: State, change: ch.PoolDropped) -> None:
    state.pools.pop((change.tenant, change.name), None)
    state.touched.puts.pop(("Pool", change.tenant, change.name), None)
    state.touched.drops[("Pool", change.tenant, change.name)] = None


def _graph_put(state: State, change: ch.GraphPut) -> None:
    state.put_graph(LiveGraph(change.tenant, change.digest, change.graph), change.at)
    key = ("GraphRecord", change.tenant, change.digest)
    state.touched.drops.pop(key, None)
    state.touched.puts[key] = GraphRecord(change.tenant, change.digest, change.graph)


def _graph_dropped(state: State, change: ch.GraphDropped) -> None:
    graph = state.graphs.pop((change.tenant, change.digest))
    _leave_buckets(state, graph)
    if graph.graph.max_active_tasks and not any(
        other.graph.name == graph.graph.name and other.tenant == graph.tenant for other in state.graphs.values()
    ):
        state.pools.pop((graph.tenant, graph_pool(graph.graph.name)), None)
    key = ("GraphRecord", change.tenant, change.digest)
    state.touched.puts.pop(key, None)
    state.touched.drops[key] = None


def _leave_buckets(state: State, graph: LiveGraph) -> None:
    for bucket in graph.buckets:
        if bucket is not None:
            bucket.users -= 1
            if not bucket.users and not bucket.live:
                state.index.drop_bucket(bucket)


def _schedule_put(state: State, change: ch.SchedulePut) -> None:
    schedule = change.schedule
    key = (schedule.tenant, schedule.id)
    old = state.schedules.get(key)
    state.schedules[key] = schedule
    state.graphs[(schedule.tenant, schedule.graph)].users += 1
    if old is not None:
        _leave_graph(state, old.tenant, old.graph, change.at)
    state.set_timer(0, "schedule", *key)
    state.touched.drops.pop(("Schedule", *key), None)
    state.touched.puts[("Schedule", *key)] = schedule


def _schedule_advanced(state: State, change: ch.ScheduleAdvanced) -> None:
    key = (change.tenant, change.schedule)
    schedule = state.schedules[key]
    schedule.cursor = change.cursor
    schedule.fired += change.fired
    schedule.missed += change.missed
    state.touched.puts[("Schedule", *key)] = schedule


def _schedule_dropped(state: State, change: ch.ScheduleDropped) -> None:
    key = (change.tenant, change.schedule)
    schedule = state.schedules.pop(key)
    _leave_graph(state, schedule.tenant, schedule.graph, change.at)
    state.touched.puts.pop(("Schedule", *key), None)
    state.touched.drops[("Schedule", *key)] = None


def _command_recorded(state: State, change: ch.CommandRecorded) -> None:
    _keep_receipt(state, change.receipt)


def _keep_receipt(state: State, receipt: Receipt) -> None:
    key = (receipt.tenant, receipt.command_id)
    state.receipts[key] = receipt
    state.set_timer(receipt.at + RECEIPTS_KEPT_MS, "receipt", *key)
    state.touched.drops.pop(("Receipt", *key), None)
    state.touched.puts[("Receipt", *key)] = receipt


def _receipt_dropped(state: State, change: ch.ReceiptDropped) -> None:
    key = (change.tenant, change.command_id)
    state.receipts.pop(key, None)
    state.touched.puts.pop(("Receipt", *key), None)
    state.touched.drops[("Receipt", *key)] = None


_APPLY: dict[type[ch.Change], Callable[[State, Any], None]] = {
    ch.RunSubmitted: _run_submitted,
    ch.RunStarted: _run_started,
    ch.RunEnded: _run_ended,
    ch.RunReopened: _run_reopened,
    ch.RunPaused: _run_paused,
    ch.RunStopping: _run_stopping,
    ch.RunFaulted: _run_faulted,
    ch.RunGrew: _run_grew,
    ch.PendingSet: _pending_set,
    ch.RunArchived: _run_archived,
    ch.TasksScheduled: _tasks_scheduled,
    ch.TasksSettled: _tasks_settled,
    ch.TasksReset: _tasks_reset,
    ch.TaskRequeued: _task_requeued,
    ch.TaskAmended: _task_amended,
    ch.TaskEnded: _task_ended,
    ch.TaskStarved: _task_starved,
    ch.LeaseGranted: _lease_granted,
    ch.AttemptStarted: _attempt_started,
    ch.AttemptEnded: _attempt_ended,
    ch.LeaseReturned: _lease_returned,
    ch.ReportRefused: _report_refused,
    ch.WorkerRegistered: _worker_registered,
    ch.WorkerDrained: _worker_drained,
    ch.WorkerQuarantined: _worker_quarantined,
    ch.WorkerGone: _worker_gone,
    ch.QueuePut: _queue_put,
    ch.PoolPut: _pool_put,
    ch.PoolDropped: _pool_dropped,
    ch.GraphPut: _graph_put,
    ch.GraphDropped: _graph_dropped,
    ch.SchedulePut: _schedule_put,
    ch.ScheduleAdvanced: _schedule_advanced,
    ch.ScheduleDropped: _schedule_dropped,
    ch.CommandRecorded: _command_recorded,
    ch.ReceiptDropped: _receipt_dropped,
}
