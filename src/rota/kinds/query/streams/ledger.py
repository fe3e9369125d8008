"""The ledger of a folder that is read as a stream: its files in the order in which they were seen, for good.

A folder has no offsets of its own: files come in any order, with any names and times. So each file gets a number when
it is seen first, and that is written down before any of its rows are read.

    <number of its first file>.json    files that were new at one look, in their order; a name is taken with `link`, so
                                       that rivals agree
    <first>-<end>.json                 files of many looks, put together so that few files say what is known. It counts
                                       for all numbers from `first` up to `end`, whatever else is there
"""

import os
import secrets
import zlib
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.flushing import write_flushed
from rota.wire.flushing import flush

# How many files of looks, or of those put together, there are before they are put together.
_PARTS_MAX = 64
_LISTED_MAX = 3


class Entry(Struct, frozen=True, array_like=True):
    """A file as it was when it was seen first. `rows` is -1 where that takes reading all of it."""

    name: str
    bytes: int
    changed_at_ns: int
    rows: int
    partition: int


_decode = msgspec.json.Decoder(list[Entry]).decode


class Part(Struct, frozen=True):
    """A file of the ledger. One of a single look has no `end`: what it has follows what was known before it."""

    first: int
    end: int | None
    path: Path

    def covers(self, number: int) -> bool:
        """Whether it is known to have a file of that number."""
        return self.end is not None and self.first <= number < self.end


class Ledger:
    """Files of all partitions, and of each one by their numbers."""

    def __init__(self, folder: Path, partitions: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._partitions = partitions
        self._entries: list[Entry] = []
        self._known: dict[str, None] = {}
        self._of: list[list[Entry]] = [[] for _ in range(partitions)]
        self.read()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def packed(self) -> bytes:
        """All that is known, for another folder."""
        return _pack(self._entries)

    def recall(self, packed: bytes) -> bool:
        """Know what another folder has packed; False if something else is known."""
        try:
            entries = _unpack(packed)
        except ValueError as error:
            raise Refused("stream.corrupt", f"a list of files cannot be read: {error}", "Choose another one.") from None
        known = len(self._entries)
        if self._entries != entries[:known]:
            return self._entries[: len(entries)] == entries
        self.add(entries[known:])
        return self._entries[: len(entries)] == entries

    def of(self, partition: int) -> list[Entry]:
        """The files of a partition, in their order."""
        return self._of[partition]

    def at_least(self, partition: int, count: int) -> list[Entry]:
        """The files of a partition, of which so many were seen by somebody: a rival may know more than this one."""
        if len(self._of[partition]) < count:
            self.read()
        if len(self._of[partition]) < count:
            text = f"{count:,} files of partition {partition} were planned to be read, and fewer are noted"
            raise _damaged(self._folder, text)
        return self._of[partition]

    def partition_of(self, name: str) -> int:
        """Where a file belongs, by its name."""
        return zlib.crc32(name.encode(errors="surrogateescape")) % self._partitions

    def add(self, entries: list[Entry]) -> None:
        """Write down files that are new. If somebody else did so meanwhile, theirs count, and ours are seen again."""
        if not entries:
            return
        first = len(self._entries)
        path = self._write(f"{first:012d}", entries)
        if path is not None and any(each.covers(first) for each in self._parts()):
            # The name was free because whoever had it has put it together with others.
            path.unlink(missing_ok=True)
            path = None
        if path is None:
            self.read()
            return
        self._take(entries)
        self._put_together()

    def read(self) -> None:
        """See what others have written down."""
        while (part := self._next()) is not None:
            try:
                found = _unpack(part.path.read_bytes())
            except FileNotFoundError:
                # Put together with others since it was listed.
                continue
            except (ValueError, OSError) as error:
                raise _damaged(part.path, str(error)) from None
            if part.end is not None and len(found) != part.end - part.first:
                raise _damaged(part.path, f"it has {len(found)} files")
            self._take(found[len(self._entries) - part.first :])

    def _next(self) -> Part | None:
        """Where the files are that come after those that are known: in what reaches furthest."""
        known = len(self._entries)
        beyond: list[Part] = []
        # Names that are taken and given up while a folder is listed may both be missed.
        for _ in range(_LISTED_MAX):
            parts = self._parts()
            if covering := [each for each in parts if each.covers(known)]:
                return max(covering, key=lambda each: each.end or 0)
            if here := [each for each in parts if each.end is None and each.first == known]:
                return here[0]
            beyond = [each for each in parts if each.first > known]
            if not beyond:
                return None
        raise _damaged(beyond[0].path, f"files {known:,} to {beyond[0].first - 1:,} are not there")

    def _parts(self) -> list[Part]:
        found: list[Part] = []
        for name in os.listdir(self._folder):  # noqa: PTH208 - names, of which there may be many
            first, _, end = name.removesuffix(".json").partition("-")
            if name.endswith(".json") and first.isdecimal() and (not end or end.isdecimal()):
                found.append(Part(int(first), int(end) if end else None, self._folder / name))
        return sorted(found, key=lambda each: each.path.name)

    def _put_together(self) -> None:
        """Few files in the place of many: those of looks first, and now and then all of them."""
        parts = self._parts()
        looks = [each for each in parts if each.end is None]
        if len(looks) < _PARTS_MAX:
            return
        known = len(self._entries)
        first = 0 if len(parts) - len(looks) >= _PARTS_MAX else looks[0].first
        self._write(f"{first:012d}-{known:012d}", self._entries[first:])
        # Also where that was there already: whoever put it together may have been killed before this. What a rival has
        # written since is not a part of it.
        for each in parts:
            if first <= each.first < known and (each.end or 0) <= known and (each.first, each.end) != (first, known):
                each.path.unlink(missing_ok=True)

    def _write(self, name: str, entries: list[Entry]) -> Path | None:
        """A file of the ledger, or None if somebody else had the name."""
        # Not by the number of this process: those in containers share them.
        aside, path = self._folder / f"_{name}-{secrets.token_hex(8)}", self._folder / f"{name}.json"
        try:
            write_flushed(aside, [_pack(entries)])
            os.link(aside, path)
        except FileExistsError:
            return None
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
        flush(self._folder)
        return path

    def _take(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._entries.append(entry)
            self._known[entry.name] = None
            self._of[entry.partition].append(entry)


def _pack(entries: list[Entry]) -> bytes:
    """Files as bytes, with the checksum of these before them: a name that is off by a bit is that of another file."""
    content = msgspec.json.encode(entries)
    return b"%b\n%b" % (sha256(content).hexdigest().encode(), content)


def _unpack(packed: bytes) -> list[Entry]:
    """The files again; ValueError with what is wrong."""
    checksum, _, content = packed.partition(b"\n")
    if checksum != sha256(content).hexdigest().encode():
        raise ValueError("it has another checksum")
    return _decode(content)


def _damaged(path: Path, why: str) -> Refused:
    text = f"{path} is not what was written: {why}"
    hint = "Remove its folder and restore a savepoint, which has a copy; or restore the stream's folder from one."
    return Refused("stream.corrupt", text, hint)
