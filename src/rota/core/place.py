"""Matching: the next grant, one at a time; or that a task whose turn it is has to wait once more.

A task that arrives looks for a worker; a worker that has room looks for a task. Either way fair order chooses the task
and the allocation strategy chooses the worker. Each grant is a decision of its own, so that every one sees what the one
before it used up.
"""

from rota.core.buckets import Bucket
from rota.core.changes import Change
from rota.core.decide.leases import grant, send_back
from rota.core.ids import Millis
from rota.core.live import LiveWorker
from rota.core.match import Picked
from rota.core.model import Allocation
from rota.core.near import nearest
from rota.core.state import State


def place(state: State, now: Millis) -> list[Change]:
    """The next grant; nothing when nothing more can be placed until something changes."""
    index = state.index
    while index.fresh:
        bucket = next(iter(index.fresh))
        found = _place_bucket(state, bucket, now)
        if found:
            return found
        index.fresh.pop(bucket, None)
    while index.hungry:
        worker = next(iter(index.hungry))
        found = _place_worker(state, worker, now)
        if found:
            return found
        index.hungry.pop(worker, None)
    return []


def is_held(state: State, bucket: Bucket, now: Millis) -> bool:
    """Whether a pause or a pool holds a bucket back; if so it is looked at again when that is over."""
    if not state.hold_reasons(bucket, now):
        return False
    tenant = bucket.demand.signature.tenant
    for need in bucket.demand.signature.pools:
        state.pool_waiters.setdefault((tenant, need.pool), {})[bucket] = None
    opens_at = state.pool_opens_at(bucket, now)
    if opens_at > now:
        state.set_timer(opens_at, "rate", bucket.demand.signature)
    return True


def _place_bucket(state: State, bucket: Bucket, now: Millis) -> list[Change]:
    if not bucket.live:
        return []
    if bucket.demand.pull:
        state.index.stirred[bucket] = None
        return []
    if state.index.may_be_held(bucket) and is_held(state, bucket, now):
        return []
    worker = state.index.pick_worker(bucket, now)
    if worker is None:
        alone_at = state.index.alone_at(bucket) if bucket.demand.signature.avoid else 0
        if alone_at > now:
            state.set_timer(alone_at, "alone", bucket.demand.signature)
        return []
    # The bucket has found a worker; whose turn it is on that worker is a question of its own, unless nobody else waits.
    picked = state.index.pick_only(bucket, worker) or state.index.pick_task(
        worker, now, lambda other: is_held(state, other, now)
    )
    if picked is None:
        return []
    if picked.bucket is not bucket:
        worker = state.index.pick_worker(picked.bucket, now) or worker
    return _grant(state, picked, worker, now)


def _place_worker(state: State, worker: LiveWorker, now: Millis) -> list[Change]:
    if worker.row.capacity.pull:
        # It claims its work itself, and may want to be told that there is some.
        state.index.stirred.update(dict.fromkeys(worker.shape.waiting if worker.shape is not None else ()))
        return []
    if worker.slots_free <= 0:
        return []
    picked = state.index.pick_task(worker, now, lambda bucket: is_held(state, bucket, now))
    if picked is None:
        return []
    if picked.bucket.demand.soft:
        # It is this task's turn; that this worker asked first does not make it the one the task prefers.
        worker = state.index.pick_worker(picked.bucket, now) or worker
    return _grant(state, picked, worker, now)


def _grant(state: State, picked: Picked, worker: LiveWorker, now: Millis) -> list[Change]:
    run, task = picked.run, picked.task
    if picked.bucket.demand.allocation is Allocation.NEAREST_INPUTS:
        worker = nearest(state.index, picked, worker, now)
    overtaken = send_back(run, task, now)
    return overtaken or [grant(state, run, task, worker, state.limits.lease_ms, now, overdue=picked.overdue)]
