"""Everything that is kept, as the event loop knows it: the index, the packs, the newest small contents, the bytes.

Whoever changes it does so in one go, without waiting in between, and tells the journal.
"""

import asyncio
import errno
from collections import OrderedDict
from collections.abc import Callable

from rota.core.errors import Unavailable
from rota.core.ids import Digest, Millis
from rota.ports import Blobs, ContentLost
from rota.stores.cas.appending import Tail, pack_name
from rota.stores.cas.index import NO_PACK, Index, Row, Shelf, Slot, Tick, key_of
from rota.stores.cas.journal import Journal
from rota.stores.cas.packs import ITEM_BYTES, Pack
from rota.wire.names import safe_name

# Where content is among the blobs. No tenant of a coordinator has anything there: ids become names without a dot.
ROOT = ".rota/cas"
# A quota and a limit on the size of files are space that ran out, too.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Recent:
    """The small contents that were asked for last, up to a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._contents: OrderedDict[Slot, bytes] = OrderedDict()

    def get(self, slot: Slot) -> bytes | None:
        """A content, if it is here."""
        content = self._contents.get(slot)
        if content is not None:
            self._contents.move_to_end(slot)
        return content

    def put(self, slot: Slot, content: bytes) -> None:
        """Remember a content, and forget others for it."""
        self.drop(slot)
        self._contents[slot] = content
        self._bytes += len(content)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._contents.popitem(last=False)[1])

    def drop(self, slot: Slot) -> None:
        """Forget a content."""
        content = self._contents.pop(slot, None)
        if content is not None:
            self._bytes -= len(content)


class Stock:
    """What is kept, and how many bytes it takes on the disk."""

    def __init__(
        self, index: Index, journal: Journal, blobs: Blobs, clock: Callable[[], Millis], recent_bytes_max: int
    ) -> None:
        self.index = index
        self.journal = journal
        self.blobs = blobs
        self.packs: dict[int, Pack] = {}
        self.recent = Recent(recent_bytes_max)
        self.disk_bytes = 0
        self._clock = clock
        self._tick: Tick = 1
        # How many are reading a large content, and which names are on their way in or out.
        self._readers: dict[Slot, int] = {}
        self._moving: dict[str, asyncio.Future[None]] = {}

    def tick(self) -> Tick:
        """Now, for the index. It never goes back."""
        self._tick = max(self._tick, self._clock() // 1_000)
        return self._tick

    def go_on_from(self, tick: Tick) -> None:
        """What was used before was used before now, also if the clock has been set back since."""
        self._tick = max(self._tick, tick)

    def shelf(self, tenant: str) -> Shelf:
        """A tenant's shelf; made if there is none."""
        shelf = self.index.find_shelf(tenant)
        if shelf is None:
            shelf = self.index.add_shelf(tenant)
            self.journal.shelf(shelf.number, tenant)
        return shelf

    def find(self, tenant: str, digest: Digest) -> Slot | None:
        """The slot of some content, which is used now; None if it is not there. Raises `WrongContent`."""
        slot = self.index.find(tenant, key_of(digest), digest.size)
        if slot is not None:
            self.index.touch(slot, self.tick())
        return slot

    def add_pack(self, pack: Pack) -> None:
        """There is a pack. What of it counts is told by the entries in it."""
        self.packs[pack.number] = pack
        self.disk_bytes += pack.size

    def landing(self, shelf: Shelf, key: bytes, content: bytes) -> Callable[[Tail, int], None]:
        """What to do when a small content has got its place in a pack."""

        def land(tail: Tail, place: int) -> None:
            self.grow(shelf, tail, place + len(content))
            if key not in shelf.slots:
                slot = self.add_small(shelf, key, len(content), tail.number, place)
                self.recent.put(slot, content)

        return land

    def moving(self, shelf: Shelf, key: bytes, size: int, pack: int, place: int) -> Callable[[Tail, int], None]:
        """What to do when a small content that lay elsewhere has got another place."""

        def land(tail: Tail, new_place: int) -> None:
            self.grow(shelf, tail, new_place + size)
            if self.index.is_at(shelf, key, pack, place):
                slot = shelf.slots[key]
                self.packs[pack].live -= ITEM_BYTES + size
                self.packs[tail.number].live += ITEM_BYTES + size
                self.index.packs[slot] = tail.number
                self.index.places[slot] = new_place
                self.journal.entry(self.index.row(slot))

        return land

    def grow(self, shelf: Shelf, tail: Tail, end: int) -> None:
        """A pack is longer now."""
        pack = self.packs.get(tail.number)
        if pack is None:
            pack = Pack(tail.number, shelf.number, blob_name_of_pack(shelf.tenant, tail.number), tail.path, 0)
            self.add_pack(pack)
        self.disk_bytes += end - pack.size
        pack.size = end
        self.journal.pack(tail.number, end)

    def add_small(self, shelf: Shelf, key: bytes, size: int, pack: int, place: int) -> Slot:
        """A small content is in a pack that is known."""
        slot = self.index.add(shelf, key, size, pack, place, self.tick())
        self.packs[pack].live += ITEM_BYTES + size
        self.journal.entry(self.index.row(slot))
        return slot

    def add_large(self, shelf: Shelf, key: bytes, size: int) -> Slot:
        """A large content has its name."""
        slot = self.index.add(shelf, key, size, NO_PACK, 0, self.tick())
        self.disk_bytes += size
        self.journal.entry(self.index.row(slot))
        return slot

    def remove(self, slot: Slot) -> str:
        """An entry goes. The name of its file, which has to follow; empty if it lies in a pack."""
        index = self.index
        size, number = index.sizes[slot], index.packs[slot]
        name = ""
        if number == NO_PACK:
            name = self.name_of_large(slot)
            self.disk_bytes -= size
            self.journal.leaving(name)
        else:
            self.packs[number].live -= ITEM_BYTES + size
        self.recent.drop(slot)
        self.journal.forget(slot)
        index.remove(slot)
        return name

    async def discard(self, row: Row) -> None:
        """What was found damaged goes, with its file; `row` says what was read, and may be out of date by now."""
        slot, is_large = row[0], row[4] == NO_PACK
        name = blob_name_of_large(self.index.shelves[row[1]].tenant, row[2]) if is_large else ""
        if name:
            await self.claim(name)
        try:
            if self.index.row(slot)[:-1] != row[:-1] or (is_large and self.index.is_sure[slot]):
                return
            self.remove(slot)
            if name:
                await self.journal.flush()
                await self.blobs.drop([name])
                self.journal.left(name)
        finally:
            if name:
                self.free(name)

    def name_of_large(self, slot: Slot) -> str:
        """The name of a large content among the blobs."""
        index = self.index
        return blob_name_of_large(index.shelves[index.owners[slot]].tenant, index.keys[slot])

    async def claim(self, name: str) -> None:
        """Be the only one that has a file come or go under a name."""
        while self.is_claimed(name):
            await asyncio.shield(self._moving[name])
        self._moving[name] = asyncio.get_running_loop().create_future()

    def claim_now(self, name: str) -> None:
        """The same for a name that nobody has claimed."""
        assert name not in self._moving, "somebody else has it"
        self._moving[name] = asyncio.get_running_loop().create_future()

    def is_claimed(self, name: str) -> bool:
        """Whether a file comes or goes under that name."""
        return name in self._moving

    def free(self, name: str) -> None:
        """Let others have a name."""
        self._moving.pop(name).set_result(None)

    def begin_reading(self, slot: Slot) -> None:
        """Whatever is evicted, this is not."""
        self._readers[slot] = self._readers.get(slot, 0) + 1

    def end_reading(self, slot: Slot) -> None:
        """One reader fewer."""
        self._readers[slot] -= 1
        if not self._readers[slot]:
            del self._readers[slot]

    def is_read(self, slot: Slot) -> bool:
        """Whether somebody is reading it."""
        return slot in self._readers


def lost(digest: Digest) -> ContentLost:
    """What to raise for content that is not there."""
    return ContentLost(f"{digest.hash}/{digest.size} is not there")


def unavailable(error: OSError) -> Unavailable:
    """What to raise when the disk is full, or fails."""
    code = "store.full" if error.errno in _NO_SPACE else "store.unavailable"
    return Unavailable(code, f"content cannot be reached or kept: {error}.")


def tenant_root(tenant: str) -> str:
    """Where a tenant's content is among the blobs."""
    return f"{ROOT}/{safe_name(tenant)}"


def blob_name_of_pack(tenant: str, number: int) -> str:
    """A pack among the blobs."""
    return f"{tenant_root(tenant)}/packs/{pack_name(number)}"


def blob_name_of_large(tenant: str, key: bytes) -> str:
    """A large content among the blobs."""
    text = key.hex()
    return f"{tenant_root(tenant)}/large/{text[:2]}/{text}"
