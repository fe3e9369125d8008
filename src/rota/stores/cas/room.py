"""Room for content: how much may be kept, what goes when it is too much, and packs that are mostly holes.

What was used longest ago goes first, in slices, and never what an action under way may need. The journal forgets
before a file goes: a restart must not promise what is gone.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from rota.core.errors import Unavailable
from rota.core.ids import Millis
from rota.ports import BlobLost, ContentFull
from rota.stores.cas.appending import Appender
from rota.stores.cas.index import NO_PACK, Slot, Tick
from rota.stores.cas.packs import Pack
from rota.stores.cas.reading import Reader
from rota.stores.cas.stock import Stock, unavailable

# Above the first part of the limit room is made in the background, down to the second.
HIGH, LOW = 0.95, 0.90
_SLICE = 256
# Of a pack, before what counts in it is worth moving.
_HOLES = 0.5
# The same when otherwise something would have to be refused.
_HOLES_AT_LEAST = 0.1
_MOVED_AT_ONCE = 100
_NEVER: Tick = 1 << 32


class Room:
    """What there is room for. `held_bytes` are on their way in."""

    def __init__(self, stock: Stock, appender: Appender, reader: Reader, bytes_max: int) -> None:
        self._stock = stock
        self._appender = appender
        self._reader = reader
        self._bytes_max = bytes_max
        self._held_bytes = 0
        # Contents that went to make room.
        self.evicted = 0
        self._keep_from: Tick = _NEVER
        self._making = asyncio.Lock()
        self._tasks: list[asyncio.Task[bool]] = []
        self._is_closed = False

    def keep_since(self, at: Millis | None) -> None:
        """Nothing that was used since then goes."""
        self._keep_from = _NEVER if at is None else at // 1_000

    async def hold(self, size: int) -> None:
        """Have room for some bytes, until they are released. Raises `ContentFull`."""
        while self._lacks(size):
            # Others may take the room that was made for this; then it is made again.
            if not await self._has_made(size) and self._lacks(size):
                raise ContentFull(f"{size:,} bytes do not fit: {self._bytes_max:,} may be kept, and the rest is in use")
        self._held_bytes += size
        if self._stock.disk_bytes + self._held_bytes > HIGH * self._bytes_max and not self._tasks:
            self._begin(self._make(0))

    def release(self, size: int) -> None:
        """These bytes are kept now, or given up."""
        self._held_bytes -= size

    def _lacks(self, size: int) -> bool:
        return self._stock.disk_bytes + self._held_bytes + size > self._bytes_max

    async def _has_made(self, size: int) -> bool:
        """Make room for some bytes; whether there is."""
        if size > self._bytes_max:
            return False
        try:
            # Not to be left halfway by whoever is cancelled.
            return await asyncio.shield(self._begin(self._make(size)))
        except OSError as error:
            raise unavailable(error) from error

    def _begin(self, making: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        task = asyncio.create_task(making)
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._tasks.remove(task)
        if not task.cancelled():
            # Whoever needs the room is told. In the background it is tried again with the next content.
            task.exception()

    async def _make(self, size: int) -> bool:
        """Make room for some bytes and a little more, as far as that can be; whether there is room for them."""
        async with self._making:
            while not self._is_closed:
                excess = self._stock.disk_bytes + self._held_bytes + size - int(LOW * self._bytes_max)
                if excess <= 0:
                    break
                if await self._compact(_HOLES) or await self._evict(excess):
                    continue
                # Nothing more can go, and moving things together is better than refusing.
                if not self._lacks(size) or not await self._compact(_HOLES_AT_LEAST):
                    break
            return not self._lacks(size)

    async def _evict(self, wanted_bytes: int) -> bool:
        """Let a slice of the oldest go; whether there was any."""
        index = self._stock.index
        names: list[str] = []
        busy: list[Slot] = []
        has_gone = False
        going_bytes = 0
        while not has_gone and (slots := index.oldest(wanted_bytes, _SLICE, self._keep_from)):
            for slot in slots:
                if not index.has(slot):
                    continue
                if self._is_busy(slot):
                    busy.append(slot)
                    continue
                has_gone = True
                self.evicted += 1
                size = index.sizes[slot]
                if name := self._stock.remove(slot):
                    self._stock.claim_now(name)
                    names.append(name)
                    going_bytes += size
        for slot in busy:
            index.requeue(slot, self._stock.tick())
        if has_gone:
            # A file takes its room until it is gone, and what arrives meanwhile cannot have it yet.
            self._held_bytes += going_bytes
            try:
                await self._let_go(names)
            finally:
                self._held_bytes -= going_bytes
        return has_gone

    def _is_busy(self, slot: Slot) -> bool:
        if self._stock.index.packs[slot] != NO_PACK:
            return False
        return self._stock.is_read(slot) or self._stock.is_claimed(self._stock.name_of_large(slot))

    async def _let_go(self, names: list[str]) -> None:
        """Remove blobs of which no entry speaks any more."""
        try:
            await self._forget()
            await self._stock.blobs.drop(names)
            for name in names:
                self._stock.journal.left(name)
        finally:
            for name in names:
                self._stock.free(name)

    async def _forget(self) -> None:
        """Have the journal forget. On a full disk it cannot, and only removing files makes room for it."""
        try:
            await self._stock.journal.flush()
        except Unavailable as error:
            if error.code != "store.full":
                raise

    async def _compact(self, holes: float) -> bool:
        """Rewrite the pack with the largest part of holes, if that is more than some part; whether there was one."""
        packs = [pack for pack in self._stock.packs.values() if not pack.is_moving]
        worst = max(packs, key=lambda pack: pack.holes, default=None)
        if worst is None or worst.holes < holes:
            return False
        worst.is_moving = True
        try:
            if self._appender.is_tail(worst.shelf, worst.number):
                await self._appender.roll(self._stock.index.shelves[worst.shelf])
            if worst.live:
                await self._empty(worst)
            await self._drop(worst)
        except OSError:
            # What counts in it cannot be written elsewhere: the disk is full. It stays where it is.
            return False
        finally:
            worst.is_moving = False
        return True

    async def _empty(self, pack: Pack) -> None:
        """Move what counts in a pack to another."""
        shelf = self._stock.index.shelves[pack.shelf]
        moves: list[asyncio.Task[None]] = []
        # If it can not be read to its end, what follows there is lost.
        with suppress(BlobLost):
            async for item in self._reader.items(pack):
                if item.is_whole and self._stock.index.is_at(shelf, item.key, pack.number, item.place):
                    land = self._stock.moving(shelf, item.key, len(item.content), pack.number, item.place)
                    moves.append(asyncio.create_task(self._appender.append(shelf, item.key, item.content, land)))
                if len(moves) >= _MOVED_AT_ONCE:
                    await _all(moves)
        await _all(moves)
        if pack.live:
            # What is left could not be read.
            for slot in [slot for slot in shelf.slots.values() if self._stock.index.packs[slot] == pack.number]:
                self._stock.remove(slot)

    async def _drop(self, pack: Pack) -> None:
        """A pack goes in which nothing counts any more."""
        del self._stock.packs[pack.number]
        self._stock.disk_bytes -= pack.size
        self._stock.journal.forget_pack(pack.number)
        if pack.path is None:
            self._stock.journal.leaving(pack.name)
        await self._forget()
        self._reader.forget(pack.number)
        if pack.path is not None:
            await asyncio.to_thread(pack.path.unlink, missing_ok=True)
        else:
            await self._stock.blobs.drop([pack.name])
            self._stock.journal.left(pack.name)

    async def close(self) -> None:
        """Stop making room."""
        self._is_closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _all(moves: list[asyncio.Task[None]]) -> None:
    """Wait for all of them, and only then fail for the first that failed."""
    outcomes = await asyncio.gather(*moves, return_exceptions=True)
    moves.clear()
    for outcome in outcomes:
        if outcome is not None:
            raise outcome
