"""Queues and pools: how much waits, since when, what is taken of each limit, and whose turn it is."""

from typing import Any

from msgspec import Struct, structs
from starlette.responses import Response

from rota.core.commands import PutPool
from rota.core.model import AGENTS_QUEUE, QUERIES_QUEUE, Queue, Tenant
from rota.core.overview import GetOverview, Overview, QueueLine
from rota.core.questions import ListTenants, PoolView
from rota.core.state import DEFAULT_QUEUE
from rota.ui.acts.fleet import pool_offers, pool_url
from rota.ui.lists.listed import Listed, paged
from rota.ui.visits import Page, Visit, go_to
from rota.ui.words import command, in_url

QUEUES_SHOWN = 50
POOLS_SHOWN = 50
KEYS_SHOWN = 5
TENANTS_SHOWN = 50
BUILT_IN = (DEFAULT_QUEUE, AGENTS_QUEUE, QUERIES_QUEUE)


class QueuesFilter(Struct, frozen=True, kw_only=True):
    """Which of them: by words in their names; from these numbers on. `name`: that very pool comes first."""

    find: str = ""
    queue: int = 0
    pool: int = 0


class PoolQuery(Struct, frozen=True, kw_only=True):
    """Which pool somebody wants to define."""

    name: str = ""


class QueueRow(Struct, frozen=True):
    """A queue: how much waits there, and what was said of it; None if it is there without being defined."""

    name: str
    waiting: int
    oldest_at: int
    queue: Queue | None
    told: tuple[tuple[str, str], ...]


class PoolRow(Struct, frozen=True):
    """A pool, the fullest of its keys, and what may be done about it."""

    view: PoolView
    keys: list[tuple[str, int]]
    keys_left: int
    offers: list[Any]


async def read_queues(visit: Visit) -> dict[str, Any]:
    """A page of both."""
    query: QueuesFilter = visit.query
    client = visit.client
    tenant = client.line.tenant
    overview: Overview = await client.ask(GetOverview(tenant=tenant))
    words = query.find.lower().split()
    queues = paged(_queues(await client.queues(), overview.queues, words), query.queue, QUEUES_SHOWN)
    found = [view for view in await client.pools() if all(word in view.pool.name.lower() for word in words)]
    pools = paged(sorted(found, key=_by_fullness), query.pool, POOLS_SHOWN)
    rows = [_pool_row(visit, view) for view in pools.rows]

    def url(**other: Any) -> str:
        return in_url("/queues", {"find": query.find, "queue": query.queue, "pool": query.pool, **other})

    return {
        "query": query,
        "queues": queues,
        "pools": structs.replace(pools, rows=rows),
        "queues_before": url(queue=max(0, queues.first - QUEUES_SHOWN)) if queues.first else "",
        "queues_after": url(queue=queues.last) if queues.last < queues.total else "",
        "pools_before": url(pool=max(0, pools.first - POOLS_SHOWN)) if pools.first else "",
        "pools_after": url(pool=pools.last) if pools.last < pools.total else "",
        "tenants": await _tenants(visit),
        "may_define": visit.rights.may(PutPool),
        "cli": command("queues"),
        "pools_cli": command("pools"),
    }


def _queues(defined: tuple[Queue, ...], waiting: tuple[QueueLine, ...], words: list[str]) -> list[QueueRow]:
    by_name = {queue.name: queue for queue in defined}
    lines = {line.queue: line for line in waiting}
    names = dict.fromkeys((*lines, *BUILT_IN, *sorted(by_name)))
    return [
        QueueRow(
            name,
            lines[name].tasks if name in lines else 0,
            lines[name].oldest_at if name in lines else 0,
            by_name.get(name),
            _told(by_name.get(name)),
        )
        for name in names
        if all(word in name.lower() for word in words)
    ]


def _told(queue: Queue | None) -> tuple[tuple[str, str], ...]:
    """What was said of a queue that is not as usual."""
    if queue is None:
        return ()
    usual = Queue(tenant=queue.tenant, name=queue.name)
    told = [(name, str(rule)) for name, rule in queue.properties]
    for field in queue.__struct_fields__:
        value = getattr(queue, field)
        if field not in ("tenant", "name", "properties") and value != getattr(usual, field):
            told.append((field, str(value)))
    return tuple(told)


def _by_fullness(view: PoolView) -> tuple[float, str]:
    share = view.taken / view.pool.slots if view.pool.slots else 0.0
    return -share, view.pool.name


def _pool_row(visit: Visit, view: PoolView) -> PoolRow:
    keys = sorted(view.by_key.items(), key=lambda pair: (-pair[1], pair[0]))
    return PoolRow(view, keys[:KEYS_SHOWN], max(0, len(keys) - KEYS_SHOWN), pool_offers(visit, view))


async def _tenants(visit: Visit) -> list[Tenant]:
    """Shares of tenants, for those who may know of them."""
    if not visit.rights.may(ListTenants) or not visit.rights.is_of_all_tenants:
        return []
    found: tuple[Tenant, ...] = await visit.client.tenants()
    return sorted(found, key=lambda tenant: (-tenant.weight, tenant.tenant))[:TENANTS_SHOWN]


async def _define(visit: Visit) -> Response:
    """Lead to the form of the pool that was named."""
    name = visit.query.name.strip()
    return go_to(f"{pool_url(name)}/set" if name else "/queues")


DEFINE = Page(path="/queues/pools", serve=_define, summary="Define a pool of that name", query=PoolQuery)
QUEUES = Listed(
    path="/queues",
    summary="Queues and pools",
    template="queues.html",
    fragments={"queues": "queues_table.html", "pools": "pools_table.html"},
    read=read_queues,
    query=QueuesFilter,
)
