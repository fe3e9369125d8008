"""The synchronous heart of the SQLite store: one folder, one writing connection, one reading one.

Not for several threads at once: whoever drives it sees to it that writing (`elect`, `commit`, `tidy`) happens on one
thread at a time, and reading likewise. The two never wait for each other. `holds` and `release` touch only the lock
and may be called from anywhere.
"""

import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from rota.core.errors import Refused
from rota.core.ids import EPOCH_MAX, Epoch, Millis
from rota.core.records import Batch, Record
from rota.ports import CommitUnknown, StoreRefused
from rota.stores.sql.migrations import MIGRATIONS, Migration
from rota.stores.sqlite.disk_reader import DiskReader, check_epoch, epoch_of, identity_of, read_identity_file
from rota.stores.sqlite.errors import UNSTORABLE, is_full, not_read, not_written
from rota.stores.sqlite.lock import FolderLock, holder_of
from rota.stores.sqlite.opening import BUSY_MS, open_folder, open_reader
from rota.stores.sqlite.tidying import tidy
from rota.stores.sqlite.writing import Plan, Writer


class SqliteDisk(DiskReader):
    """A data folder. Raises `Refused` or `Unavailable` if it cannot be opened."""

    def __init__(self, folder: Path, migrations: Sequence[Migration] = MIGRATIONS, vfs: str | None = None) -> None:
        self.migrations = migrations
        self.writer = open_folder(folder, vfs, migrations)
        super().__init__(folder, open_reader(folder, vfs), vfs)
        self.lock = FolderLock(folder)
        self._held = Epoch(0)
        self._inode = self.path.stat().st_ino
        self._writing = Writer(self.writer)

    def close(self) -> None:
        """Give back the lock and everything else; may be called twice."""
        self._held = Epoch(0)
        self.lock.free()
        super().close()
        self.writer.close()

    # Which store this is.

    def identity(self) -> str:
        """The identity of the store. It is made by the first process that asks for it, and is part of every backup.

        A folder of an older version has it in a file; it keeps that one.
        """
        try:
            found = identity_of(self.writer)
        except apsw.Error as error:
            raise not_read(error, self.writer, self.path) from error
        if found:
            return found
        self._begin()
        with self._transaction():
            found = identity_of(self.writer) or read_identity_file(self.folder) or secrets.token_hex(16)
            self.writer.execute("INSERT OR IGNORE INTO identity (only, value) VALUES (1, ?)", (found,))
        return found

    # Who may write.

    def elect(self, who: str = "") -> Epoch | None:
        """Take the lock if it is free and bump the epoch. A commit that is under way elsewhere counts as not free."""
        self._check_place()
        if not self.lock.take(who):
            return None
        epoch: Epoch | None = None
        try:
            epoch = self._bump()
        finally:
            if epoch is None:
                self.lock.free()
        self._writing.forget()
        self._held = epoch or Epoch(0)
        return epoch

    def _check_place(self) -> None:
        """The lock is where the folder is now; the database must be too, or two would hold one of them each."""
        try:
            is_ours = self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            is_ours = False
        if not is_ours:
            text = f"{self.path} is not the database that was opened: the folder was moved or replaced"
            raise Refused("store.missing", text, "Stop this process, and start one on the folder where it is now.")

    def _bump(self) -> Epoch | None:
        self.writer.set_busy_timeout(0)
        try:
            self.writer.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return None
        except apsw.Error as error:
            raise not_written(error, self.writer, self.path) from error
        finally:
            self.writer.set_busy_timeout(BUSY_MS)
        with self._transaction():
            epoch = Epoch(epoch_of(self.writer) + 1)
            assert epoch <= EPOCH_MAX, "eight million elections"
            self.writer.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
        return epoch

    def holds(self, epoch: Epoch) -> bool:
        """Whether the lock is held by that election."""
        return epoch > 0 and self._held == epoch and self.lock.is_held()

    def release(self, epoch: Epoch) -> None:
        """Free the lock if it is still held by that election."""
        if epoch > 0 and self._held == epoch:
            self._held = Epoch(0)
            self.lock.free()

    def holder(self) -> str:
        """Who holds the lock, for people; empty if nobody does."""
        return holder_of(self.folder)

    # Writing.

    def commit(self, epoch: Epoch, batch: Batch) -> None:
        """Write a batch whole, or raise and write nothing, or raise CommitUnknown."""
        try:
            plan = Plan(batch)
        except UNSTORABLE as error:
            raise StoreRefused(f"{type(error).__name__}: {error}") from error
        self._begin()
        with self._transaction():
            check_epoch(self.writer, epoch)
            self._writing.write(plan)

    def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """One slice of housekeeping."""
        self._begin()
        with self._transaction():
            check_epoch(self.writer, epoch)
            return tidy(self.writer, now, keep_ms, self.migrations)

    def _begin(self) -> None:
        try:
            self.writer.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise not_written(error, self.writer, self.path) from error

    @contextmanager
    def _transaction(self) -> Generator[None, None, None]:
        """Commit what is done inside, or undo it and say in our words why."""
        try:
            yield
        except BaseException as error:
            said = not_written(error, self.writer, self.path)
            self._undo()
            if said is error:
                raise
            raise said from error
        try:
            self.writer.execute("COMMIT")
        except apsw.Error as error:
            # Space runs out while the log is written and before its last page makes the commit true. After any other
            # error, of a sync above all, that page may or may not be on the disk.
            said = not_written(error, self.writer, self.path) if is_full(error, self.writer) else None
            self._undo()
            raise said or CommitUnknown(f"{self.path}: {type(error).__name__}: {error}") from error

    def _undo(self) -> None:
        self._writing.forget()
        if self.writer.in_transaction:
            self.writer.execute("ROLLBACK")

    def load(self, epoch: Epoch) -> list[Record]:
        """All live records, for the reigning epoch only."""
        return [record for records in self.live(epoch) for record in records]
