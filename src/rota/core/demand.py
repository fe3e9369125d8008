"""What a task asks of a worker, and the one predicate that compares the two.

`fits` serves matching, claims, wakes, spawning and `why`: a worker may have the task exactly when there are no
reasons. The order of the checks is the order in which a person would want to hear them.
"""

from collections.abc import Iterable

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Millis, WorkerKey
from rota.core.model import Allocation, Capacity, Pairs, PoolNeed, PropertyRule, Queue
from rota.core.reasons import Reason, Reasons, reason


class Signature(Struct, frozen=True):
    """What makes two waiting tasks interchangeable for a worker."""

    tenant: str
    queue: str
    kind: str
    requires: Pairs = ()
    pools: tuple[PoolNeed, ...] = ()
    # The worker on which the task was interrupted; empty if none.
    avoid: WorkerKey | tuple[()] = ()


class Demand(Struct, frozen=True):
    """A signature as its queue reads it: each requirement sorted by how it is compared."""

    signature: Signature
    minimum: tuple[tuple[str, int], ...] = ()
    exact: Pairs = ()
    loose: Pairs = ()
    soft: Pairs = ()
    pull: bool = False
    worker_timeout_ms: int = 0
    allocation: Allocation = Allocation.LEAST_RECENTLY_USED


def parse_quantity(value: str) -> int | None:
    """A plain decimal number, or None. Signs, fractions and units are not numbers here."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 18 else None


def read_demand(signature: Signature, queue: Queue, *, path: str = "requires") -> Demand:
    """Sort a task's requirements by the rules of its queue; an unreadable one is refused at the door."""
    rules = dict(queue.properties)
    minimum: dict[str, int] = {}
    exact: list[tuple[str, str]] = []
    loose: list[tuple[str, str]] = []
    soft: list[tuple[str, str]] = []
    for name, value in signature.requires:
        rule = rules.get(name)
        if rule is PropertyRule.MINIMUM:
            amount = parse_quantity(value)
            if amount is None:
                raise Refused(
                    "requirement.value",
                    f"queue {queue.name!r} compares {name!r} as a number, and {value!r} is not a plain decimal",
                    "Write an integer without sign, fraction or unit.",
                    path=f"{path}.{name}",
                )
            minimum[name] = max(amount, minimum.get(name, 0))
        elif rule is PropertyRule.EXACT:
            exact.append((name, value))
        elif rule is PropertyRule.PRIORITY:
            soft.append((name, value))
        elif rule is None:
            loose.append((name, value))
    return Demand(
        signature=signature,
        minimum=tuple(sorted(minimum.items())),
        exact=tuple(exact),
        loose=tuple(loose),
        soft=tuple(soft),
        pull=queue.pull,
        worker_timeout_ms=queue.worker_timeout_ms,
        allocation=queue.allocation,
    )


def property_values(capacity: Capacity) -> dict[str, tuple[str, ...]]:
    """A worker's properties by name, each with all its values."""
    values: dict[str, tuple[str, ...]] = {}
    for name, value in capacity.properties:
        values[name] = (*values.get(name, ()), value)
    return values


def totals_of(values: dict[str, tuple[str, ...]], names: Iterable[str]) -> dict[str, int]:
    """How much a worker has of what is counted; what it does not say in numbers is not there."""
    totals: dict[str, int] = {}
    for name in names:
        amounts = [parse_quantity(value) for value in values.get(name, ())]
        if amounts and all(amount is not None for amount in amounts):
            totals[name] = max(amount for amount in amounts if amount is not None)
    return totals


def lasting_reasons(demand: Demand, capacity: Capacity) -> Reasons:
    """Why a worker that is described like this could never have a task, however idle it were."""
    values = property_values(capacity)
    totals = totals_of(values, (name for name, _ in demand.minimum))
    return (*static_reasons(demand, capacity, values), *total_reasons(demand, totals))


def static_reasons(demand: Demand, capacity: Capacity, values: dict[str, tuple[str, ...]]) -> Reasons:
    """What no waiting would change, quantities aside: queue, tenant, kind and properties."""
    signature = demand.signature
    found: list[Reason] = []
    if capacity.queues and signature.queue not in capacity.queues:
        found.append(reason("worker.queue", f"serves {', '.join(capacity.queues)}", queue=signature.queue))
    if capacity.tenants and signature.tenant not in capacity.tenants:
        found.append(reason("worker.tenant", "serves other tenants", tenant=signature.tenant))
    if capacity.kinds and signature.kind not in capacity.kinds:
        found.append(reason("worker.kind", f"runs {', '.join(capacity.kinds)}", kind=signature.kind))
    if capacity.pull != demand.pull:
        found.append(reason("worker.pull", "claims its work itself" if capacity.pull else "is assigned its work"))
    for name, value in demand.exact:
        have = values.get(name, ())
        if value not in have:
            shown = ", ".join(have) or "nothing"
            found.append(reason("worker.incompatible", f"{name} is {shown}, not {value}", property=name, needs=value))
    for name, value in demand.loose:
        have = values.get(name)
        if have is not None and value not in have:
            text = f"{name} is {', '.join(have)}, not {value}"
            found.append(reason("worker.incompatible", text, property=name, needs=value))
    return tuple(found)


def total_reasons(demand: Demand, totals: dict[str, int]) -> Reasons:
    """Which quantities the worker could not offer even if it were idle."""
    return tuple(
        reason("worker.incompatible", _short_of(name, totals.get(name), need), property=name, needs=need)
        for name, need in demand.minimum
        if totals.get(name, -1) < need
    )


def _short_of(name: str, have: int | None, need: int) -> str:
    return f"{name} is {have} in all, {need} needed" if have is not None else f"{name} is nothing, {need} needed"


def free_reasons(demand: Demand, free: dict[str, int]) -> Reasons:
    """Which quantities are taken by other work at the moment."""
    return tuple(
        reason("worker.capacity", f"{free.get(name, 0)} {name} free, {need} needed", property=name, needs=need)
        for name, need in demand.minimum
        if free.get(name, -1) < need
    )


def score(demand: Demand, values: dict[str, tuple[str, ...]]) -> int:
    """How many soft preferences a worker meets; a preference never excludes."""
    return sum(1 for name, value in demand.soft if value in values.get(name, ()))


def is_silent(demand: Demand, seen_at: Millis, now: Millis) -> bool:
    """Whether a worker has been quiet for longer than the queue lets it be and still be given work."""
    return demand.worker_timeout_ms > 0 and now - seen_at > demand.worker_timeout_ms
