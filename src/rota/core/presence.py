"""Memory only: who was heard from, and until when its leases run.

None of this is written. A renewal is a promise by this coordinator in this epoch; the next one gives every lease a full
lease time before it ends any (docs/protocol.md, P-LEASE).
"""

from collections.abc import Iterator

from rota.core.buckets import Bucket
from rota.core.ids import Fence, Millis
from rota.core.live import Lease, LiveWorker
from rota.core.model import Mood
from rota.core.state import State

REGRANT_LOOK_MS: Millis = 1_000


def heard_from(state: State, worker: LiveWorker, now: Millis) -> None:
    """A worker spoke: it may be given work."""
    was_quiet = not worker.present or now - worker.seen_at > state.silence_ms
    worker.present = worker.has_spoken = True
    worker.seen_at = now
    worker.stalled_ms = state.stalled_ms
    if was_quiet:
        state.index.touch(worker, freed=True)


def went_away(state: State, worker: LiveWorker, now: Millis, *, hung_up: bool) -> None:
    """A worker's stream is gone. Its leases are not: losing the stream is not losing the worker.

    A worker that hung up may come back as another incarnation at once; one that we lost sight of is taken for alive
    for two more beats, so that a copy of its folder cannot slip in.
    """
    worker.present = False
    if hung_up:
        worker.seen_at = min(worker.seen_at, now - 2 * state.limits.beat_ms - 1)
    state.index.touch(worker, freed=False)
    state.set_timer(now + state.limits.forget_worker_ms, "forget", *worker.key)
    state.index.wake_avoiders()


def leaves(state: State, worker: LiveWorker, now: Millis) -> None:
    """A worker says that it is stopping: it keeps what it has and is given nothing more."""
    worker.seen_at = now
    if worker.present:
        worker.present = False
        state.index.touch(worker, freed=False)
        state.index.wake_avoiders()


def is_idle(worker: LiveWorker, now: Millis) -> bool:
    """Whether a session could begin something new at once."""
    row = worker.row
    is_free = worker.present and worker.mood is Mood.IDLE and worker.slots_free > 0
    return is_free and not row.draining and row.quarantined_until <= now


def idle_sessions(bucket: Bucket, now: Millis) -> Iterator[LiveWorker]:
    """Idle sessions that suit a bucket, those that it prefers first, then the longest idle."""
    for _, shape in bucket.shapes:
        for group in shape.idle.values():
            for worker in group.values():
                if is_idle(worker, now):
                    yield worker


def take_mood(state: State, worker: LiveWorker, mood: Mood) -> None:
    """A pull worker says what it is up to. One that is free again may be told of work."""
    was, worker.mood = worker.mood, mood
    if mood is Mood.IDLE and was is not Mood.IDLE:
        state.index.touch(worker, freed=True)


def renew_all(state: State, worker: LiveWorker, now: Millis) -> None:
    """Every lease the worker holds lasts a full lease time from now."""
    clock = now - state.stalled_ms
    for lease in worker.leases.values():
        if lease.confirmed and lease.task.incarnation == worker.row.incarnation:
            lease.expires_at = max(lease.expires_at, clock + lease.task.lease_ms)


def renew_one(state: State, fence: Fence, until: Millis, now: Millis) -> None:
    """A pull worker's lease was renewed; it may also have been shortened."""
    lease = state.leases.get(fence)
    if lease is not None:
        lease.expires_at = until
        state.set_timer(until + state.stalled_ms, "worker", *lease.worker.key)
        if lease.unheard_at:
            # It spoke of this very attempt. The timer that is set comes up too early, and is set again then.
            heard_ms = state.queue_of(lease.run, lease.task).max_action_executing_timeout_ms
            lease.unheard_at = max(lease.unheard_at, now - state.stalled_ms + heard_ms)


def is_regrantable(lease: Lease) -> bool:
    """Whether another worker may have a lease's task as soon as its own is silent for too long."""
    return lease.run.graph.graph.regrant_when_silent and lease.bucket.demand.worker_timeout_ms > 0


def silent_at(lease: Lease) -> Millis:
    """When its worker will have been silent for too long, in time during which the coordinator ran."""
    return lease.expires_at - lease.task.lease_ms + lease.bucket.demand.worker_timeout_ms + 1


def watch_again(state: State, worker: LiveWorker, now: Millis) -> None:
    """Look at a worker's leases again when the first of them could have ended."""
    if not (worker.leases or worker.revoked):
        worker.watched = False
        return
    ends = [lease.expires_at for lease in (*worker.leases.values(), *worker.revoked.values())]
    # A silent worker whose task no other can have now keeps it, and is looked at again.
    soon = now - state.stalled_ms + REGRANT_LOOK_MS
    ends += [max(silent_at(lease), soon) for lease in worker.leases.values() if is_regrantable(lease)]
    first = min(ends) + state.stalled_ms
    state.set_timer(max(now + 1, min(first, now + state.limits.dispatch_ms)), "worker", *worker.key)


def stalled(state: State, lost_ms: Millis) -> None:
    """The coordinator did not run for a while; nobody is punished for it."""
    state.stalled_ms += lost_ms
