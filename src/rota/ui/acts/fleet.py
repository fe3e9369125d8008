"""What may be done about workers, and about pools."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from msgspec import structs

from rota.core import commands as cm
from rota.core.errors import Refused
from rota.core.ids import Millis, WorkerId
from rota.core.model import Pool
from rota.core.questions import ListWorkers, PoolView, WorkerView
from rota.ui.acts.acting import Deed, DeedsAbout, Doing, Done, Field, Offer, Sent, Subject, offers
from rota.ui.visits import Visit
from rota.ui.words import command, queues_url, worker_url

WORKER = "/workers/{worker}"
POOL = "/queues/pools/{pool}"


class Pooling(Sent, frozen=True, kw_only=True):
    """The limits of a pool. They are numbers; 0 is no limit."""

    slots: int = 0
    per_key: int = 0
    per_minute: int = 0
    burst: int = 1


# Workers.


def worker_offers(visit: Visit, view: WorkerView) -> list[Offer]:
    """What may be done about a worker now."""
    return offers(visit, _worker_subject(view, visit.now), WORKER_DEEDS)


async def read_worker(visit: Visit, name: str) -> WorkerView:
    """A worker by its id: one of the tenant's own, or one that serves it."""
    own: tuple[WorkerView, ...] = await visit.client.ask(
        ListWorkers(tenant=visit.client.line.tenant, worker=WorkerId(name))
    )
    found = own or tuple(view for view in await visit.client.workers() if view.id == name)
    if not found:
        hint = "It was struck off, or never registered here."
        raise Refused("worker.unknown", f"no worker {name!r} is registered", hint, path="worker")
    return found[0]


def _worker_subject(view: WorkerView, now: Millis) -> Subject:
    url = worker_url(view.id)
    if view.quarantined_until <= now:
        # What it rested for stays in its record.
        view = structs.replace(view, quarantine_cause="")
    standing = "draining" if view.draining else "taking work"
    return Subject(name=f"worker {view.id}", at=url, url=url, standing=standing, view=view)


async def find_worker(visit: Visit) -> Subject:
    """The worker in the path."""
    return _worker_subject(await read_worker(visit, visit.path["worker"]), visit.now)


async def _drain(doing: Doing) -> Done:
    await doing.ask(cm.DrainWorker, worker=doing.subject.view.id, draining=True)
    held = doing.subject.view.leases
    left = f"; what it has ({held}) it brings to an end" if held else ""
    return Done(f"{doing.subject.name} is given no new work{left}.")


async def _undrain(doing: Doing) -> Done:
    await doing.ask(cm.DrainWorker, worker=doing.subject.view.id, draining=False)
    return Done(f"{doing.subject.name} is given work again.")


async def _unquarantine(doing: Doing) -> Done:
    await doing.ask(cm.EndQuarantine, worker=doing.subject.view.id)
    return Done(f"{doing.subject.name} is given work again.")


async def _forget(doing: Doing) -> Done:
    await doing.ask(cm.ForgetWorker, worker=doing.subject.view.id)
    return Done(f"{doing.subject.name} was struck off.", url="/workers")


def _of_worker(verb: str) -> Callable[[Subject, Any], str]:
    return lambda subject, form: command("workers", verb, subject.view.id)  # noqa: ARG005 - one shape for all


_deed = DeedsAbout(WORKER, find_worker)
WORKER_DEEDS: tuple[Deed, ...] = (
    _deed(
        "drain",
        "Drain",
        "It is given no new work; what it has goes on.",
        command=cm.DrainWorker,
        do=_drain,
        line=_of_worker("drain"),
        objection=lambda view: "is draining already" if view.draining else "",
        is_direct=True,
    ),
    _deed(
        "undrain",
        "Give it work again",
        "It is given work again.",
        command=cm.DrainWorker,
        do=_undrain,
        line=_of_worker("undrain"),
        objection=lambda view: "" if view.draining else "is not draining",
        is_direct=True,
    ),
    _deed(
        "unquarantine",
        "End the quarantine",
        "It is given work again at once.",
        command=cm.EndQuarantine,
        do=_unquarantine,
        line=_of_worker("unquarantine"),
        objection=lambda view: "" if view.quarantine_cause else "is not in quarantine",
        is_direct=True,
    ),
    _deed(
        "forget",
        "Strike off",
        "It is taken off the register, and what it holds is given to others, at no cost. If it is still there, its "
        "reports count for nothing until it registers again.",
        command=cm.ForgetWorker,
        do=_forget,
        line=_of_worker("forget"),
        is_grave=True,
    ),
)


