"""Standing in the way of one store's transactions: between what it has prepared and the one that makes it real."""

from collections.abc import Awaitable, Callable
from typing import Any

from rota.stores.etcd import EtcdStore
from rota.stores.etcd import rpc_pb2 as rpc

Attempt = Callable[[rpc.TxnRequest, float], Awaitable[Any]]


def moves(request: rpc.TxnRequest, name: str) -> bool:
    """Whether a transaction puts the store's key of that name, `head` or `checkpoint`."""
    return any(each.request_put.key.endswith(f"/{name}".encode()) for each in request.success)


def stand_before(store: EtcdStore, name: str, wait: Callable[[], Awaitable[None]]) -> None:
    """Have the next transaction of a store that moves this key wait before it is sent."""

    async def held(request: rpc.TxnRequest, timeout_s: float, send: Attempt) -> Any:
        if moves(request, name):
            restore(store)
            await wait()
        return await send(request, timeout_s)

    stand_between(store, held)


def stand_between(store: EtcdStore, between: Callable[[rpc.TxnRequest, float, Attempt], Awaitable[Any]]) -> None:
    """Have every attempt of a store go through somebody else, who may send it or not."""
    restore(store)
    send: Attempt = store.client.attempt

    async def attempt(request: rpc.TxnRequest, timeout_s: float) -> Any:
        return await between(request, timeout_s, send)

    store.client.attempt = attempt  # pyright: ignore[reportAttributeAccessIssue] - on this one object, for a while


def restore(store: EtcdStore) -> None:
    """Stand in nobody's way any more."""
    vars(store.client).pop("attempt", None)
