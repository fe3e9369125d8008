"""What changes about leases do to the state."""

from rota.core import changes as ch
from rota.core.buckets import Bucket
from rota.core.evolve.moves import move, note, tell
from rota.core.ids import NO_FENCE, NO_WORKER, Fence, Incarnation, Millis
from rota.core.ladder import is_ours
from rota.core.limits import Usage
from rota.core.live import Lease, LiveRun, LiveWorker
from rota.core.model import Allocation
from rota.core.order import SHARE
from rota.core.presence import is_regrantable
from rota.core.reap import reaper_of
from rota.core.records import RevokedLease, Task
from rota.core.state import State
from rota.core.states import (
    ASSIGNED,
    CANCELLED,
    NEEDS_ATTENTION,
    QUEUED,
    RUNNING,
    SUCCESS,
    TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
)


def begin_lease(state: State, run: LiveRun, task: Task, worker: LiveWorker, bucket: Bucket, now: Millis) -> Lease:
    """A live lease: of a grant, or found while loading."""
    lease = Lease(task.fence, run, task, worker, bucket, now - state.stalled_ms)
    state.leases[task.fence] = worker.leases[task.fence] = lease
    _take(state, lease, now)
    return lease


def load_revoked(state: State, run: LiveRun, task: Task, now: Millis) -> None:
    """The revoked leases of a task, found while loading; their workers have a full lease time again."""
    for row in task.revoked:
        worker = state.workers[(row.worker_tenant, row.worker)]
        lease = Lease(row.fence, run, task, worker, state.bucket_of(run, task), now - state.stalled_ms)
        lease.granted_at = now
        lease.expires_at = now + max(state.limits.lease_ms, row.lease_ms)
        state.revoked[row.fence] = worker.revoked[row.fence] = lease
        _take(state, lease, now)


def _take(state: State, lease: Lease, now: Millis) -> None:
    """Count a lease against its worker and pools."""
    run, worker, bucket = lease.run, lease.worker, lease.bucket
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


def end_lease(state: State, fence: Fence, at: Millis) -> None:
    """Give back what a lease took, and settle its account."""
    lease = _detach(state, fence)
    _give_back(state, lease, at)
    if lease.task.state is RUNNING or lease.task.state in TERMINAL:
        lease.run.account.learn(max(0, at - lease.granted_at))


def _revoke(state: State, fence: Fence) -> None:
    """Take a lease from its task, which may be granted again; what it took stays taken."""
    task = state.leases[fence].task
    row = RevokedLease(fence, task.worker_tenant, task.worker, task.lease_ms)
    lease = _detach(state, fence)
    state.revoked[fence] = lease.worker.revoked[fence] = lease
    task.revoked = (*task.revoked, row)


def _detach(state: State, fence: Fence) -> Lease:
    lease = state.leases.pop(fence)
    task = lease.task
    del lease.worker.leases[fence]
    if lease.limit_at:
        state.drop_timer("overrun", *lease.run.key, task.idx)
    task.fence = NO_FENCE
    task.worker_tenant = task.token_hash = ""
    task.worker, task.incarnation = NO_WORKER, Incarnation("")
    return lease