# Pools.


def pool_offers(visit: Visit, view: PoolView) -> list[Offer]:
    """What may be done about a pool now."""
    return offers(visit, _pool_subject(view.pool.name, view), POOL_DEEDS)


def pool_url(name: str) -> str:
    """Where deeds about a pool are."""
    return f"{queues_url()}/pools/{quote(name, safe='')}"


def _pool_subject(name: str, view: PoolView | None) -> Subject:
    standing = "not defined"
    if view is not None:
        pool = view.pool
        limits = (pool.slots, pool.slots_per_key, pool.starts_per_minute, pool.burst)
        standing = "of {} slots, {} per key, {} starts per minute, burst {}".format(*limits)
    url = f"{queues_url()}#pool-{quote(name, safe='')}"
    return Subject(name=f"pool {name}", at=pool_url(name), url=url, standing=standing, view=(name, view))


async def find_pool(visit: Visit) -> Subject:
    """The pool in the path, which need not be there yet."""
    name = visit.path["pool"]
    return _pool_subject(name, next((view for view in await visit.client.pools() if view.pool.name == name), None))


async def _set(doing: Doing) -> Done:
    name, _ = doing.subject.view
    form: Pooling = doing.form
    pool = Pool(
        tenant=doing.client.line.tenant,
        name=name,
        slots=form.slots,
        slots_per_key=form.per_key,
        starts_per_minute=form.per_minute,
        burst=form.burst,
    )
    await doing.ask(cm.PutPool, pool=pool)
    return Done(f"{doing.subject.name} is as you said.")


async def _drop(doing: Doing) -> Done:
    name, _ = doing.subject.view
    await doing.ask(cm.DropPool, name=name)
    return Done(f"{doing.subject.name} was removed.", url=queues_url())


def _limits(subject: Subject, form: Any) -> Pooling:
    _, view = subject.view
    if isinstance(form, Pooling):
        return form
    if view is None:
        return Pooling(slots=1)
    pool = view.pool
    return Pooling(slots=pool.slots, per_key=pool.slots_per_key, per_minute=pool.starts_per_minute, burst=pool.burst)


async def _limit_fields(visit: Visit, subject: Subject, form: Any) -> list[Field]:
    del visit
    said = _limits(subject, form)

    def field(name: str, label: str, note: str) -> Field:
        return Field(name=name, label=label, kind="number", value=str(getattr(said, name)), note=note, least="0")

    return [
        field("slots", "Slots", "How many tasks at once; 0 is any number."),
        field("per_key", "Per key", "How many at once for one key; 0 is any number."),
        field("per_minute", "Starts per minute", "How many may start in a minute; 0 is any number."),
        field("burst", "Burst", "How many of those may start together."),
    ]


def _set_line(subject: Subject, form: Any) -> str:
    name, _ = subject.view
    said = _limits(subject, form)
    words = ("--slots", said.slots, "--per-key", said.per_key, "--per-minute", said.per_minute, "--burst", said.burst)
    return command("pools", "set", name, *words)


_deed = DeedsAbout(POOL, find_pool)
POOL_DEEDS: tuple[Deed, ...] = (
    _deed(
        "set",
        "Set limits",
        "The limits hold from now on. What runs beyond them goes on.",
        command=cm.PutPool,
        do=_set,
        line=_set_line,
        form=Pooling,
        fields=_limit_fields,
    ),
    _deed(
        "drop",
        "Remove",
        "Tasks that name it can not run until there is one of that name again.",
        command=cm.DropPool,
        do=_drop,
        line=lambda subject, form: command("pools", "drop", subject.view[0]),  # noqa: ARG005 - one shape for all
        objection=lambda view: "" if view[1] is not None else "is not there any more",
        is_grave=True,
    ),
)
