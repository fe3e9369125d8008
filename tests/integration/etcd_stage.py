"""What the tests of the etcd store share: stores on one prefix, a model beside them, and faults at every call."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rota.core.ids import BlobRef, Epoch, Millis
from rota.core.records import Batch
from rota.ports import Blobs, Candidate, Listed
from rota.stores.blobs import open_blobs
from rota.stores.etcd import EtcdStore
from rota.stores.etcd.tidying import Bounds
from rota.stores.memory import MemoryStore
from tests.contract.adapters import MemoryAdapter
from tests.contract.bench import Bench, Disk, assert_same
from tests.servers.etcd import EtcdCluster, shared_server

# A checkpoint with every slice of housekeeping.
EAGER = Bounds(entries=1, share_percent=0, merge_at=3)
ME, RIVAL = Candidate("me"), Candidate("rival")
FOREVER: Millis = 2**62


class Stage:
    """Stores on one prefix and one place for blobs; the first one reigns."""

    def __init__(self, url: str, blobs: Blobs, term_ms: Millis, bounds: Bounds) -> None:
        self.url = url
        self.blobs = blobs
        self.term_ms = term_ms
        self.bounds = bounds
        self.opened: list[EtcdStore] = []
        # What stores have warned of.
        self.warnings: list[str] = []

    def open(self, blobs: Blobs | None = None) -> EtcdStore:
        """Another process's store."""
        store = EtcdStore(
            self.url, blobs or self.blobs, term_ms=self.term_ms, bounds=self.bounds, warn=self.warnings.append
        )
        self.opened.append(store)
        return store

    async def reign(self, store: EtcdStore | None = None) -> tuple[EtcdStore, Epoch]:
        """A store that was elected and has loaded."""
        store = store or self.open()
        epoch = await store.elect(ME)
        assert epoch is not None, "nobody holds the lock"
        _ = [record async for record in store.load(epoch)]
        return store, epoch

    async def bury(self, store: EtcdStore) -> None:
        """The process behind a store is gone, and its connections with it."""
        self.opened.remove(store)
        await store.client.close()

    async def close(self) -> None:
        for store in self.opened:
            await store.close()


@asynccontextmanager
async def staged(
    server: EtcdCluster | None = None, *, term_ms: Millis = 5_000, bounds: Bounds | None = None
) -> AsyncIterator[Stage]:
    """A stage on an empty prefix."""
    stage = Stage((server or shared_server()).url(), open_blobs("memory:"), term_ms, bounds or Bounds())
    try:
        yield stage
    finally:
        await stage.close()


async def disk_of(store: Any, epoch: Epoch) -> Disk:
    """All that a store holds."""
    return await Bench(MemoryAdapter(), store).disk(store, epoch)


class Model:
    """What a store must hold: the same commits, in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.epoch = self.store.disk.elect() or 0

    async def commit(self, batch: Batch) -> None:
        await self.store.commit(self.epoch, batch)

    async def tidy(self, now: Millis, keep_ms: Millis) -> None:
        while await self.store.tidy(self.epoch, now, keep_ms):
            pass

    async def disk(self) -> Disk:
        return await disk_of(self.store, self.epoch)

    async def expect(self, store: EtcdStore, epoch: Epoch) -> None:
        """A store holds this and nothing else."""
        assert_same(await disk_of(store, epoch), await self.disk())


class Killed(Exception):
    """The process ends here."""


class Fate:
    """Counts what a process does outside itself, and ends it before one of these.

    That is after the one before, too: what others see is the same, and what it was told is at least as much.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.done = 0

    @property
    def has_come(self) -> bool:
        return self.done >= self.last

    async def meet(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """Do something, unless this is the end."""
        if self.has_come:
            raise Killed
        self.done += 1
        if self.has_come:
            raise Killed
        return await act()

    def befall(self, store: EtcdStore) -> None:
        """Every call of a store to etcd is counted; what it does with blobs is, too, if they are `FatedBlobs`."""
        ask = store.client._try

        async def fated(*args: Any, **options: Any) -> Any:
            return await self.meet(lambda: ask(*args, **options))

        store.client._try = fated  # pyright: ignore[reportAttributeAccessIssue] - on this one object


class FatedBlobs:
    """Blobs that count what is asked of them."""

    def __init__(self, blobs: Blobs, fate: Fate) -> None:
        self.blobs = blobs
        self.fate = fate

    async def put(self, name: str, content: bytes | Path, *, is_durable: bool = True) -> BlobRef:
        return await self.fate.meet(lambda: self.blobs.put(name, content, is_durable=is_durable))

    async def get(self, ref: BlobRef) -> bytes:
        return await self.fate.meet(lambda: self.blobs.get(ref))

    async def fetch(self, ref: BlobRef, target: Path) -> None:
        await self.fate.meet(lambda: self.blobs.fetch(ref, target))

    async def read(self, name: str, offset: int, size: int) -> bytes:
        return await self.fate.meet(lambda: self.blobs.read(name, offset, size))

    async def list(self, prefix: str) -> list[Listed]:
        return await self.fate.meet(lambda: self.blobs.list(prefix))

    async def collect(self, prefix: str, is_wanted: Callable[[str], bool], older_than: Millis) -> int:
        return await self.fate.meet(lambda: self.blobs.collect(prefix, is_wanted, older_than))
