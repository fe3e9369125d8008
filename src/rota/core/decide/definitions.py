"""Deciding about queues, pools and schedules."""

from rota.core import commands as cm
from rota.core.bounds import (
    DELAY_MS_MAX,
    MATCH_LOG_MS_LEAST,
    PAUSES_PER_TENANT_MAX,
    POOL_SLOTS_MAX,
    PROPERTY_VALUES_MAX,
    RETRIES_MAX,
    SCHEDULE_ID_CHARS_MAX,
    TENANT_WEIGHT_MAX,
)
from rota.core.calendar import check_schedule, count_slots
from rota.core.changes import Change, PausePut, PoolDropped, PoolPut, QueuePut, ScheduleDropped, SchedulePut, TenantPut
from rota.core.decide.decision import Decision
from rota.core.decide.runs import use_graph
from rota.core.errors import Refused
from rota.core.graph import check_id, check_number, check_text
from rota.core.ids import NO_GRAPH, Millis
from rota.core.model import Tenant
from rota.core.pauses import check_scope
from rota.core.records import Pause, Schedule
from rota.core.state import State

_DURATIONS = (
    "worker_timeout_ms",
    "unservable_ms",
    "retain_completed_for_ms",
    "client_action_timeout_ms",
    "max_action_executing_timeout_ms",
)
# Instead of an interval.
NEVER = -1


def put_queue(state: State, command: cm.PutQueue, now: Millis) -> Decision:  # noqa: ARG001 - decided without time
    """Define a queue. Tasks that wait in it are read again by the new rules."""
    queue = command.queue
    check_id(queue.name, "queue.name")
    _check_tenant(command.tenant, queue.tenant)
    check_number(len(queue.properties), 0, PROPERTY_VALUES_MAX, "queue.properties")
    for name in _DURATIONS:
        check_number(getattr(queue, name), 0, DELAY_MS_MAX, f"queue.{name}")
    check_number(queue.max_job_retries, 0, RETRIES_MAX, "queue.max_job_retries")
    if queue.worker_match_logging_interval_ms != NEVER:
        path = "queue.worker_match_logging_interval_ms"
        check_number(queue.worker_match_logging_interval_ms, MATCH_LOG_MS_LEAST, DELAY_MS_MAX, path)
    names = [name for name, _ in queue.properties]
    if len(set(names)) != len(names):
        raise Refused("field.value", "a property has two rules", path="queue.properties")
    if state.queues.get((queue.tenant, queue.name)) == queue:
        return Decision([], answer=queue.name)
    return Decision([QueuePut(queue)], answer=queue.name)


def put_pool(state: State, command: cm.PutPool, now: Millis) -> Decision:
    """Define a pool. Making it smaller stops no running work; it only lets nothing new in."""
    pool = command.pool
    check_id(pool.name, "pool.name")
    _check_tenant(command.tenant, pool.tenant)
    if pool.name.startswith("@"):
        raise Refused(
            "field.value", f"{pool.name!r} starts with @", "Such names are the system's own.", path="pool.name"
        )
    for name in ("slots", "slots_per_key", "starts_per_minute"):
        check_number(getattr(pool, name), 0, POOL_SLOTS_MAX, f"pool.{name}")
    check_number(pool.burst, 1, POOL_SLOTS_MAX, "pool.burst")
    if state.pools.get((pool.tenant, pool.name)) == pool:
        return Decision([], answer=pool.name)
    return Decision([PoolPut(pool, now)], answer=pool.name)


def drop_pool(state: State, command: cm.DropPool, now: Millis) -> Decision:  # noqa: ARG001 - decided without time
    """Remove a pool. Tasks that need it wait, and say so."""
    if (command.tenant, command.name) not in state.pools or command.name.startswith("@"):
        raise Refused("pool.unknown", f"pool {command.name!r} does not exist", path="name")
    return Decision([PoolDropped(command.tenant, command.name)], answer=command.name)


