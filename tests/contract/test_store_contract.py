"""Every store keeps every promise of the store contract."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.records import RECORD_TYPES, Record, key_of
from tests.contract.adapters import ADAPTERS, Adapter
from tests.contract.bench import Promise, hold_to
from tests.contract.records import anything, changed, few
from tests.contract.samples import with_runs
from tests.contract.store_contract import PROMISES
from tests.contract.store_rows import records_come_back
from tests.contract.store_sharing import promise as sharing_promises

each_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)

SOME_RECORDS = st.lists(
    st.sampled_from(RECORD_TYPES).flatmap(lambda cls: changed(cls) | anything(cls)), max_size=6, unique_by=key_of
)


@each_adapter
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_store_keeps_its_promise(adapter: Adapter, promise: Promise) -> None:
    asyncio.run(hold_to(adapter, promise))


@pytest.mark.parametrize("adapter", [one for one in ADAPTERS if one.is_shared], ids=lambda adapter: adapter.name)
@pytest.mark.parametrize("promise", sharing_promises, ids=lambda promise: promise.__name__)
def test_a_store_that_machines_share_keeps_its_promise(adapter: Adapter, promise: Promise) -> None:
    asyncio.run(hold_to(adapter, promise))


@each_adapter
@pytest.mark.parametrize("cls", RECORD_TYPES)
@few
@given(st.data())
def test_every_generated_record_comes_back(adapter: Adapter, cls: type, data: st.DataObject) -> None:
    record = data.draw(changed(cls))
    asyncio.run(hold_to(adapter, lambda bench: records_come_back(bench, with_runs([record]))))


@each_adapter
@few
@given(SOME_RECORDS)
def test_generated_batches_come_back(adapter: Adapter, records: list[Record]) -> None:
    asyncio.run(hold_to(adapter, lambda bench: records_come_back(bench, with_runs(records))))
