"""Reading contents: small ones out of packs, large ones as a stream, and nothing that is not what its digest says.

What the page cache has is read at once; what has to come from a disk or a network is waited for in a thread. A large
content is read through once before its first byte is given out after a start.
"""

import asyncio
import errno
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rota.ports import BlobLost, Blobs, ContentLost
from rota.stores.cas.index import Row, Slot
from rota.stores.cas.packs import Item, Pack, ReadAt, scan
from rota.stores.cas.stock import Stock, unavailable

PIECE_BYTES = 1024 * 1024
# How much of a blob that is no file is asked for at once, where it is only looked through.
_RANGE_BYTES = 8 * 1024 * 1024
# Packs that are kept open.
_OPEN_MAX = 128
_ITEMS_AT_ONCE = 100

# Reads some bytes from an offset.
ReadSome = Callable[[int, int], Coroutine[Any, Any, bytes]]

R = TypeVar("R")


class OpenFile:
    """A file that stays open as long as somebody has it, whatever becomes of its name."""

    __slots__ = ("fd",)

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Reader:
    """Reads contents. `threads` do what may take a while."""

    def __init__(self, stock: Stock, threads: ThreadPoolExecutor) -> None:
        self._stock = stock
        self._threads = threads
        self._open: OrderedDict[int, OpenFile] = OrderedDict()

    async def small(self, slot: Slot) -> bytes:
        """A content that lies in a pack, checked. Raises `ContentLost`."""
        index = self._stock.index
        row = index.row(slot)
        while True:
            content = await self._part(self._stock.packs[row[4]], row[5], row[3])
            if content is not None and sha256(content).digest() == row[2]:
                return content
            now = index.row(slot)
            if now[:4] != row[:4]:
                raise ContentLost(f"{row[2].hex()}/{row[3]} went while it was read")
            if now[4:6] == row[4:6]:
                await self._lose(row)
            # It was moved to another pack meanwhile.
            row = now

    async def _part(self, pack: Pack, place: int, size: int) -> bytes | None:
        """Some bytes of a pack; None if they are not there."""
        opened = self._opened(pack)
        if opened is None:
            try:
                return await _patiently(self._stock.blobs.read(pack.name, place, size))
            except BlobLost:
                return None
        content = read_cached(opened.fd, place, size)
        if content is not None:
            return content
        try:
            return await self.apart(lambda: os.pread(opened.fd, size, place))
        except BlobLost:
            return None

    def _opened(self, pack: Pack) -> OpenFile | None:
        opened = self._open.get(pack.number)
        if opened is not None:
            self._open.move_to_end(pack.number)
            return opened
        opened = open_pack(pack, self._stock.blobs)
        if opened is None:
            return None
        self._open[pack.number] = opened
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)
        return opened

    def forget(self, number: int) -> None:
        """A pack is gone; those who read it finish."""
        self._open.pop(number, None)

    def close(self) -> None:
        """Close what is open."""
        self._open.clear()

    async def large(self, slot: Slot, offset: int, size: int) -> AsyncIterator[bytes]:
        """A part of a content that is a file of its own, piece by piece. Raises `ContentLost`."""
        row = self._stock.index.row(slot)
        self._stock.begin_reading(slot)
        try:
            if not self._stock.index.is_sure[slot]:
                await self.verify(slot)
            read = await self._range(self._stock.name_of_large(slot))
            async for piece in _ahead(read, offset, offset + size):
                yield piece
        except BlobLost:
            self._stock.index.is_sure[slot] = False
            await self._lose(row)
        finally:
            self._stock.end_reading(slot)

    async def verify(self, slot: Slot) -> None:
        """Read a large content through. Raises `BlobLost` if it is not what it should be."""
        row = self._stock.index.row(slot)
        name = self._stock.name_of_large(slot)
        path = self._stock.blobs.local(name)
        if path is not None:
            key, size = await self.apart(lambda: hash_file(path))
        else:
            key, size = await self._hash_blob(name)
        if (key, size) != (row[2], row[3]):
            raise BlobLost(f"{name} is not what was stored")
        if self._stock.index.row(slot)[:-1] == row[:-1]:
            self._stock.index.is_sure[slot] = True

    async def check(self, slot: Slot) -> None:
        """Read a large content through, whatever is believed of it, and drop it if it is damaged: `ContentLost`."""
        row = self._stock.index.row(slot)
        self._stock.begin_reading(slot)
        self._stock.index.is_sure[slot] = False
        try:
            await self.verify(slot)
        except BlobLost:
            await self._lose(row)
        finally:
            self._stock.end_reading(slot)

    async def _lose(self, row: Row) -> NoReturn:
        """What is damaged goes, also if whoever asked for it does not wait."""
        await asyncio.shield(asyncio.ensure_future(self._stock.discard(row)))
        raise ContentLost(f"{row[2].hex()}/{row[3]} was damaged") from None

    async def _hash_blob(self, name: str) -> tuple[bytes, int]:
        hashed = sha256()
        size = 0
        while piece := await _patiently(self._stock.blobs.read(name, size, _RANGE_BYTES)):
            size += len(piece)
            await self.apart(lambda piece=piece: hashed.update(piece))
        return hashed.digest(), size

    async def _range(self, name: str) -> ReadSome:
        """How to read parts of a blob; a file that is open can be read to its end whatever happens to it."""
        path = self._stock.blobs.local(name)
        if path is None:
            return lambda at, size: _patiently(self._stock.blobs.read(name, at, size))
        opened = await self.apart(lambda: OpenFile(path))
        return lambda at, size: self.apart(lambda: os.pread(opened.fd, size, at))

    async def items(self, pack: Pack) -> AsyncIterator[Item]:
        """Everything in a pack, as it lies there."""
        read = read_pack(pack, self._stock.blobs, asyncio.get_running_loop())
        found = scan(read, 0, pack.size)
        while batch := await self.apart(lambda: list(islice(found, _ITEMS_AT_ONCE))):
            for item in batch:
                yield item

    async def apart(self, work: Callable[[], R]) -> R:
        """Read something in a thread. Raises `BlobLost` where it can never be read."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EIO):
                raise BlobLost(f"{error}") from error
            raise unavailable(error) from error


async def _ahead(read: ReadSome, at: int, end: int) -> AsyncIterator[bytes]:
    """Pieces of a file, each of which is read while the one before is being sent."""
    following = asyncio.ensure_future(read(at, min(PIECE_BYTES, end - at)))
    try:
        while at < end:
            piece = await following
            if not piece:
                raise BlobLost(f"it ends at {at:,} instead of {end:,}")
            at += len(piece)
            if at < end:
                following = asyncio.ensure_future(read(at, min(PIECE_BYTES, end - at)))
            yield piece
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _patiently(reading: Coroutine[Any, Any, bytes]) -> bytes:
    try:
        return await reading
    except OSError as error:
        raise unavailable(error) from error


def read_cached(fd: int, at: int, size: int) -> bytes | None:
    """Some bytes of a file if the page cache has them all."""
    buffer = bytearray(size)
    try:
        return bytes(buffer) if os.preadv(fd, [buffer], at, os.RWF_NOWAIT) == size else None
    except OSError:
        # It would have to wait, or the file system cannot tell.
        return None


def hash_file(path: Path) -> tuple[bytes, int]:
    """The key of a file's content, and its size."""
    with path.open("rb", buffering=0) as file:
        return file_digest(file, "sha256").digest(), file.tell()


def open_pack(pack: Pack, blobs: Blobs) -> OpenFile | None:
    """A pack as a file; None if it is none, or is gone. It may move to the blobs in this very moment."""
    for path in (pack.path, blobs.local(pack.name)):
        try:
            if path is not None:
                return OpenFile(path)
        except FileNotFoundError:
            continue
    return None


def read_pack(pack: Pack, blobs: Blobs, loop: asyncio.AbstractEventLoop) -> ReadAt:
    """How a thread reads a pack, wherever it lies. Raises `OSError` or `BlobLost`."""
    opened = open_pack(pack, blobs)
    if opened is not None:
        return lambda at, size: os.pread(opened.fd, size, at)

    def read_blob(at: int, size: int) -> bytes:
        reading = blobs.read(pack.name, at, min(size, _RANGE_BYTES))
        return asyncio.run_coroutine_threadsafe(reading, loop).result()

    return read_blob
