"""A file system under SQLite that fails when it is told to."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import apsw

_numbers = count()


class FaultyFiles(apsw.VFS):
    """The real files, with faults: no space for any write, or a log that cannot be synced."""

    def __init__(self) -> None:
        self.name = f"faulty-{os.getpid()}-{next(_numbers)}"
        self.is_full = False
        self.fails_to_sync = False
        self.writes = 0
        super().__init__(self.name, "")

    def xOpen(self, name: object, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name for it
        return _File(self, name, flags)

    @contextmanager
    def full(self) -> Iterator[None]:
        """No space in here."""
        self.is_full = True
        try:
            yield
        finally:
            self.is_full = False


class _File(apsw.VFSFile):
    def __init__(self, files: FaultyFiles, name: object, flags: list[int]) -> None:
        self.files = files
        super().__init__("", name, flags)

    def xWrite(self, content: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name for it
        if self.files.is_full:
            raise apsw.FullError("database or disk is full")
        self.files.writes += 1
        super().xWrite(content, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name for it
        if self.files.fails_to_sync:
            raise apsw.IOError("the disk did not sync")
        super().xSync(flags)
