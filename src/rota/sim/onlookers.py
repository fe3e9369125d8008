"""Checks of a coordinator's memory: what an onlooker would find odd although no commit shows it."""

from rota.control.loop import Loop
from rota.core.calendar import due_slots
from rota.core.fits import fits
from rota.core.ids import Millis
from rota.core.images import all_records
from rota.core.live import LiveRun
from rota.core.order import TENANT_PRICE
from rota.core.records import Key, Record, Schedule, key_of
from rota.core.state import State
from rota.core.states import QUEUED, RUN_TERMINAL, UP_FOR_RESCHEDULE, UP_FOR_RETRY, RunState
from rota.sim.broken import Broken

LATE_MS = 5_000


def check_idle(loop: Loop) -> None:
    """P-IDLE: when the loop rests, no task waits that a worker with room could have."""
    state, now = loop.state, loop.turned_at
    if loop.work >= loop.budget or loop.replay or now > loop.proven_until:
        return
    if state.index.fresh or state.index.hungry:
        return
    _check_waiting(state)
    for run in state.runs.values():
        if run.row.state is not RunState.RUNNING or not run.is_runnable:
            continue
        for task in run.tasks.values():
            if task.state is not QUEUED:
                continue
            bucket = state.bucket_of(run, task)
            if bucket.demand.pull or state.hold_reasons(bucket, now):
                continue
            alone = state.index.is_alone(bucket, now)
            for worker in state.workers.values():
                if not fits(bucket.demand, worker, now, alone=alone):
                    raise Broken(f"P-IDLE: {run.key}/{task.idx} waits while {worker.row.id} could run it")


def _check_waiting(state: State) -> None:
    """P-IDLE: no run waits for a cap that has room, whatever was counted; a backfill's take none of it."""
    for name, waiting in state.waiting_runs.items():
        runs = (state.runs[key] for key in waiting)
        first = next((run for run in runs if not (run.is_held or run.row.fault)), None)
        if first is None or name in state.starts:
            continue
        cap = 0 if first.row.backfill else first.graph.graph.max_active_runs
        active = sum(
            run.row.state is RunState.RUNNING and not run.row.backfill
            for run in state.runs.values()
            if (run.row.tenant, run.row.name) == (first.row.tenant, first.row.name)
        )
        if not cap or active < cap:
            raise Broken(f"P-IDLE: {first.key} waits to start with {active} of {cap} runs active")


def check_late(state: State, now: Millis) -> None:
    """P-LATE: what has a time is done at that time, not only when the safety net comes by."""
    if now - state.born_at < 2 * LATE_MS:
        return
    for schedule in state.schedules.values():
        _check_due(state, schedule, now)
    for run in state.runs.values():
        _check_archived(state, run)
        if run.row.state is not RunState.RUNNING or run.row.stopping is not None or run.row.fault:
            continue
        if run.row.deadline_at and run.row.deadline_at + LATE_MS < now:
            raise Broken(f"P-LATE: {run.key} is past its deadline by {now - run.row.deadline_at} ms")
        for task in run.tasks.values():
            if task.state in (UP_FOR_RETRY, UP_FOR_RESCHEDULE) and task.due_at + LATE_MS < now:
                raise Broken(f"P-LATE: {run.key}/{task.idx} is {task.state}, {now - task.due_at} ms after its time")


def _check_due(state: State, schedule: Schedule, now: Millis) -> None:
    """P-LATE, for the slots of a calendar that is not paused and has room."""
    graph = state.graphs[(schedule.tenant, schedule.graph)].graph
    workflow = state.workflows.get((schedule.tenant, graph.name)) if schedule.version else None
    if schedule.paused or (workflow is not None and workflow.paused):
        return
    active = state.scheduled_runs.get((schedule.tenant, schedule.id), 0)
    found = due_slots(schedule.spec, schedule.cursor, now - LATE_MS, active, 1)
    looked_at = state.armed.get(("schedule", schedule.tenant, schedule.id), 0)
    # A run that ended in this turn has just made room: the calendar is looked at in the next one.
    if found.run and not now - LATE_MS < looked_at <= now:
        raise Broken(f"P-LATE: {(schedule.tenant, schedule.id)} has not made the run of {found.run[0]} by {now}")


def _check_archived(state: State, run: LiveRun) -> None:
    """P-LATE, for runs that have ended and on which nobody depends: they go to history, or have a time to."""
    has_ended = run.row.state in RUN_TERMINAL and not (run.leased or run.is_kept)
    if has_ended and ("archive", *run.key) not in state.armed:
        raise Broken(f"P-LATE: {run.key} has ended at {run.row.ended_at}, and no time is set for its archiving")


def check_weights(state: State) -> None:
    """P-WEIGHT: every account of a tenant is charged by the tenant's weight."""
    for (_, name), account in state.books.tenants.items():
        tenant = state.tenants.get(name)
        price = TENANT_PRICE // (tenant.weight if tenant is not None else 1)
        if account.price != price:
            raise Broken(f"P-WEIGHT: tenant {name} pays {account.price} for a millisecond, not {price}")


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