def put_tenant(state: State, command: cm.PutTenant, now: Millis) -> Decision:  # noqa: ARG001 - decided without time
    """Give a tenant its share."""
    check_number(command.weight, 1, TENANT_WEIGHT_MAX, "weight")
    tenant = Tenant(tenant=command.tenant, weight=command.weight)
    if state.tenants.get(command.tenant, Tenant(tenant=command.tenant)) == tenant:
        return Decision([], answer=command.tenant)
    return Decision([TenantPut(tenant)], answer=command.tenant)


def put_schedule(state: State, command: cm.PutSchedule, now: Millis) -> Decision:
    """Define or change a schedule. A changed calendar starts now; what is older was decided by the old one.

    Slots that the old calendar still held back are not made any more, and count as missed.
    """
    check_id(command.schedule, "schedule")
    if len(command.schedule) > SCHEDULE_ID_CHARS_MAX:
        # Its runs are called `schedule@instant`, and that has to be an id too.
        raise Refused(
            "field.size",
            f"a schedule's id of {len(command.schedule)} characters leaves no room for the ids of its runs",
            f"Use at most {SCHEDULE_ID_CHARS_MAX} characters.",
            path="schedule",
        )
    changes: list[Change] = []
    digest = use_graph(state, command.tenant, command.graph, NO_GRAPH, now, changes)
    known = state.schedules.get((command.tenant, command.schedule))
    schedule = scheduled(
        known,
        Schedule(
            tenant=command.tenant,
            id=command.schedule,
            graph=digest,
            spec=command.spec,
            priority=command.priority,
            paused=command.paused,
        ),
        now,
    )
    if known == schedule:
        return Decision([], answer=command.schedule)
    changes.append(SchedulePut(schedule, now))
    return Decision(changes, answer=command.schedule)


def scheduled(known: Schedule | None, schedule: Schedule, now: Millis) -> Schedule:
    """A schedule that takes the place of one of the same name, and goes on from where that was."""
    check_schedule(schedule.spec)
    if known is None:
        return schedule
    schedule.cursor, schedule.fired, schedule.missed = known.cursor, known.fired, known.missed
    if known.cursor is not None and known.spec.instants != schedule.spec.instants:
        schedule.missed += count_slots(known.spec, known.cursor, now)
        schedule.cursor = now
    return schedule


def drop_schedule(state: State, command: cm.DropSchedule, now: Millis) -> Decision:
    """Remove a schedule; its runs go on."""
    if (command.tenant, command.schedule) not in state.schedules:
        raise Refused("schedule.unknown", f"no schedule {command.schedule!r}", path="schedule")
    return Decision([ScheduleDropped(command.tenant, command.schedule, now)], answer=command.schedule)


def _check_tenant(caller: str, named: str) -> None:
    if caller != named:
        raise Refused("field.value", f"tenant {named!r} is not the caller's", path="tenant")


def pause_scheduler(state: State, command: cm.PauseScheduler, now: Millis) -> Decision:
    """Pause the work of a scope, or go on. Doing so twice changes nothing."""
    check_scope(command.scope)
    check_text(command.reason, "reason")
    known = state.pauses.get((command.tenant, command.scope))
    if command.paused == (known is not None and known.paused):
        return Decision([], answer=command.scope)
    count = sum(pause.paused and pause.tenant == command.tenant for pause in state.pauses.values())
    if command.paused and count >= PAUSES_PER_TENANT_MAX:
        hint = "Resume some, or pause everything at once."
        raise Refused("field.size", f"{count} scopes are paused already", hint, path="scope")
    pause = Pause(command.tenant, command.scope, command.paused, now, command.actor, command.reason)
    return Decision([PausePut(pause)], answer=command.scope)


def steer_stream(state: State, command: cm.SteerStream, now: Millis) -> Decision:  # noqa: ARG001 - nothing changes here
    """Somebody asks something of a stream. Nothing of it is ours; who asked for what is kept, and that it was asked."""
    check_id(command.stream, "stream")
    check_text(command.which, "which")
    return Decision([], answer=command.stream)
