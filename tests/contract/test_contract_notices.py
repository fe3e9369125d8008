"""The contract can be kept, and cannot be broken unnoticed."""

import asyncio

import pytest

from rota.ports import Fenced, StoreRefused
from tests.contract.bench import Promise, hold_to
from tests.contract.broken_stores import BROKEN
from tests.contract.row_store import RowAdapter, RowStore
from tests.contract.store_contract import PROMISES

NOTICED = (AssertionError, pytest.fail.Exception, TimeoutError, Fenced, StoreRefused)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_plain_store_keeps_every_promise(promise: Promise) -> None:
    asyncio.run(hold_to(RowAdapter(), promise))


@pytest.mark.parametrize(("make", "promise"), BROKEN, ids=[f"{make.__name__}-{p.__name__}" for make, p in BROKEN])
def test_a_broken_store_is_noticed(make: type[RowStore], promise: Promise) -> None:
    with pytest.raises(NOTICED):
        asyncio.run(hold_to(RowAdapter(make, patience_s=0.2), promise))


def test_every_promise_has_been_seen_to_fail() -> None:
    assert [promise.__name__ for promise in PROMISES if promise not in [noticed for _, noticed in BROKEN]] == []
