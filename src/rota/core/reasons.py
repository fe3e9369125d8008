"""Reasons: why a task waits, as data. The rules that make it wait produce them; `rota.core.why` collects them."""

from msgspec import Struct


class Reason(Struct, frozen=True):
    """One cause of waiting: a stable code, a sentence, and the ids and numbers it speaks of."""

    code: str
    text: str
    about: tuple[tuple[str, str], ...] = ()


Reasons = tuple[Reason, ...]

# Every code a Reason may carry, with what it means; docs/reference/reasons.md is checked against this table.
REASON_CODES: dict[str, str] = {
    "after.failed": "A run that has to succeed first has not.",
    "after.waiting": "A run that has to succeed first has not ended.",
    "approval.waiting": "A person has to approve of the run first.",
    "attempt.assigned": "A worker was given the task and has not said that it started.",
    "attempt.running": "The task is running.",
    "attention.parked": "The task was parked and waits for a person.",
    "cascade.pending": "The decision is made; the task is moved in one of the next turns.",
    "expand.unknown": "The number of tasks is not known yet.",
    "order.turn": "Nothing holds the task but its turn.",
    "past.waiting": "The same task has not succeeded in the run before this one.",
    "pool.full": "A pool has no slot left.",
    "pool.gone": "A pool the task needs does not exist any more.",
    "pool.too_small": "A pool has fewer slots in all than the task needs.",
    "pool.rate": "A pool's rate allows no start yet.",
    "queue.gone": "The queue the task waits in does not exist any more.",
    "redelivery.waiting": "The task was claimed and lost before; it is offered again later.",
    "reschedule.waiting": "The task asked to be tried again at a later time.",
    "retry.cooldown": "The task waits before its next attempt.",
    "run.cancelling": "The run is being cancelled.",
    "run.faulted": "The run met an error of the scheduler itself and is held for inspection.",
    "run.paused": "The run is paused.",
    "run.queued": "The run has not started: its graph has as many active runs as it may.",
    "scheduler.paused": "Work of this sort is paused.",
    "upstream.waiting": "Upstream tasks have not ended.",
    "worker.absent": "A worker that could run the task is registered but away.",
    "worker.avoided": "The task was interrupted on this worker and tries another first.",
    "worker.busy": "Workers that could run the task are busy.",
    "worker.capacity": "The worker has not enough of something free.",
    "worker.draining": "The worker takes no new work.",
    "worker.incompatible": "A property of the worker does not match.",
    "worker.kind": "The worker does not run this kind of work.",
    "worker.none_match": "No registered worker could ever run the task.",
    "worker.none_registered": "No worker is registered.",
    "worker.pull": "The task waits to be claimed; workers of this sort are not assigned work.",
    "worker.quarantined": "The worker failed too often and rests.",
    "worker.queue": "The worker does not serve this queue.",
    "worker.silent": "The worker has not spoken for too long.",
    "worker.slots": "The worker holds as many leases as it may.",
    "worker.tenant": "The worker does not serve this tenant.",
    "workflow.paused": "The workflow is paused.",
}


def reason(code: str, text: str, **about: object) -> Reason:
    """A Reason whose code is in the table."""
    assert code in REASON_CODES, f"reason code {code!r} is not in the table"
    return Reason(code, text, tuple((name, str(value)) for name, value in about.items()))
