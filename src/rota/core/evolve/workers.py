"""What changes about workers do to the state."""

from copy import copy

from rota.core import changes as ch
from rota.core.model import Mood
from rota.core.state import State


def worker_registered(state: State, change: ch.WorkerRegistered) -> None:
    row = copy(change.row)
    worker = state.workers.get((row.tenant, row.id))
    if worker is None:
        worker = state.add_worker(row, row.registered_at)
    else:
        state.index.part(worker)
        if worker.row.incarnation != row.incarnation:
            # Its claims that wait were the earlier process's.
            worker.claims.clear()
        worker.row = row
        worker.describe(state.consumable)
        state.index.join(worker)
    worker.present = worker.has_spoken = True
    worker.seen_at = row.registered_at
    worker.stalled_ms = state.stalled_ms
    worker.strikes = 0
    worker.mood = Mood.IDLE
    if row.capacity.pull:
        state.set_timer(row.registered_at + state.silence_of(worker), "forget", *worker.key)
    state.index.touch(worker, freed=True)
    state.touched.drops.pop(("Worker", row.tenant, row.id), None)
    state.touched.puts[("Worker", row.tenant, row.id)] = row


def worker_drained(state: State, change: ch.WorkerDrained) -> None:
    worker = state.workers[(change.tenant, change.worker)]
    worker.row.draining = change.draining
    state.index.touch(worker, freed=not change.draining)
    state.index.wake_avoiders()
    state.touched.puts[("Worker", change.tenant, change.worker)] = worker.row


def worker_quarantined(state: State, change: ch.WorkerQuarantined) -> None:
    worker = state.workers[(change.tenant, change.worker)]
    worker.row.quarantined_until = change.until
    worker.row.quarantine_cause = change.cause
    worker.strikes = 0
    if change.until:
        state.set_timer(change.until, "rested", *worker.key)
    else:
        state.drop_timer("rested", *worker.key)
        state.index.touch(worker, freed=True)
    state.index.wake_avoiders()
    state.touched.puts[("Worker", change.tenant, change.worker)] = worker.row


def worker_gone(state: State, change: ch.WorkerGone) -> None:
    key = (change.tenant, change.worker)
    worker = state.workers.pop(key)
    assert not (worker.leases or worker.revoked), "a worker that holds leases cannot go; they are returned first"
    worker.row.gone_at = change.at
    state.index.part(worker)
    for kind in ("worker", "forget", "rested"):
        state.drop_timer(kind, *key)
    state.touched.puts.pop(("Worker", *key), None)
    state.touched.drops[("Worker", *key)] = None
