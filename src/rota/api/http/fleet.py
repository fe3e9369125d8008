"""Workers, queues and pools over HTTP: who runs what, and by which rules."""

from typing import Any

from msgspec import Struct, structs
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.bodies import EmptyBody, PoolBody, QueueBody
from rota.api.http.endpoints import Call, Endpoint, nothing, reply
from rota.core.commands import DrainWorker, DropPool, EndQuarantine, ForgetWorker, PutPool, PutQueue
from rota.core.errors import Refused
from rota.core.model import Pool, Queue
from rota.core.questions import ListPools, ListQueues, ListWorkers, PoolView, WorkerView
from rota.wire.views import PoolShape, QueueShape, WorkerShape, as_plain

WORKERS = "/api/v1/workers"
WORKER = f"{WORKERS}/{{worker}}"
QUEUES = "/api/v1/queues"
QUEUE = f"{QUEUES}/{{queue}}"
POOLS = "/api/v1/pools"
POOL = f"{POOLS}/{{pool}}"


class WorkersAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The workers that may serve the tenant."""

    workers: list[WorkerShape]  # pyright: ignore[reportInvalidTypeForm] - made from the view's own fields


class QueuesAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tenant's queues."""

    queues: list[QueueShape]  # pyright: ignore[reportInvalidTypeForm] - made from the queue's own fields


class PoolsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tenant's pools."""

    pools: list[PoolShape]


async def list_workers(call: Call) -> Response:
    """All of them."""
    found: tuple[WorkerView, ...] = await call.client.workers()
    return reply({"workers": [as_plain(view) for view in found]})


async def drain(call: Call) -> Response:
    """Give it no new work."""
    return await _drain(call, draining=True)


async def undrain(call: Call) -> Response:
    """Give it work again."""
    return await _drain(call, draining=False)


async def unquarantine(call: Call) -> Response:
    """Give it work again that rests."""
    await call.do(EndQuarantine, worker=call.path["worker"])
    return await _worker(call)


async def _drain(call: Call, *, draining: bool) -> Response:
    await call.do(DrainWorker, worker=call.path["worker"], draining=draining)
    return await _worker(call)


async def _worker(call: Call) -> Response:
    found: tuple[WorkerView, ...] = await call.client.ask(ListWorkers(tenant=call.tenant))
    for view in found:
        if (view.tenant, view.id) == (call.tenant, call.path["worker"]):
            return reply(view)
    raise Refused("worker.unknown", f"worker {call.path['worker']!r} is not there any more", path="worker")


async def forget(call: Call) -> Response:
    """Strike it off."""
    await call.do(ForgetWorker, worker=call.path["worker"])
    return nothing()


async def _queues(call: Call) -> tuple[Queue, ...]:
    return await call.client.ask(ListQueues(tenant=call.tenant))


async def list_queues(call: Call) -> Response:
    """All of them."""
    return reply({"queues": [as_plain(queue) for queue in await _queues(call)]})


async def get_queue(call: Call) -> Response:
    """One of them."""
    for queue in await _queues(call):
        if queue.name == call.path["queue"]:
            return reply(queue)
    raise Refused("queue.unknown", f"queue {call.path['queue']!r} does not exist", path="queue")


async def put_queue(call: Call) -> Response:
    """Define it."""
    fields: dict[str, Any] = structs.asdict(call.body)
    fields["properties"] = tuple(fields["properties"].items())
    queue = Queue(**fields, tenant=call.tenant, name=call.path["queue"])
    await call.do(PutQueue, queue=queue)
    return reply(queue)


async def _pools(call: Call) -> tuple[PoolView, ...]:
    return await call.client.ask(ListPools(tenant=call.tenant))


async def list_pools(call: Call) -> Response:
    """All of them."""
    return reply({"pools": [as_plain(view) for view in await _pools(call)]})


async def get_pool(call: Call) -> Response:
    """One of them."""
    for view in await _pools(call):
        if view.pool.name == call.path["pool"]:
            return reply(view)
    raise Refused("pool.unknown", f"pool {call.path['pool']!r} does not exist", path="pool")


async def put_pool(call: Call) -> Response:
    """Define it."""
    pool = Pool(**structs.asdict(call.body), tenant=call.tenant, name=call.path["pool"])
    await call.do(PutPool, pool=pool)
    return await get_pool(call)


async def drop_pool(call: Call) -> Response:
    """Remove it."""
    await call.do(DropPool, name=call.path["pool"])
    return nothing()


def _read(path: str, serve: Any, summary: str, answer: Any) -> Endpoint:
    return Endpoint(method="GET", path=path, role=Role.READER, serve=serve, summary=summary, answer=answer)


def _write(method: str, path: str, serve: Any, summary: str, answer: Any = None, body: Any = None) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        role=Role.ADMIN,
        serve=serve,
        summary=summary,
        answer=answer,
        body=body,
        status=200 if answer is not None else 204,
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    _read(WORKERS, list_workers, "List workers", WorkersAnswer),
    _write("POST", f"{WORKER}/drain", drain, "Give a worker no new work", WorkerShape, EmptyBody),
    _write("POST", f"{WORKER}/undrain", undrain, "Give a worker work again", WorkerShape, EmptyBody),
    _write("POST", f"{WORKER}/unquarantine", unquarantine, "End a worker's quarantine", WorkerShape, EmptyBody),
    _write("DELETE", WORKER, forget, "Strike a worker off the register"),
    _read(QUEUES, list_queues, "List queues", QueuesAnswer),
    _read(QUEUE, get_queue, "Show a queue", QueueShape),
    _write("PUT", QUEUE, put_queue, "Define a queue", QueueShape, QueueBody),
    _read(POOLS, list_pools, "List pools and what is taken from them", PoolsAnswer),
    _read(POOL, get_pool, "Show a pool", PoolShape),
    _write("PUT", POOL, put_pool, "Define a pool", PoolShape, PoolBody),
    _write("DELETE", POOL, drop_pool, "Remove a pool"),
)
