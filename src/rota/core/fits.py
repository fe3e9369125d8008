"""The one predicate: why a worker may not have a task. No reasons means that it may."""

from rota.core.demand import Demand, free_reasons, is_silent, static_reasons, total_reasons
from rota.core.ids import Millis
from rota.core.live import LiveWorker
from rota.core.reasons import Reason, Reasons, reason
from rota.core.spans import show_span


def dynamic_reasons(demand: Demand, worker: LiveWorker, now: Millis, *, alone: bool = False) -> Reasons:
    """What holds this worker back at the moment. `alone`: no other worker could take the work instead."""
    row = worker.row
    if (
        worker.present
        and worker.slots_free > 0
        and not row.draining
        and row.quarantined_until <= now
        and not demand.signature.avoid
        and not is_silent(demand, worker.seen_at, now)
    ):
        return free_reasons(demand, worker.free) if demand.minimum else ()
    found: list[Reason] = []
    if not worker.present:
        found.append(reason("worker.absent", "is registered but away", worker=row.id))
    elif is_silent(demand, worker.seen_at, now):
        found.append(reason("worker.silent", f"has not spoken for {show_span(now - worker.seen_at)}", worker=row.id))
    if row.draining:
        found.append(reason("worker.draining", "takes no new work", worker=row.id))
    if row.quarantined_until > now:
        text = f"rests for {show_span(row.quarantined_until - now)}: {row.quarantine_cause}"
        found.append(reason("worker.quarantined", text, worker=row.id))
    if demand.signature.avoid == worker.key and not alone:
        found.append(reason("worker.avoided", "lost this task before", worker=row.id))
    if worker.slots_free <= 0:
        found.append(reason("worker.slots", f"holds {len(worker.leases) + len(worker.revoked)} leases", worker=row.id))
    return (*found, *free_reasons(demand, worker.free))


def fits(demand: Demand, worker: LiveWorker, now: Millis, *, alone: bool = False) -> Reasons:
    """Why this worker may not have the work now; nothing means it may. The one predicate of matching and of why."""
    return (
        *static_reasons(demand, worker.row.capacity, worker.values),
        *total_reasons(demand, worker.totals),
        *dynamic_reasons(demand, worker, now, alone=alone),
    )
