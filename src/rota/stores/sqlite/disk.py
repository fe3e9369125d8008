"""The synchronous heart of the SQLite store: one folder, one writing connection, one reading one.

Not for several threads at once: whoever drives it sees to it that writing (`elect`, `commit`, `tidy`) happens on one
thread at a time, and reading likewise. The two never wait for each other. `holds` and `release` touch only the lock
and may be called from anywhere.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from rota.core.errors import Refused
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import EPOCH_MAX, Epoch, Millis
from rota.core.model import Graph
from rota.core.records import Batch, Record, Story
from rota.ports import CommitUnknown, Fenced, Kept, StoreRefused
from rota.stores.sql.migrations import MIGRATIONS, Migration
from rota.stores.sqlite import reading
from rota.stores.sqlite.connection import Connection
from rota.stores.sqlite.errors import UNREADABLE, UNSTORABLE, is_full, not_read, not_written
from rota.stores.sqlite.lock import FolderLock, holder_of
from rota.stores.sqlite.opening import BUSY_MS, DATABASE_NAME, open_folder, open_reader
from rota.stores.sqlite.tidying import tidy
from rota.stores.sqlite.writing import Plan, Writer

T = TypeVar("T")

_EPOCH = "SELECT value FROM meta WHERE name = 'epoch'"


class SqliteDisk:
    """A data folder. Raises `Refused` or `Unavailable` if it cannot be opened."""

    def __init__(self, folder: Path, migrations: Sequence[Migration] = MIGRATIONS, vfs: str | None = None) -> None:
        self.folder = folder
        self.path = folder / DATABASE_NAME
        self.migrations = migrations
        self._vfs = vfs
        self.writer = open_folder(folder, vfs, migrations)
        self.reader = open_reader(folder, vfs)
        self.lock = FolderLock(folder)
        self._held: Epoch = 0
        self._inode = self.path.stat().st_ino
        self._writing = Writer(self.writer)

    def close(self) -> None:
        """Give back the lock and everything else; may be called twice."""
        self._held = 0
        self.lock.free()
        self.reader.close()
        self.writer.close()

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
        self._held = epoch or 0
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
            epoch = self._epoch(self.writer) + 1
            assert epoch <= EPOCH_MAX, "eight million elections"
            self.writer.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
        return epoch

    def holds(self, epoch: Epoch) -> bool:
        """Whether the lock is held by that election."""
        return epoch > 0 and self._held == epoch and self.lock.is_held()

    def release(self, epoch: Epoch) -> None:
        """Free the lock if it is still held by that election."""
        if epoch > 0 and self._held == epoch:
            self._held = 0
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
            self._compare(self.writer, epoch)
            self._writing.write(plan)

    def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """One slice of housekeeping."""
        self._begin()
        with self._transaction():
            self._compare(self.writer, epoch)
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

    # Reading.

    def load(self, epoch: Epoch) -> list[Record]:
        """All live records, for the reigning epoch only."""
        return [record for records in self.live(epoch) for record in records]

    def live(self, epoch: Epoch | None) -> Generator[list[Record], None, None]:
        """All live records as they are now, some at a time; without an epoch, for whoever only looks."""
        with closing(self._read(lambda: open_reader(self.folder, self._vfs))) as connection:
            self._read(lambda: connection.execute("BEGIN"))
            if epoch is not None:
                self._compare(connection, epoch)
            chunks = reading.live_records(connection)
            while (records := self._read(lambda: next(chunks, None))) is not None:
                yield records

    def page(self, query: HistoryQuery) -> Page:
        """One page of history."""
        return self._read(lambda: reading.page_of(self.reader, query))

    def ended(self, tenant: str, run: str, created_at: Millis = 0) -> Ended | None:
        """One run of history."""

        def read() -> Ended | None:
            with self.reader:
                return reading.ended_run(self.reader, tenant, run, created_at)

        return self._read(read)

    def graph(self, tenant: str, digest: str) -> Graph | None:
        """A definition, live or kept for the history."""

        def read() -> Graph | None:
            with self.reader:
                return reading.graph_of(self.reader, tenant, digest)

        return self._read(read)

    def kept(self) -> Kept:
        """What is referred to, live or in history."""

        def read() -> Kept:
            with self.reader:
                return reading.kept(self.reader)

        return self._read(read)

    def audits(self, query: ListAudits) -> AuditsPage:
        """Who asked for what."""
        return self._read(lambda: reading.audits_of(self.reader, query))

    def told(self, tenant: str, run: str, created_at: Millis) -> list[Story]:
        """The story of one run."""

        def read() -> list[Story]:
            with self.reader:
                return reading.stories_of(self.reader, tenant, run, created_at)

        return self._read(read)

    def _read(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (apsw.Error, *UNREADABLE) as error:
            raise not_read(error, self.reader, self.path) from error

    def _compare(self, connection: Connection, epoch: Epoch) -> None:
        # The epoch alone decides, not the lock: a writer whose lock was lost and not yet taken by another has not
        # been overtaken, and its commits are still in order.
        reigns = self._epoch(connection)
        if epoch != reigns or epoch <= 0:
            raise Fenced(f"epoch {epoch} has passed; {reigns} reigns")

    def _epoch(self, connection: Connection) -> Epoch:
        ((epoch,),) = connection.execute(_EPOCH)
        return int(epoch)
