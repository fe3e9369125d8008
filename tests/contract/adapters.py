"""How the store contract reaches a store: one adapter for each kind.

A new store subclasses `Adapter`, adds itself to `ADAPTERS`, and is then held to everything in
`tests/contract/store_contract.py` and `tests/contract/test_store_machine.py`.
"""

import asyncio
import atexit
import shutil
import tempfile
from abc import ABC, abstractmethod
from functools import cache
from itertools import count
from pathlib import Path

import psycopg

from rota.config.settings import LOCK_ID
from rota.core.ids import Epoch
from rota.ports import Store
from rota.stores.blobs import open_blobs
from rota.stores.etcd import EtcdStore
from rota.stores.etcd.tidying import Bounds
from rota.stores.memory import MemoryStore
from rota.stores.postgres import PostgresStore
from rota.stores.sqlite import SqliteStore
from tests.servers import etcd, etcd_pause
from tests.servers.postgres import shared_server
from tests.servers.postgres_kept import dial
from tests.servers.postgres_pause import hold_commit


class Pause:
    """A commit that stands between its compare and its COMMIT."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.resumed = asyncio.Event()

    async def stand(self) -> None:
        """Called by the store, or by what stands in its way, when the compare is behind it."""
        self.reached.set()
        await self.resumed.wait()


class Adapter(ABC):
    """One kind of store. An epoch is only ever used through the store that was given it, except to be refused."""

    name: str
    # How long a call that must not block may take.
    patience_s = 10.0
    # True where an election cannot win while a commit is under way: elect says None, and the commit lands first.
    rivals_wait_for_commits = False
    # True for a `SharedStore`: it is held to `store_sharing.py` too.
    is_shared = False
    # True where nothing but housekeeping differs from another adapter's stores, which are held to all the rest.
    is_for_housekeeping = False

    @abstractmethod
    async def make_store(self) -> Store:
        """A store on an empty disk of its own."""

    async def make_new(self) -> Store:
        """A store on a disk that nothing was ever put on; to make one may take longer."""
        return await self.make_store()

    @abstractmethod
    async def join(self, store: Store) -> Store:
        """Another process's store on the same disk."""

    @abstractmethod
    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        """The process ends without a word, and another one opens the same disk; `epoch` is the last it was given.

        Its lock, if it still had it, is free by then or soon after.
        """

    @abstractmethod
    async def close(self, stores: list[Store]) -> None:
        """Close these stores and remove the disk they share."""

    def pause_commit(self, store: Store) -> Pause | None:
        """Make this store's next commit stand between compare and COMMIT; None if there is nothing between."""
        return None


