"""Deciding about workers: who they are, draining, forgetting."""

from rota.core import commands as cm
from rota.core.bounds import CAPACITY_NAMES_MAX, LEASE_MS_MAX, PROPERTY_VALUES_MAX, SILENCE_MS_LEAST, WORKER_SLOTS_MAX
from rota.core.changes import Change, WorkerDrained, WorkerGone, WorkerQuarantined, WorkerRegistered
from rota.core.decide.decision import Decision
from rota.core.decide.leases import returned, revoked_ended
from rota.core.demand import parse_quantity
from rota.core.errors import Refused
from rota.core.graph import check_id, check_number, check_text
from rota.core.ids import Millis, WorkerId
from rota.core.live import LiveWorker
from rota.core.model import Capacity
from rota.core.records import Worker
from rota.core.state import State


def check_capacity(state: State, capacity: Capacity) -> None:
    """What a worker says of itself can be compared by every queue that may look at it."""
    check_number(capacity.slots, 1, WORKER_SLOTS_MAX, "capacity.slots")
    check_number(len(capacity.properties), 0, PROPERTY_VALUES_MAX, "capacity.properties")
    if capacity.silence_ms:
        check_number(capacity.silence_ms, SILENCE_MS_LEAST, LEASE_MS_MAX, "capacity.silence_ms")
    for name in ("queues", "tenants", "kinds"):
        check_number(len(getattr(capacity, name)), 0, CAPACITY_NAMES_MAX, f"capacity.{name}")
    for text in (*capacity.queues, *capacity.tenants, *capacity.kinds):
        check_text(text, "capacity")
    for name, value in capacity.properties:
        check_id(name, "capacity.properties")
        check_text(value, f"capacity.properties.{name}")
        if name in state.consumable and parse_quantity(value) is None:
            raise Refused(
                "requirement.value",
                f"a queue counts {name!r}, and the worker says {value[:40]!r}",
                "Write an integer without sign, fraction or unit.",
                path=f"capacity.properties.{name}",
            )


def register(state: State, command: cm.RegisterWorker, now: Millis) -> Decision:
    """A worker joins. A new incarnation returns what the old one held; a second live one is refused."""
    check_id(command.worker, "worker")
    check_id(command.incarnation, "incarnation")
    check_capacity(state, command.capacity)
    known = state.workers.get((command.tenant, command.worker))
    row = Worker(
        tenant=command.tenant,
        id=command.worker,
        incarnation=command.incarnation,
        capacity=command.capacity,
        registered_at=now,
        draining=known.row.draining if known else False,
        quarantined_until=known.row.quarantined_until if known else 0,
        owner=command.owner,
        quarantine_cause=known.row.quarantine_cause if known else "",
    )
    changes: list[Change] = []
    if known is not None:
        check_owner(known, command.owner)
    if known is not None and known.row.incarnation != command.incarnation:
        # Who claims work has one process at a time, and knows best which: the newest.
        if is_live(state, known, now) and not known.row.capacity.pull:
            raise Refused(
                "worker.duplicate",
                f"worker {command.worker!r} is alive as incarnation {known.row.incarnation[:12]}",
                "Give each worker a folder, and so an identity, of its own.",
                path="worker",
            )
        changes += [returned(lease, "its worker restarted", now) for lease in known.leases.values()]
        changes += [revoked_ended(lease, now) for lease in known.revoked.values()]
    if changes or known is None or known.row != row_as_known(row, known):
        changes.append(WorkerRegistered(row))
    return Decision(changes, answer=command.worker)


def row_as_known(row: Worker, known: LiveWorker) -> Worker:
    """`row` with the time of the first registration, to see whether anything else is new."""
    return Worker(
        row.tenant,
        row.id,
        row.incarnation,
        row.capacity,
        known.row.registered_at,
        row.draining,
        row.quarantined_until,
        known.row.gone_at,
        row.owner,
        row.quarantine_cause,
    )


def check_owner(worker: LiveWorker, owner: str) -> None:
    """Refuse whoever has another token than the one that registered a worker."""
    if worker.row.owner != owner:
        hint = "Register under an id of your own."
        raise Refused("session.foreign", f"{worker.row.id!r} was registered with another token", hint, path="worker")


def is_live(state: State, worker: LiveWorker, now: Millis) -> bool:
    """Whether a worker has spoken within two beats and has not hung up since.

    After an election the holder of leases has two beats to show itself before another may take its name.
    """
    if not worker.has_spoken:
        return bool(worker.leases) and now - state.born_at <= 2 * state.limits.beat_ms
    return now - worker.seen_at <= 2 * state.limits.beat_ms


def drain(state: State, command: cm.DrainWorker, now: Millis) -> Decision:  # noqa: ARG001 - decided without time
    """Draining twice changes nothing."""
    worker = _find(state, command.tenant, command.worker)
    if worker.row.draining == command.draining:
        return Decision([], answer=command.worker)
    return Decision([WorkerDrained(*worker.key, command.draining)], answer=command.worker)


def end_quarantine(state: State, command: cm.EndQuarantine, now: Millis) -> Decision:
    """A worker that does not rest is left as it is."""
    worker = _find(state, command.tenant, command.worker)
    if worker.row.quarantined_until <= now:
        return Decision([], answer=command.worker)
    return Decision([WorkerQuarantined(*worker.key, 0)], answer=command.worker)


def forget(state: State, command: cm.ForgetWorker, now: Millis) -> Decision:
    """Strike a worker off; its leases are returned unspent."""
    worker = _find(state, command.tenant, command.worker)
    return Decision(gone(worker, now, "its worker was struck off"), answer=command.worker)


def gone(worker: LiveWorker, now: Millis, cause: str) -> list[Change]:
    """Return everything a worker holds, then forget it."""
    changes: list[Change] = [returned(lease, cause, now) for lease in worker.leases.values()]
    changes += [revoked_ended(lease, now) for lease in worker.revoked.values()]
    changes.append(WorkerGone(*worker.key, now))
    return changes


def _find(state: State, tenant: str, name: WorkerId) -> LiveWorker:
    worker = state.workers.get((tenant, name))
    if worker is None:
        raise Refused("worker.unknown", f"no worker {name!r} is registered", path="worker")
    return worker