def _give_back(state: State, lease: Lease, at: Millis) -> None:
    run, worker, bucket = lease.run, lease.worker, lease.bucket
    worker.give_back(bucket)
    state.uses += 1
    worker.used = state.uses
    run.leased -= 1
    state.index.touch(worker, freed=True)
    tenant = run.row.tenant
    for need in bucket.demand.signature.pools:
        state.usage[(tenant, need.pool)].give_back(need)
        state.forget_usage((tenant, need.pool))
        for waiter in state.pool_waiters.pop((tenant, need.pool), ()):
            state.open_bucket(waiter, at)
    took_ms = max(0, at - lease.granted_at)
    run.purse.settle(took_ms * lease.share // SHARE - lease.charged)


def limit_lease(state: State, lease: Lease, begun_at: Millis, now: Millis) -> None:
    """Set the times at which an attempt is ended from here: if its worker lets it go on beyond its limit, or says
    nothing about it for as long as its queue allows.

    What ended in time while nobody led is on its way, so after loading the grace is given once more.
    """
    grace_ms = state.limits.overrun_ms
    timeout_ms = lease.run.graph.spec(lease.task.idx).timeout_ms
    if timeout_ms:
        lease.overruns_at = max(begun_at + timeout_ms, now) + grace_ms - state.stalled_ms
    unheard_ms = state.queue_of(lease.run, lease.task).max_action_executing_timeout_ms
    if unheard_ms:
        lease.unheard_at = max(begun_at + unheard_ms, now + min(unheard_ms, grace_ms)) - state.stalled_ms
    if lease.limit_at:
        state.set_timer(lease.limit_at + state.stalled_ms, "overrun", *lease.run.key, lease.task.idx)


def lease_granted(state: State, change: ch.LeaseGranted) -> None:
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
    task.token_hash = change.token_hash
    task.assigned_at = change.at
    task.started_at = task.ended_at = task.due_at = 0
    task.cycles = task.tier = 0
    if task.note and is_ours(task.note):
        task.note = ""
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
    if is_regrantable(lease):
        state.set_timer(change.at + bucket.demand.worker_timeout_ms + 1, "worker", *worker.key)
    if worker.row.capacity.pull:
        # Its length is its own: it may end before the worker is looked at for another.
        state.set_timer(change.at + change.lease_ms, "worker", *worker.key)
        _claimed(state, run, worker, bucket, change.at)
    note(state, run, task, change)


def _claimed(state: State, run: LiveRun, worker: LiveWorker, bucket: Bucket, at: Millis) -> None:
    """A pull worker answered its wake. What is left in the bucket is offered to the next claim that waits."""
    bucket.claimed_at = at
    state.wakes.forget_wake(run.key, worker.key)
    if bucket.live and any(shape.claimants for _, shape in bucket.shapes):
        state.index.stirred[bucket] = None


def token_replaced(state: State, change: ch.TokenReplaced) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    task.token_hash = change.token_hash
    note(state, run, task, change)


def attempt_started(state: State, change: ch.AttemptStarted) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    move(state, run, task, RUNNING)
    task.started_at = change.at
    task.first_started_at = task.first_started_at or change.at
    limit_lease(state, state.leases[change.fence], change.at, change.at)
    note(state, run, task, change)


def attempt_ended(state: State, change: ch.AttemptEnded) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    worker = state.leases[change.fence].worker
    if change.failure != "unavailable":  # which says nothing about the worker
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
            # Its end may have overtaken its start.
            task.first_started_at = task.first_started_at or task.assigned_at
        state.set_timer(change.due_at, "due", change.tenant, change.run, change.task)
    elif change.state is SUCCESS:
        bucket = run.graph.buckets[run.graph.node(change.task)]
        if bucket is not None and bucket.demand.allocation is Allocation.NEAREST_INPUTS:
            run.made_by(change.task, worker)
        task.interruptions = 0
        task.avoid_tenant, task.avoid = "", NO_WORKER
        if change.skips:
            task.skips = change.skips
            run.force(change.skips, 1)
    note(state, run, task, change)


def lease_returned(state: State, change: ch.LeaseReturned) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    worker_tenant, worker = task.worker_tenant, task.worker
    if change.revoked:
        _revoke(state, change.fence)
    else:
        end_lease(state, change.fence, change.at)
    if change.counted:
        task.interruptions += 1
        state.interruptions += 1
        task.avoid_tenant, task.avoid = worker_tenant, worker
    if change.cause.startswith(ch.RELEASED):
        task.done_fence = change.fence
    reaper = reaper_of(change.cause)
    if reaper:
        state.decided[reaper] += 1
    if change.state is not CANCELLED or not task.started_at:
        # The attempt was not spent: the next grant has the same number.
        task.attempt -= 1
    task.error = change.cause if reaper or change.state is NEEDS_ATTENTION else ""
    move(state, run, task, change.state)
    if change.state is UP_FOR_RESCHEDULE:
        task.due_at = change.due_at
        state.set_timer(change.due_at, "due", *run.key, task.idx)
    if change.state in TERMINAL:
        task.ended_at = change.at
    elif change.state is NEEDS_ATTENTION:
        # Its queue may have nobody who looks after it.
        state.set_timer(0, "parked", *run.key, task.idx)
    elif change.state is QUEUED and state.bucket_of(run, task).demand.pull:
        run.came_back(task.idx, change.at)
    note(state, run, task, change)


def revoked_lease_ended(state: State, change: ch.RevokedLeaseEnded) -> None:
    lease = state.revoked.pop(change.fence)
    del lease.worker.revoked[change.fence]
    _give_back(state, lease, change.at)
    task = lease.task
    task.revoked = tuple(row for row in task.revoked if row.fence != change.fence)
    note(state, lease.run, task, change)


def report_refused(state: State, change: ch.ReportRefused) -> None:
    run = state.runs.get((change.tenant, change.run))
    if run is not None:
        run.told += 1
        tell(state, run, change)
