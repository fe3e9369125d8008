"""The Content port: small contents in packs, large ones as files, an index in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Digest, Millis
from rota.ports import BlobLost, Checked, ContentLost, Held, Upload, WrongContent
from rota.stores.cas.appending import Appender
from rota.stores.cas.index import EMPTY_KEY, NO_PACK, Slot, Tick, key_of
from rota.stores.cas.journal import Arriving
from rota.stores.cas.packs import ITEM_BYTES, Pack
from rota.stores.cas.reading import Reader
from rota.stores.cas.room import Room
from rota.stores.cas.stock import Stock, blob_name_of_large, lost, unavailable
from rota.stores.cas.uploads import Known, Uploads
from rota.stores.sqlite.lock import FolderLock

# What may be asked for whole.
GET_BYTES_MAX = 8 * 1024 * 1024
# How often is tidied up.
TIDY_EVERY_S = 60.0
# How much older than it is a last use may be in the journal.
_NOTE_LAG_S = 300
_NOTED_AT_ONCE = 1_000
_CHECKED_AT_ONCE = 64

R = TypeVar("R")


class ContentBounds(Struct, frozen=True):
    """How much content may be kept, and in which shape."""

    # All of it, on the disk.
    bytes_max: int
    # One content.
    blob_bytes_max: int = 4 * 1024**3
    # What is not larger lies in a pack.
    small_bytes_max: int = 64 * 1024
    # From this size on a pack is not written to any more.
    pack_bytes_max: int = 64 * 1024 * 1024
    # Small contents in memory.
    recent_bytes_max: int = 64 * 1024 * 1024


class DiskContent:
    """Content in a folder of this process and the blobs that belong to it. Made by `open_content`."""

    def __init__(
        self,
        stock: Stock,
        appender: Appender,
        lock: FolderLock,
        uploads: Path,
        clock: Callable[[], Millis],
        bounds: ContentBounds,
    ) -> None:
        self._stock = stock
        self._appender = appender
        self._lock = lock
        self._bounds = bounds
        self._threads = ThreadPoolExecutor(4, "rota-content")
        self._reader = Reader(stock, self._threads)
        self._room = Room(stock, appender, self._reader, bounds.bytes_max)
        self._uploads = Uploads(self, self._room, uploads, clock, bounds.small_bytes_max)
        self._unfinished: list[asyncio.Task[None]] = []
        self._noted_to: Tick = stock.tick()
        self._tidying: asyncio.Task[None] | None = asyncio.create_task(self._keep_tidy())
        self._is_closed = False

    def missing(self, tenant: str, digests: Iterable[Digest]) -> list[Digest]:
        """See the port."""
        return self._stock.index.missing(tenant, digests, self._stock.tick())

    async def put(self, tenant: str, digest: Digest, content: bytes) -> None:
        """See the port."""
        if len(content) <= self._bounds.small_bytes_max:
            await self.keep_small(tenant, digest, content)
            return
        if len(content) != digest.size:
            raise WrongContent(f"{len(content):,} bytes came instead of {digest.size:,}")
        self._key(digest)
        if not self.missing(tenant, [digest]):
            return
        upload = self._uploads.alone(tenant, digest)
        await upload.write(0, content)
        await upload.finish()

    async def keep_small(self, tenant: str, digest: Digest, content: bytes) -> None:
        """Check and keep content that is in memory."""
        key = self._key(digest)
        if len(content) != digest.size:
            raise WrongContent(f"{len(content):,} bytes came instead of {digest.size:,}")
        if (found := sha256(content).digest()) != key:
            raise WrongContent(f"what came has the hash {found.hex()}, not {digest.hash}")
        if not content or self._stock.find(tenant, digest) is not None:
            return
        shelf = self._stock.shelf(tenant)
        size = ITEM_BYTES + len(content)
        await self._room.hold(size)
        try:
            await self._appender.append(shelf, key, content, self._stock.landing(shelf, key, content))
        except OSError as error:
            raise unavailable(error) from error
        finally:
            self._room.release(size)

    async def keep_large(self, tenant: str, digest: Digest, path: Path) -> None:
        """Keep a file that was checked: have the journal know of it, then give it its name, then its entry."""
        key = key_of(digest)
        name = blob_name_of_large(tenant, key)
        await self._stock.claim(name)
        try:
            if self._stock.find(tenant, digest) is not None:
                return
            shelf = self._stock.shelf(tenant)
            journal = self._stock.journal
            journal.arriving(Arriving(name, shelf.number, key, digest.size))
            try:
                await journal.flush()
                await self._stock.blobs.adopt(name, path, is_durable=False)
                slot = self._stock.add_large(shelf, key, digest.size)
                self._stock.index.is_sure[slot] = True
            except OSError as error:
                raise unavailable(error) from error
            finally:
                journal.arrived(name)
        finally:
            self._stock.free(name)

    async def get(self, tenant: str, digest: Digest) -> bytes:
        """See the port."""
        if digest.size > GET_BYTES_MAX:
            raise Refused(
                "field.size",
                f"{digest.hash}/{digest.size} is too large to be read at once; at most {GET_BYTES_MAX:,} bytes are.",
                "Read it as a stream.",
            )
        slot = self._find(tenant, digest)
        if slot is None:
            return b""
        if self._stock.index.packs[slot] != NO_PACK:
            return await self._small(slot)
        return b"".join([piece async for piece in self._reader.large(slot, 0, digest.size)])

    async def read(self, tenant: str, digest: Digest, offset: int = 0, limit: int = 0) -> AsyncIterator[bytes]:
        """See the port."""
        if not 0 <= offset <= digest.size or limit < 0:
            raise ValueError(f"{limit:,} bytes from {offset:,} cannot be read of {digest.size:,}")
        slot = self._find(tenant, digest)
        size = min(limit or digest.size, digest.size - offset)
        if slot is None or not size:
            return
        if self._stock.index.packs[slot] != NO_PACK:
            yield (await self._small(slot))[offset : offset + size]
            return
        async for piece in self._reader.large(slot, offset, size):
            yield piece

    def _find(self, tenant: str, digest: Digest) -> Slot | None:
        """The slot of some content; None for the empty one. Raises `ContentLost`."""
        slot = self._stock.find(tenant, digest)
        if slot is None and (digest.size or key_of(digest) != EMPTY_KEY):
            raise lost(digest)
        return slot

    async def _small(self, slot: Slot) -> bytes:
        content = self._stock.recent.get(slot)
        if content is None:
            key = self._stock.index.keys[slot]
            content = await self._reader.small(slot)
            if self._stock.index.keys[slot] == key:
                self._stock.recent.put(slot, content)
        return content

    def upload(self, tenant: str, digest: Digest, name: str) -> Upload:
        """See the port."""
        self._key(digest)
        if not self.missing(tenant, [digest]):
            return Known(digest)
        return self._uploads.begin(tenant, digest, name)

    def _key(self, digest: Digest) -> bytes:
        if digest.size > self._bounds.blob_bytes_max:
            raise WrongContent(f"{digest.size:,} bytes are too many; {self._bounds.blob_bytes_max:,} may be sent")
        return key_of(digest)

    def keep_since(self, at: Millis | None) -> None:
        """See the port."""
        self._room.keep_since(at)

    def held(self) -> Held:
        """See the port."""
        stock = self._stock
        return Held(len(stock.index), stock.disk_bytes, self._bounds.bytes_max, self._room.evicted)

    async def check(self) -> Checked:
        """See the port."""
        index = self._stock.index
        checked = checked_bytes = damaged = 0
        for slot in range(len(index.keys)):
            if slot % _CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not index.has(slot):
                continue
            checked += 1
            checked_bytes += index.sizes[slot]
            damaged += not await self._is_whole(slot)
        return Checked(checked, checked_bytes, damaged)

    async def _is_whole(self, slot: Slot) -> bool:
        try:
            if self._stock.index.packs[slot] != NO_PACK:
                await self._reader.small(slot)
            else:
                await self._reader.check(slot)
        except ContentLost:
            return False
        return True

    async def _keep_tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_EVERY_S)
            try:
                await self.tidy()
            except (OSError, Unavailable, BlobLost):
                # Nothing depends on it, and it is tried again.
                continue

    async def tidy(self) -> None:
        """Forget uploads that nobody goes on with, note what was used, move packs that are full to the blobs."""
        self._uploads.sweep()
        await self._note_uses()
        if self._stock.index.is_slack():
            for _ in self._stock.index.squeeze():
                await asyncio.sleep(0)
        for number in list(self._stock.packs):
            # While one is moved, another may go to make room.
            pack = self._stock.packs.get(number)
            if pack is not None and pack.path is not None and not pack.is_moving and not self._is_tail(pack):
                await self._move_away(pack)

    def _is_tail(self, pack: Pack) -> bool:
        return self._appender.is_tail(pack.shelf, pack.number)

    async def _note_uses(self) -> None:
        """Tell the journal what was used since the last time, as far as it was not used shortly before that."""
        index, since, self._noted_to = self._stock.index, self._noted_to, self._stock.tick()
        for number, slot in enumerate(index.used_since(since)):
            if number % _NOTED_AT_ONCE == 0:
                await asyncio.sleep(0)
            used = index.used[slot]
            if used >= index.noted[slot] + _NOTE_LAG_S:
                index.noted[slot] = used
                self._stock.journal.used(slot, used)

    async def _move_away(self, pack: Pack) -> None:
        """A pack that is full becomes a blob."""
        assert pack.path is not None, "it has not moved yet"
        pack.is_moving = True
        try:
            await self._stock.blobs.adopt(pack.name, pack.path, is_durable=False)
            pack.path = None
        finally:
            pack.is_moving = False

    def see_through(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done that is not to be left halfway, not even by closing."""
        task = asyncio.create_task(work)
        self._unfinished.append(task)
        task.add_done_callback(self._unfinished.remove)
        return task

    async def apart(self, work: Callable[[], R]) -> R:
        """Do something in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self) -> None:
        """See the port."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
        await self._uploads.close()
        await asyncio.gather(*self._unfinished, return_exceptions=True)
        await self._room.close()
        await self._appender.close()
        await self._note_uses()
        await self._stock.journal.close()
        self._reader.close()
        self._threads.shutdown(wait=True)
        self._lock.free()
