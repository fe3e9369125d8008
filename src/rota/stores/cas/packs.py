"""Packs: files in which small contents of one tenant lie one after the other, and how they are read back.

A pack says whose it is, and before each content stands its key, its size and a check of both. So an index can be made
by reading packs alone, and a tail that was torn off is noticed.
"""

import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from rota.stores.cas.index import KEY_BYTES

_MAGIC = b"ROTAPCK1"
_HEAD = struct.Struct("<8sI")
_MARK = b"\xc4item"
_ITEM = struct.Struct(f"<5s{KEY_BYTES}sI")
_CHECK = struct.Struct("<I")
# What an entry takes beside its content.
ITEM_BYTES = _ITEM.size + _CHECK.size
_TENANT_BYTES_MAX = 1_000
_HEAD_BYTES_MAX = _HEAD.size + _TENANT_BYTES_MAX
_SCAN_BYTES = 4 * 1024 * 1024

# Reads `size` bytes from an offset; fewer only at the end.
ReadAt = Callable[[int, int], bytes]


class Pack:
    """One pack: how large it is, how much of that counts, and where it is."""

    __slots__ = ("is_moving", "live", "name", "number", "path", "shelf", "size")

    def __init__(self, number: int, shelf: int, name: str, path: Path | None, size: int) -> None:
        self.number = number
        self.shelf = shelf
        # Its name among the blobs, where it lies unless it has a path.
        self.name = name
        self.path = path
        self.size = size
        self.live = 0
        self.is_moving = False

    @property
    def holes(self) -> float:
        """Which part of it nobody can ask for, besides what says whose it is; all of one in which nothing counts."""
        return max(0.0, 1.0 - (self.live + _HEAD_BYTES_MAX) / self.size) if self.live else 1.0


class Item(Struct, frozen=True, gc=False):
    """Content that was found in a pack; `place` is where its first byte lies."""

    key: bytes
    place: int
    content: bytes
    is_whole: bool


def head(tenant: str) -> bytes:
    """How a pack of a tenant begins."""
    name = tenant.encode("utf-8", "surrogatepass")
    assert len(name) <= _TENANT_BYTES_MAX, "a tenant is an id, and ids are short"
    return _HEAD.pack(_MAGIC, len(name)) + name


def item_head(key: bytes, size: int) -> bytes:
    """What stands before a content."""
    item = _ITEM.pack(_MARK, key, size)
    return item + _CHECK.pack(crc32(item))


def read_head(read: ReadAt) -> tuple[str, int] | None:
    """Whose pack it is, and where its first item is; None if it is no pack."""
    start = read(0, _HEAD_BYTES_MAX)
    if len(start) < _HEAD.size:
        return None
    magic, length = _HEAD.unpack_from(start)
    end = _HEAD.size + length
    if magic != _MAGIC or len(start) < end:
        return None
    return start[_HEAD.size : end].decode("utf-8", "surrogatepass"), end


def scan(read: ReadAt, start: int, size: int) -> Iterator[Item]:
    """The items of a pack from an offset on, up to the first that is not all there.

    The offset must be where an item begins, or 0 for the first one.
    """
    if start == 0:
        found = read_head(read)
        if found is None:
            return
        start = found[1]
    held, base, at = b"", start, start
    while at + ITEM_BYTES <= size:
        if at + ITEM_BYTES > base + len(held):
            held, base = read(at, _SCAN_BYTES), at
        item = held[at - base : at - base + ITEM_BYTES]
        if len(item) < ITEM_BYTES or _CHECK.unpack_from(item, _ITEM.size)[0] != crc32(item[: _ITEM.size]):
            return
        mark, key, length = _ITEM.unpack_from(item)
        place = at + ITEM_BYTES
        at = place + length
        if mark != _MARK or at > size:
            return
        if at > base + len(held):
            held, base = read(place, max(length, _SCAN_BYTES)), place
        content = held[place - base : at - base]
        yield Item(key, place, content, sha256(content).digest() == key)


def end_of(items: Iterator[Item], start: int) -> tuple[list[tuple[bytes, int, int]], int]:
    """What whole items there are, by key, place and size, and where the last one ends."""
    found: list[tuple[bytes, int, int]] = []
    for item in items:
        start = item.place + len(item.content)
        if item.is_whole:
            found.append((item.key, item.place, len(item.content)))
    return found, start
