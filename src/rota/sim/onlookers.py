"""Checks of a coordinator's memory: what an onlooker would find odd although no commit shows it."""

from rota.control.loop import Loop
from rota.core.fits import fits
from rota.core.ids import Millis
from rota.core.images import all_records
from rota.core.records import Key, Record, key_of
from rota.core.state import State
from rota.core.states import QUEUED, UP_FOR_RESCHEDULE, UP_FOR_RETRY, RunState
from rota.sim.broken import Broken

LATE_MS = 5_000


def check_idle(loop: Loop) -> None:
    """P-IDLE: when the loop rests, no task waits that a worker with room could have."""
    state, now = loop.state, loop.turned_at
    if loop.work >= loop.budget or loop.replay or now > loop.proven_until:
        return
    if state.index.fresh or state.index.hungry:
        return
    for run in state.runs.values():
        if run.row.state is not RunState.RUNNING or not run.is_runnable:
            continue
        for task in run.tasks.values():
            if task.state is not QUEUED:
                continue
            bucket = state.bucket_of(run, task)
            if bucket.demand.pull or state.pool_reasons(bucket, now):
                continue
            alone = state.index.is_alone(bucket, now)
            for worker in state.workers.values():
                if not fits(bucket.demand, worker, now, alone=alone):
                    raise Broken(f"P-IDLE: {run.key}/{task.idx} waits while {worker.row.id} could run it")


def check_late(state: State, now: Millis) -> None:
    """P-LATE: what has a time is done at that time, not only when the safety net comes by."""
    if now - state.born_at < 2 * LATE_MS:
        return
    for run in state.runs.values():
        if run.row.state is not RunState.RUNNING or run.row.stopping is not None or run.row.fault:
            continue
        if run.row.deadline_at and run.row.deadline_at + LATE_MS < now:
            raise Broken(f"P-LATE: {run.key} is past its deadline by {now - run.row.deadline_at} ms")
        for task in run.tasks.values():
            if task.state in (UP_FOR_RETRY, UP_FOR_RESCHEDULE) and task.due_at + LATE_MS < now:
                raise Broken(f"P-LATE: {run.key}/{task.idx} is {task.state}, {now - task.due_at} ms after its time")


def check_recovery(loop: Loop, dead: dict[str, Millis]) -> None:
    """P-RECOVER: what a dead worker held can be granted again within its lease."""
    state, now = loop.state, loop.turned_at
    if state.stalled_ms or now > loop.proven_until:
        return
    for lease in state.leases.values():
        died_at = dead.get(lease.task.incarnation)
        if died_at is None:
            continue
        patience_ms = lease.task.lease_ms + state.limits.dispatch_ms + LATE_MS
        if now - max(died_at, state.born_at, lease.granted_at) > patience_ms:
            raise Broken(f"P-RECOVER: {lease.run.key}/{lease.task.idx} is still leased to a worker dead for long")


def check_disk(state: State, disk: dict[Key, Record]) -> None:
    """P-LOAD: memory and disk agree whenever nothing is on its way, so loading would give the same state."""
    memory = {key_of(record): record for record in all_records(state)}
    if memory != disk:
        key = next(key for key in {**memory, **disk} if memory.get(key) != disk.get(key))
        raise Broken(f"P-LOAD: {key} is {memory.get(key)} in memory and {disk.get(key)} on disk")
