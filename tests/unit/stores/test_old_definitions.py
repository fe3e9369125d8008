"""Definitions of runs in history: kept for as long as a run there was made of them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.core.ids import Epoch
from rota.core.model import Graph, TaskSpec
from rota.core.records import Batch, GraphRecord, Run, Story, key_of
from rota.core.states import RunState
from rota.ports import Candidate, Store
from rota.stores.memory import MemoryStore
from rota.stores.sqlite import SqliteStore

ARCHIVE = [("t", "run")]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    sqlite = SqliteStore(tmp_path)
    yield sqlite
    sqlite.close()


async def begin(store: Store) -> tuple[Epoch, GraphRecord]:
    epoch = await store.elect(Candidate("a test"))
    assert epoch is not None
    record = GraphRecord("t", "digest", Graph(name="g", tasks=(TaskSpec(id="only"),)))
    run = Run("t", "run", "digest", "g", state=RunState.SUCCESS, created_at=1, ended_at=2)
    await store.commit(epoch, Batch([record, run], [], [], [Story("t", "run", 1, 0, 1, b"told")]))
    return epoch, record


@pytest.mark.parametrize("together", [True, False], ids=["in the same commit", "in a later commit"])
def test_a_definition_that_is_dropped_after_its_run_was_archived_is_kept(store: Store, together: bool):
    async def use() -> None:
        epoch, record = await begin(store)
        if together:
            await store.commit(epoch, Batch([], [key_of(record)], ARCHIVE, []))
        else:
            await store.commit(epoch, Batch([], [], ARCHIVE, []))
            await store.commit(epoch, Batch([], [key_of(record)], [], []))
        assert await store.graph("t", "digest") == record.graph

    asyncio.run(use())


def test_a_definition_that_no_run_was_made_of_is_gone(store: Store):
    async def use() -> None:
        epoch, record = await begin(store)
        await store.commit(epoch, Batch([], [key_of(record), ("Run", "t", "run")], [], []))
        assert await store.graph("t", "digest") is None

    asyncio.run(use())
