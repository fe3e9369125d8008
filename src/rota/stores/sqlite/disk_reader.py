"""The reading half of the SQLite store: one connection that never writes, and needs no lock."""

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import apsw

from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Epoch, GraphDigest, Millis, RunId
from rota.core.model import Graph
from rota.core.records import Record, Story
from rota.ports import Fenced, Kept
from rota.stores.sql.migrations import latest
from rota.stores.sqlite import reading
from rota.stores.sqlite.connection import Connection
from rota.stores.sqlite.errors import UNREADABLE, not_read
from rota.stores.sqlite.opening import DATABASE_NAME, open_existing, open_reader

T = TypeVar("T")

_EPOCH = "SELECT value FROM meta WHERE name = 'epoch'"
_IDENTITY = "SELECT value FROM identity WHERE only = 1"
# The identity again, as a file beside the database: for people, and of folders that were made before version 8.
IDENTITY_FILE = "home"


class DiskReader:
    """A data folder that is only read. Not for several threads at once."""

    def __init__(self, folder: Path, reader: Connection | None = None, vfs: str | None = None) -> None:
        """Without a connection the folder has to be there; nothing is made in it. Raises `Refused`."""
        self.folder = folder
        self.path = folder / DATABASE_NAME
        self.reader = reader or open_existing(folder)
        self._vfs = vfs

    def close(self) -> None:
        """Give the connection back; may be called twice."""
        self.reader.close()

    def is_current(self) -> bool:
        """Whether its tables are those of this version of Rota."""
        return self._read(lambda: int(self.reader.pragma("user_version")) == latest())

    def version(self) -> int:
        """A number that changes with every commit of another connection."""
        return self._read(lambda: int(self.reader.pragma("data_version")))

    def epoch(self) -> Epoch:
        """The newest epoch."""
        return self._read(lambda: epoch_of(self.reader))

    def live(self, epoch: Epoch | None) -> Generator[list[Record], None, None]:
        """All live records as they are now, some at a time; without an epoch, for readers."""
        with closing(self._read(lambda: open_reader(self.folder, self._vfs))) as connection:
            self._read(lambda: connection.execute("BEGIN"))
            if epoch is not None:
                check_epoch(connection, epoch)
            chunks = reading.live_records(connection)
            while (records := self._read(lambda: next(chunks, None))) is not None:
                yield records

    def page(self, query: HistoryQuery) -> Page:
        """One page of history."""
        return self._read(lambda: reading.page_of(self.reader, query))

    def ended(self, tenant: str, run: RunId, created_at: Millis = 0) -> Ended | None:
        """One run of history."""

        def read() -> Ended | None:
            with self.reader:
                return reading.ended_run(self.reader, tenant, run, created_at)

        return self._read(read)

    def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
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

    def told(self, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
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


def check_epoch(connection: Connection, epoch: Epoch) -> None:
    """Raise Fenced if an epoch has passed.

    The epoch alone decides, not the lock: a writer whose lock was lost and not yet taken by another has not been
    overtaken, and its commits are still in order.
    """
    newest = epoch_of(connection)
    if epoch != newest or epoch <= 0:
        raise Fenced(f"epoch {epoch} has passed; {newest} reigns")


def epoch_of(connection: Connection) -> Epoch:
    """The newest epoch."""
    ((epoch,),) = connection.execute(_EPOCH)
    return Epoch(int(epoch))


def identity_of(connection: Connection) -> str:
    """The identity of the store; empty if it has none yet."""
    return next((value for (value,) in connection.execute(_IDENTITY)), "")


def read_identity_file(folder: Path) -> str:
    """The identity of a data folder by its file; empty if there is no file."""
    try:
        return (folder / IDENTITY_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