class MemoryAdapter(Adapter):
    """Dictionaries. A commit is one step of the event loop, so nothing can come between."""

    name = "memory"

    async def make_store(self) -> Store:
        return MemoryStore()

    async def join(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        return MemoryStore(store.disk)

    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        assert isinstance(store, MemoryStore)
        store.disk.release(epoch)
        return MemoryStore(store.disk)

    async def close(self, stores: list[Store]) -> None:
        stores.clear()


class SqliteAdapter(Adapter):
    """A folder. Each store has connections and a lock of its own, as another process would."""

    name = "sqlite"
    # One writes at a time: who comes while a commit is under way does not get the write lock, and tries again.
    rivals_wait_for_commits = True

    async def make_store(self) -> Store:
        return SqliteStore(Path(tempfile.mkdtemp(prefix="rota-contract-")))

    async def join(self, store: Store) -> Store:
        assert isinstance(store, SqliteStore)
        return SqliteStore(store.disk.folder)

    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        assert isinstance(store, SqliteStore)
        store.close()
        return SqliteStore(store.disk.folder)

    async def close(self, stores: list[Store]) -> None:
        for store in stores:
            assert isinstance(store, SqliteStore)
            store.close()
            shutil.rmtree(store.disk.folder, ignore_errors=True)

    def pause_commit(self, store: Store) -> Pause | None:
        assert isinstance(store, SqliteStore)
        pause, loop, disk = Pause(), asyncio.get_running_loop(), store.disk

        def stand() -> bool:
            disk.writer.set_commit_hook(None)
            asyncio.run_coroutine_threadsafe(pause.stand(), loop).result()
            return False

        disk.writer.set_commit_hook(stand)
        return pause


class EtcdAdapter(Adapter):
    """Keys under a prefix of their own in an etcd that all tests share, and blobs in memory."""

    is_shared = True

    def __init__(self, name: str, bounds: Bounds | None = None) -> None:
        self.name = name
        self.bounds = bounds
        self.is_for_housekeeping = bounds is not None

    async def make_store(self) -> Store:
        return EtcdStore(etcd.shared_server().url(), open_blobs("memory:"), bounds=self.bounds)

    async def join(self, store: Store) -> Store:
        assert isinstance(store, EtcdStore)
        return EtcdStore(store.client.address.shown, store.blobs, bounds=self.bounds)

    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        # A process that dies has its lease end by itself, which test_etcd_failover.py waits for.
        assert isinstance(store, EtcdStore)
        await store.close()
        return await self.join(store)

    async def close(self, stores: list[Store]) -> None:
        for store in stores:
            assert isinstance(store, EtcdStore)
            await store.close()

    def pause_commit(self, store: Store) -> Pause | None:
        assert isinstance(store, EtcdStore)
        pause = Pause()
        etcd_pause.stand_before(store, "head", pause.stand)
        return pause


class PostgresAdapter(Adapter):
    """A schema of its own in one database of a real server, with a lock of its own.

    To make one takes a quarter of a second and to empty one a hundredth, so they are used again; that several may
    make one at once is tested elsewhere. So are connections: a new one, and the first statements in it, take the
    server 20 ms, which was nearly all that the contract took. What becomes of a session that ends is tested elsewhere.
    """

    name = "postgres"
    is_shared = True

    def __init__(self) -> None:
        self._numbers = count(1)
        self._empty: list[int] = []

    async def make_store(self) -> Store:
        return self._open(self._empty.pop()) if self._empty else await self.make_new()

    async def make_new(self) -> Store:
        return self._open(next(self._numbers))

    async def join(self, store: Store) -> Store:
        return self._open(self._number(store))

    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        assert isinstance(store, PostgresStore)
        store.drop()
        return await self.join(store)

    async def close(self, stores: list[Store]) -> None:
        for store in stores:
            assert isinstance(store, PostgresStore)
            await store.close()
        for number in {self._number(store) for store in stores}:
            _empty(f"contract_{number}")
            self._empty.append(number)

    def pause_commit(self, store: Store) -> Pause | None:
        assert isinstance(store, PostgresStore)
        pause = Pause()
        store.writer.address = hold_commit(store, shared_server(), pause.stand)
        return pause

    @staticmethod
    def _number(store: Store) -> int:
        assert isinstance(store, PostgresStore)
        return int(store.schema.removeprefix("contract_"))

    @staticmethod
    def _open(number: int) -> PostgresStore:
        return PostgresStore(shared_server().url(), schema=f"contract_{number}", lock_id=LOCK_ID + number, dial=dial)


@cache
def _outside() -> psycopg.Connection:
    connection = psycopg.connect(shared_server().url(), autocommit=True)
    atexit.register(connection.close)
    return connection


def _empty(schema: str) -> None:
    _outside().execute(_EMPTY.replace("SCHEMA", schema))  # pyright: ignore[reportArgumentType] - a name of our own


_EMPTY = """DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'SCHEMA' LOOP
        IF name NOT IN ('meta', 'reign') THEN
            EXECUTE format('DELETE FROM SCHEMA.%I', name);
        END IF;
    END LOOP;
    IF name IS NOT NULL THEN
        UPDATE SCHEMA.reign SET epoch = 0, pid = 0;
        UPDATE SCHEMA.meta SET value = gen_random_uuid()::text WHERE meta.name = 'identity';
    END IF;
END $$"""

ADAPTERS: list[Adapter] = [
    MemoryAdapter(),
    SqliteAdapter(),
    PostgresAdapter(),
    EtcdAdapter("etcd"),
    # A checkpoint with every slice of housekeeping.
    EtcdAdapter("etcd-eager", Bounds(entries=1, share_percent=0, merge_at=2)),
]
