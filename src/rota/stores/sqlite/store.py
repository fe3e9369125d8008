"""The Store port over a data folder: asyncio waits, two threads work.

One thread writes and one reads. SQLite lets readers and the writer pass each other, so that a page of history never
waits for a commit, nor a commit for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Epoch, GraphDigest, Millis, RunId
from rota.core.model import Graph
from rota.core.records import Batch, Record, Story
from rota.ports import Candidate, Kept
from rota.stores.sqlite.disk import SqliteDisk
from rota.stores.sqlite.disk_reader import DiskReader

T = TypeVar("T")


class SqliteReader:
    """The reading half of the store."""

    def __init__(self, disk: DiskReader) -> None:
        self._disk = disk
        self._reader = ThreadPoolExecutor(1, "rota-store-reader")

    def close(self) -> None:
        """Finish what is being read, then close the database; may be called twice."""
        self._reader.shutdown(wait=True)
        self._disk.close()

    async def version(self) -> int:
        """A number that changes with every commit of another process."""
        return await self.read(self._disk.version)

    async def history(self, query: HistoryQuery) -> Page:
        """See the port."""
        return await self.read(lambda: self._disk.page(query))

    async def ended(self, tenant: str, run: RunId, created_at: Millis = 0) -> Ended | None:
        """See the port."""
        return await self.read(lambda: self._disk.ended(tenant, run, created_at))

    async def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """See the port."""
        return await self.read(lambda: self._disk.graph(tenant, digest))

    async def stories(self, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """See the port."""
        return await self.read(lambda: self._disk.told(tenant, run, created_at))

    async def audits(self, query: ListAudits) -> AuditsPage:
        """See the port."""
        return await self.read(lambda: self._disk.audits(query))

    async def kept(self) -> Kept:
        """See the port."""
        return await self.read(self._disk.kept)

    async def read(self, work: Callable[[], T]) -> T:
        """Do something on the thread that reads."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)


class SqliteStore(SqliteReader):
    """The store of one machine: a folder with `rota.db` in it. Raises `Refused` if the folder cannot be used."""

    def __init__(self, folder: Path, disk: SqliteDisk | None = None) -> None:
        self.disk = disk or SqliteDisk(folder)
        super().__init__(self.disk)
        self._writer = ThreadPoolExecutor(1, "rota-store-writer")

    def close(self) -> None:
        """Finish what is being written, then free the folder; may be called twice."""
        self._writer.shutdown(wait=True)
        super().close()

    def holder(self) -> str:
        """Who holds the folder's lock, for people; empty if nobody does."""
        return self.disk.holder()

    async def identity(self) -> str:
        """See the port."""
        return await self._write(self.disk.identity)

    async def elect(self, who: Candidate) -> Epoch | None:
        """See the port."""
        return await self._write(lambda: self.disk.elect(who.name))

    async def holds(self, epoch: Epoch) -> bool:
        """See the port."""
        return self.disk.holds(epoch)

    async def release(self, epoch: Epoch) -> None:
        """See the port. Does not wait for a commit that is under way: only the epoch decides what becomes of it."""
        self.disk.release(epoch)

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        """See the port."""
        chunks = self.disk.live(epoch)
        try:
            while (records := await self.read(lambda: next(chunks, None))) is not None:
                for record in records:
                    yield record
        finally:
            await self.read(chunks.close)

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        """See the port."""
        await self._write(lambda: self.disk.commit(epoch, batch))

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """See the port."""
        return await self._write(lambda: self.disk.tidy(epoch, now, keep_ms))

    async def _write(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)
