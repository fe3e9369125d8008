"""The contract can be kept, and cannot be broken unnoticed."""

import asyncio

import pytest

from rota.ports import Fenced, StoreRefused
from tests.contract.bench import Promise, hold_to
from tests.contract.broken_identity import BROKEN_IDENTITY
from tests.contract.broken_revival import BROKEN_REVIVAL
from tests.contract.broken_sharing import BROKEN_SHARING, SharedRowStore
from tests.contract.broken_stores import BROKEN as BROKEN_STORES
from tests.contract.row_store import RowAdapter, RowStore
from tests.contract.store_contract import PROMISES
from tests.contract.store_sharing import promise as sharing_promises

BROKEN = [*BROKEN_STORES, *BROKEN_REVIVAL, *BROKEN_IDENTITY]
NOTICED = (AssertionError, pytest.fail.Exception, TimeoutError, Fenced, StoreRefused)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_plain_store_keeps_every_promise(promise: Promise) -> None:
    asyncio.run(hold_to(RowAdapter(), promise))


@pytest.mark.parametrize(("make", "promise"), BROKEN, ids=[f"{make.__name__}-{p.__name__}" for make, p in BROKEN])
def test_a_broken_store_is_noticed(make: type[RowStore], promise: Promise) -> None:
    with pytest.raises(NOTICED):
        asyncio.run(hold_to(RowAdapter(make, patience_s=0.2), promise))


@pytest.mark.parametrize("promise", sharing_promises, ids=lambda promise: promise.__name__)
def test_a_plain_store_that_machines_share_keeps_every_promise(promise: Promise) -> None:
    asyncio.run(hold_to(RowAdapter(SharedRowStore), promise))


@pytest.mark.parametrize(("make", "promise"), BROKEN_SHARING, ids=[make.__name__ for make, _ in BROKEN_SHARING])
def test_a_broken_store_that_machines_share_is_noticed(make: type[RowStore], promise: Promise) -> None:
    with pytest.raises(NOTICED):
        asyncio.run(hold_to(RowAdapter(make, patience_s=0.2), promise))


def test_every_promise_has_been_seen_to_fail() -> None:
    noticed = [promise for _, promise in (*BROKEN, *BROKEN_SHARING)]
    assert [promise.__name__ for promise in (*PROMISES, *sharing_promises) if promise not in noticed] == []
