"""Every store keeps every promise of the store contract."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.records import RECORD_TYPES, Record, key_of
from tests.contract import store_history, store_reigns, store_revival
from tests.contract.adapters import ADAPTERS, Adapter
from tests.contract.bench import Promise, hold_to
from tests.contract.records import anything, changed, few
from tests.contract.samples import with_runs
from tests.contract.store_contract import PROMISES
from tests.contract.store_rows import records_come_back
from tests.contract.store_sharing import promise as sharing_promises

KINDS = [one for one in ADAPTERS if not one.is_for_housekeeping]
each_kind = pytest.mark.parametrize("adapter", KINDS, ids=lambda adapter: adapter.name)
# Whose promises housekeeping has to do with.
TIDIED = (store_history.__name__, store_revival.__name__, store_reigns.__name__)
HELD_TO = [
    pytest.param(adapter, promise, id=f"{promise.__name__}-{adapter.name}")
    for promise in PROMISES
    for adapter in ADAPTERS
    if not adapter.is_for_housekeeping or promise.__module__ in TIDIED
]

SOME_RECORDS = st.lists(
    st.sampled_from(RECORD_TYPES).flatmap(lambda cls: changed(cls) | anything(cls)), max_size=6, unique_by=key_of
)


@pytest.mark.parametrize(("adapter", "promise"), HELD_TO)
def test_a_store_keeps_its_promise(adapter: Adapter, promise: Promise) -> None:
    asyncio.run(hold_to(adapter, promise))


@pytest.mark.parametrize("adapter", [one for one in KINDS if one.is_shared], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize("promise", sharing_promises, ids=lambda promise: promise.__name__)
def test_a_store_that_machines_share_keeps_its_promise(adapter: Adapter, promise: Promise) -> None:
    asyncio.run(hold_to(adapter, promise))


@each_kind
@pytest.mark.parametrize("cls", RECORD_TYPES)
@few
@given(st.data())
def test_every_generated_record_comes_back(adapter: Adapter, cls: type, data: st.DataObject) -> None:
    record = data.draw(changed(cls))
    asyncio.run(hold_to(adapter, lambda bench: records_come_back(bench, with_runs([record]))))


@each_kind
@few
@given(SOME_RECORDS)
def test_generated_batches_come_back(adapter: Adapter, records: list[Record]) -> None:
    asyncio.run(hold_to(adapter, lambda bench: records_come_back(bench, with_runs(records))))
