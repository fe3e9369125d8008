"""What the tests of the PostgreSQL store share: stores on schemas of their own, and how they are used."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from itertools import count
from typing import Any

import uvloop

from rota.config.settings import LOCK_ID
from rota.core.ids import Epoch
from rota.core.records import Batch, Record, Run
from rota.ports import Candidate
from rota.stores.postgres import PostgresStore
from tests.contract.bench import batch
from tests.servers.postgres import PostgresServer, shared_server

PATIENCE_S = 20.0
TEST_S = 120.0
_NUMBERS = count(1)


def played(play: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test on the event loop that services use; the contract runs on Python's own."""

    @wraps(play)
    def test(*args: Any, **fixtures: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_S):
                await play(*args, **fixtures)

        uvloop.run(bounded())

    return test


@asynccontextmanager
async def opened(
    url: str = "", *, server: PostgresServer | None = None, **settings: Any
) -> AsyncIterator[PostgresStore]:
    """A store, closed in the end; on a schema and with a lock of its own if nothing else is said."""
    number = next(_NUMBERS)
    settings = {"schema": f"its_own_{number}", "lock_id": LOCK_ID + 1_000_000 + number, **settings}
    store = PostgresStore(url or (server or shared_server()).url(), **settings)
    try:
        yield store
    finally:
        await store.close()


def twin(store: PostgresStore, url: str = "", **settings: Any) -> PostgresStore:
    """Another process's store on the same schema; whoever asks for it closes it."""
    settings = {"schema": store.schema, "lock_id": store.lock.lock_id, **settings}
    return PostgresStore(url or shared_server().url(), **settings)


async def elected(store: PostgresStore, patience_s: float = PATIENCE_S) -> Epoch:
    """An election that must be won before long."""
    async with asyncio.timeout(patience_s):
        while (epoch := await store.elect(Candidate("a test"))) is None:
            await asyncio.sleep(0.02)
    return epoch


async def eventually(look: Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(patience_s):
        while not await look():
            await asyncio.sleep(0.02)


def a_batch(*names: str) -> Batch:
    """Runs of these names."""
    return batch([Run("t", name, "g", "n", created_at=1) for name in names])


async def runs_in(store: PostgresStore, epoch: Epoch) -> list[str]:
    """The names of all live runs."""
    records: list[Record] = [record async for record in store.load(epoch)]
    return sorted(record.id for record in records if isinstance(record, Run))
