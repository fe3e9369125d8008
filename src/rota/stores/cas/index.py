"""What content there is, in memory: where each lies, how large it is, when it was used last.

An entry is a number, its *slot*; what is known of it stands in columns, so that a million entries take some 200 MB
and asking for thousands of digests is a loop over a dictionary. Entries stand in line by the second in which they were
used last. One that is used again gets a second place in the line, and the first one does not count any more; a line
that is mostly such places is squeezed.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from rota.core.ids import Digest
from rota.ports import WrongContent

# Seconds since 1970. One second is as fine as the line is ordered.
Tick = int
Slot = int

# An entry as the journal keeps it: slot, shelf, key, size, pack, place, last use.
Row = tuple[Slot, int, bytes, int, int, int, Tick]

# SHA-256 of nothing. Whoever has no bytes to send does not send them.
EMPTY_KEY = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
KEY_BYTES = 32
# What lies in no pack is a file of its own.
NO_PACK = 0
_FREE: Tick = 0
# Places that count for nothing, at least, before the line is squeezed.
_SPARE_PLACES = 50_000
_SLOTS_AT_ONCE = 1_024


class Shelf:
    """What one tenant has: the slot of each key."""

    __slots__ = ("number", "slots", "tenant")

    def __init__(self, number: int, tenant: str) -> None:
        self.number = number
        self.tenant = tenant
        self.slots: dict[bytes, Slot] = {}


class Index:
    """All entries, and the line in which they wait to be evicted."""

    def __init__(self) -> None:
        self.shelves: list[Shelf] = []
        self._by_tenant: dict[str, Shelf] = {}
        self.keys: list[bytes] = []
        self.owners = array("I")
        self.sizes = array("q")
        self.packs = array("I")
        self.places = array("I")
        self.used = array("I")
        # When the journal was told of the last use.
        self.noted = array("I")
        # Whether the file of a large one was seen to be whole since the start.
        self.is_sure = bytearray()
        self._free = array("I")
        self._line: deque[tuple[Tick, array[int]]] = deque()
        self._places = 0

    def __len__(self) -> int:
        return len(self.keys) - len(self._free)

    def find_shelf(self, tenant: str) -> Shelf | None:
        """A tenant's shelf, if it ever had one."""
        return self._by_tenant.get(tenant)

    def add_shelf(self, tenant: str) -> Shelf:
        """A shelf for a tenant that has none."""
        shelf = Shelf(len(self.shelves), tenant)
        self.shelves.append(shelf)
        self._by_tenant[tenant] = shelf
        return shelf

    def find(self, tenant: str, key: bytes, size: int) -> Slot | None:
        """The slot of some content, if it is there and has that size."""
        shelf = self._by_tenant.get(tenant)
        slot = None if shelf is None else shelf.slots.get(key)
        return slot if slot is not None and self.sizes[slot] == size else None

    def missing(self, tenant: str, digests: Iterable[Digest], tick: Tick) -> list[Digest]:
        """Which of these are not there; the others were used now."""
        shelf = self._by_tenant.get(tenant)
        slots: dict[bytes, Slot] = {} if shelf is None else shelf.slots
        places = self._places_at(tick)
        sizes, used, to_key = self.sizes, self.used, bytes.fromhex
        missing: list[Digest] = []
        before = len(places)
        try:
            for digest in digests:
                key, size = to_key(digest.hash), digest.size
                slot = slots.get(key)
                if slot is None or sizes[slot] != size:
                    if len(key) != KEY_BYTES or len(digest.hash) != 2 * KEY_BYTES or size < 0:
                        raise no_digest(digest)
                    if size or key != EMPTY_KEY:
                        missing.append(digest)
                elif used[slot] != tick:
                    used[slot] = tick
                    places.append(slot)
        except ValueError:
            raise WrongContent("a hash is not hexadecimal") from None
        finally:
            self._places += len(places) - before
        return missing

    def touch(self, slot: Slot, tick: Tick) -> None:
        """An entry was used."""
        if self.used[slot] != tick:
            self.requeue(slot, tick)

    def requeue(self, slot: Slot, tick: Tick) -> None:
        """An entry goes to the end of the line."""
        self.used[slot] = tick
        self._places_at(tick).append(slot)
        self._places += 1

    def _places_at(self, tick: Tick) -> "array[int]":
        """The end of the line. Ticks only grow."""
        if not self._line or self._line[-1][0] != tick:
            self._line.append((tick, array("I")))
        return self._line[-1][1]

    def add(self, shelf: Shelf, key: bytes, size: int, pack: int, place: int, tick: Tick) -> Slot:
        """A new entry; its key is not on the shelf yet."""
        if not self._free:
            self._grow(_SLOTS_AT_ONCE)
            self._free.extend(range(len(self.keys) - 1, len(self.keys) - _SLOTS_AT_ONCE - 1, -1))
        slot = self._free.pop()
        self.keys[slot] = key
        self.owners[slot] = shelf.number
        self.sizes[slot] = size
        self.packs[slot] = pack
        self.places[slot] = place
        shelf.slots[key] = slot
        self.noted[slot] = tick
        self.requeue(slot, tick)
        return slot

    def load(self, rows: Sequence[Row]) -> None:
        """Take in what a journal has, in any order, into an index that is empty."""
        self._grow(max((row[0] for row in rows), default=-1) + 1)
        keys, owners, sizes, packs, places = self.keys, self.owners, self.sizes, self.packs, self.places
        by_tick: dict[Tick, array[int]] = {}
        shelves = [shelf.slots for shelf in self.shelves]
        for slot, owner, key, size, pack, place, tick in rows:
            keys[slot] = key
            owners[slot] = owner
            sizes[slot] = size
            packs[slot] = pack
            places[slot] = place
            self.used[slot] = tick
            shelves[owner][key] = slot
            there = by_tick.get(tick)
            if there is None:
                there = by_tick[tick] = array("I")
            there.append(slot)
        self.noted = array("I", self.used)
        self._free = array("I", [slot for slot, tick in enumerate(self.used) if tick == _FREE])
        self._line = deque(sorted(by_tick.items()))
        self._places = len(self)

    @property
    def newest(self) -> Tick:
        """When anything was used last."""
        return self._line[-1][0] if self._line else _FREE

    def _grow(self, count: int) -> None:
        """Have this many slots more."""
        self.keys += [b""] * count
        for column in (self.owners, self.sizes, self.packs, self.places, self.used, self.noted):
            column.frombytes(bytes(column.itemsize * count))
        self.is_sure += bytes(count)

    def remove(self, slot: Slot) -> None:
        """An entry is gone, and its slot is free."""
        del self.shelves[self.owners[slot]].slots[self.keys[slot]]
        self.keys[slot] = b""
        self.used[slot] = _FREE
        self.is_sure[slot] = False
        self._free.append(slot)

    def has(self, slot: Slot) -> bool:
        """Whether there is an entry in this slot."""
        return self.used[slot] != _FREE

    def is_at(self, shelf: Shelf, key: bytes, pack: int, place: int) -> bool:
        """Whether the content that lies there is the one that counts."""
        slot = shelf.slots.get(key)
        return slot is not None and self.packs[slot] == pack and self.places[slot] == place

    def row(self, slot: Slot) -> Row:
        """What the journal is to keep of an entry."""
        where = (self.sizes[slot], self.packs[slot], self.places[slot])
        return (slot, self.owners[slot], self.keys[slot], *where, self.used[slot])

    def oldest(self, wanted_bytes: int, count_max: int, before: Tick) -> list[Slot]:
        """The first in line with some bytes in all, as far as they were used before a tick. They leave the line.

        A slot may be named twice.
        """
        found: list[Slot] = []
        while self._line and self._line[0][0] < before:
            tick, places = self._line[0]
            while places:
                if wanted_bytes <= 0 or len(found) >= count_max:
                    return found
                slot = places.pop()
                self._places -= 1
                if self.used[slot] == tick:
                    found.append(slot)
                    wanted_bytes -= self.sizes[slot]
            self._line.popleft()
        return found

    def used_since(self, tick: Tick) -> Iterator[Slot]:
        """The entries whose last use was then or later; some may come twice."""
        for at, places in reversed(list(self._line)):
            if at < tick:
                return
            yield from [slot for slot in places if self.used[slot] == at]

    def is_slack(self) -> bool:
        """Whether most places in the line count for nothing."""
        return self._places > 2 * len(self) + _SPARE_PLACES

    def squeeze(self) -> Iterator[None]:
        """Take the places that count for nothing out of the line, a slice at a time."""
        for tick, places in list(self._line):
            kept = array("I", [slot for slot in places if self.used[slot] == tick])
            self._places -= len(places) - len(kept)
            places[:] = kept
            yield
        self._line = deque((tick, places) for tick, places in self._line if places)


def key_of(digest: Digest) -> bytes:
    """The bytes of a hash. Raises `WrongContent` if the digest is none."""
    try:
        key = bytes.fromhex(digest.hash)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES or len(digest.hash) != 2 * KEY_BYTES or digest.size < 0:
        raise no_digest(digest)
    return key


def no_digest(digest: Digest) -> WrongContent:
    """What to raise for something that names no content."""
    return WrongContent(f"{digest.hash[:100]!r} with {digest.size:,} bytes is no digest")
