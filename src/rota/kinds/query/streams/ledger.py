"""The ledger of a folder that is read as a stream: its files in the order in which they were seen, for good.

A folder has no offsets of its own: files come in any order, with any names and times. So each file gets a number when
it is seen first, and that is written down before any of its rows are read.

    <number of its first file>.json    files, in their order; a name is taken with `link`, so that rivals agree
"""

import os
import secrets
import zlib
from pathlib import Path

import msgspec
from msgspec import Struct

from rota.core.errors import Refused
from rota.kinds.query.streams.flushing import write_flushed
from rota.wire.flushing import flush


class Entry(Struct, frozen=True, array_like=True):
    """A file as it was when it was seen first. `rows` is -1 where that takes reading all of it."""

    name: str
    bytes: int
    changed_at_ns: int
    rows: int
    partition: int


_decode = msgspec.json.Decoder(list[Entry]).decode


class Ledger:
    """Files of all partitions, and of each one by their numbers."""

    def __init__(self, folder: Path, partitions: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._partitions = partitions
        self._known: dict[str, Entry] = {}
        self._of: list[list[Entry]] = [[] for _ in range(partitions)]
        self.read()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def of(self, partition: int) -> list[Entry]:
        """The files of a partition, in their order."""
        return self._of[partition]

    def partition_of(self, name: str) -> int:
        """Where a file belongs, by its name."""
        return zlib.crc32(name.encode()) % self._partitions

    def add(self, entries: list[Entry]) -> None:
        """Write down files that are new. If somebody else did so meanwhile, theirs count, and ours are seen again."""
        if not entries:
            return
        first = len(self._known)
        # Not by the number of this process: those in containers share them.
        aside = self._folder / f"_{first:012d}-{secrets.token_hex(8)}"
        try:
            write_flushed(aside, [msgspec.json.encode(entries)])
            os.link(aside, self._folder / f"{first:012d}.json")
        except FileExistsError:
            self.read()
            return
        finally:
            aside.unlink(missing_ok=True)
        flush(self._folder)
        self._take(entries)

    def read(self) -> None:
        """See what others have written down."""
        for path in sorted(self._folder.glob("[0-9]*.json")):
            if int(path.stem) < len(self._known):
                continue
            try:
                self._take(_decode(path.read_bytes()))
            except msgspec.DecodeError as error:
                text = f"{path} is not what was written: {error}"
                raise Refused("stream.corrupt", text, "Restore the folder of the stream from a copy.") from None

    def _take(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._known[entry.name] = entry
            self._of[entry.partition].append(entry)
