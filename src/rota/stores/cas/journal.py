"""The journal of the index: what a restart needs to know without reading the packs.

It may be behind: packs and the names of files are the truth, and it says how far it has read them. Only two things are
in it before they happen. A large content is *arriving* before it gets its name, and a file or pack is *leaving* before
it is removed, so that no crash leaves a file that nobody knows of. A journal that is gone, damaged or of another
version is made anew from packs and names.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from rota.core.errors import Unavailable
from rota.stores.cas.index import Row, Slot, Tick
from rota.stores.sql.columns import Value
from rota.stores.sqlite.connection import CREATE, READ_WRITE, Connection, connect
from rota.stores.sqlite.errors import is_full

JOURNAL_NAME = "journal.db"
VERSION = 1
# How long changes are gathered before they are written.
FLUSH_AFTER_S = 0.25
# How many gathered changes are written without waiting for that.
FLUSH_COUNT = 5_000
_CACHE_KB = 32 * 1024
_CHECKPOINT_PAGES = 2_000

_SCHEMA = """
CREATE TABLE shelves (number INTEGER PRIMARY KEY, tenant BLOB NOT NULL) STRICT;
CREATE TABLE entries (slot INTEGER PRIMARY KEY, shelf INTEGER NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL,
  pack INTEGER NOT NULL, place INTEGER NOT NULL, used INTEGER NOT NULL) STRICT;
CREATE TABLE packs (number INTEGER PRIMARY KEY, read_to INTEGER NOT NULL) STRICT;
CREATE TABLE arriving (name TEXT PRIMARY KEY, shelf INTEGER NOT NULL, key BLOB NOT NULL, size INTEGER NOT NULL) STRICT;
CREATE TABLE leaving (name TEXT PRIMARY KEY) STRICT;
"""

_SHELF = "INSERT INTO shelves VALUES (?, ?)"
_ENTRY = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)"
_USED = "UPDATE entries SET used = ? WHERE slot = ?"
_FORGET = "DELETE FROM entries WHERE slot = ?"
_PACK = "INSERT OR REPLACE INTO packs VALUES (?, ?)"
_NO_PACK = "DELETE FROM packs WHERE number = ?"
_ARRIVING = "INSERT OR REPLACE INTO arriving VALUES (?, ?, ?, ?)"
_ARRIVED = "DELETE FROM arriving WHERE name = ?"
_LEAVING = "INSERT OR REPLACE INTO leaving VALUES (?)"
_LEFT = "DELETE FROM leaving WHERE name = ?"


_Change = tuple[str, tuple[Value, ...]]


class Arriving(Struct, frozen=True):
    """A large content that may have got its name."""

    name: str
    shelf: int
    key: bytes
    size: int


class Journalled(Struct, frozen=True):
    """What a journal knows; how far each pack has been read, by its number."""

    is_new: bool
    tenants: list[str]
    rows: list[Row]
    packs: dict[int, int]
    arriving: list[Arriving]
    leaving: list[str]


class Journal:
    """Changes of the index, gathered in the event loop and written by a thread."""

    def __init__(self, path: Path, connection: Connection) -> None:
        self._path = path
        self._connection = connection
        self._gathered: list[_Change] = []
        # How far packs are read once that is written, by their numbers.
        self._read_to: dict[int, int] = {}
        self._thread = ThreadPoolExecutor(1, "rota-content-journal")
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._later: asyncio.Task[None] | None = None
        self._is_closed = False

    def shelf(self, number: int, tenant: str) -> None:
        """A tenant has something for the first time."""
        self._gather(_SHELF, number, tenant.encode("utf-8", "surrogatepass"))

    def entry(self, row: Row) -> None:
        """There is an entry, or it has moved."""
        self._gather(_ENTRY, *row)

    def used(self, slot: Slot, tick: Tick) -> None:
        """An entry was used."""
        self._gather(_USED, tick, slot)

    def forget(self, slot: Slot) -> None:
        """An entry is gone."""
        self._gather(_FORGET, slot)

    def pack(self, number: int, read_to: int) -> None:
        """Everything in a pack up to there was told before."""
        self._read_to[number] = read_to

    def forget_pack(self, number: int) -> None:
        """A pack is gone."""
        self._read_to.pop(number, None)
        self._gather(_NO_PACK, number)

    def arriving(self, arriving: Arriving) -> None:
        """A large content gets its name next. One of that name does not leave any more."""
        self._gather(_LEFT, arriving.name)
        self._gather(_ARRIVING, arriving.name, arriving.shelf, arriving.key, arriving.size)

    def arrived(self, name: str) -> None:
        """It has its name and its entry, or was given up."""
        self._gather(_ARRIVED, name)

    def leaving(self, name: str) -> None:
        """A blob is removed next."""
        self._gather(_LEAVING, name)

    def left(self, name: str) -> None:
        """It is removed."""
        self._gather(_LEFT, name)

    def _gather(self, statement: str, *values: Value) -> None:
        self._gathered.append((statement, values))
        if self._is_closed:
            return
        if len(self._gathered) >= FLUSH_COUNT:
            self._flush_later()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self._flush_later)

    def _flush_later(self) -> None:
        self._timer = None
        if self._later is None or self._later.done():
            self._later = asyncio.create_task(self._try_to_flush())

    async def _try_to_flush(self) -> None:
        try:
            await self.flush()
        except Unavailable:
            # The changes are kept, and nobody waits for them. The next change tries again.
            return

    async def flush(self) -> None:
        """Write what was gathered. Raises `Unavailable`; then it is gathered still."""
        # A task of its own: whoever is cancelled while waiting must not lose what others gathered.
        await asyncio.shield(asyncio.create_task(self._flush()))

    async def _flush(self) -> None:
        async with self._writing:
            gathered, self._gathered = self._gathered, []
            read_to, self._read_to = self._read_to, {}
            if not gathered and not read_to:
                return
            changes = gathered + [(_PACK, each) for each in read_to.items()]
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._write, changes)
            except Unavailable:
                self._gathered = changes + self._gathered
                raise

    def _write(self, changes: list[_Change]) -> None:
        try:
            with self._connection as connection:
                for statement, group in groupby(changes, key=itemgetter(0)):
                    connection.executemany(statement, [values for _, values in group])
        except apsw.Error as error:
            code = "store.full" if is_full(error, self._connection) else "store.unavailable"
            raise Unavailable(code, f"{self._path}: {type(error).__name__}: {error}.") from error

    async def close(self) -> None:
        """Write what is left, and close the file."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._later is not None:
            await asyncio.gather(self._later, return_exceptions=True)
        try:
            await self.flush()
        except Unavailable:
            # The next start reads the packs from where the journal ends.
            pass
        finally:
            self._thread.shutdown(wait=True)
            self._connection.close()


def open_journal(folder: Path) -> tuple[Connection, Journalled]:
    """The journal of a folder and what it knows; a new one if there is none that can be read."""
    path = folder / JOURNAL_NAME
    connection: Connection | None = None
    try:
        connection = _connect(path)
        return connection, _load(connection)
    except (apsw.Error, LookupError, TypeError, ValueError) as error:
        if connection is not None:
            if isinstance(error, apsw.Error) and is_full(error, connection):
                connection.close()
                raise Unavailable("store.full", f"no space left for {path}.") from error
            connection.close()
    for name in (JOURNAL_NAME, f"{JOURNAL_NAME}-wal", f"{JOURNAL_NAME}-shm"):
        (folder / name).unlink(missing_ok=True)
    connection = _connect(path)
    return connection, _load(connection)


def _connect(path: Path) -> Connection:
    connection = connect(path, READ_WRITE | CREATE)
    connection.pragma("journal_mode", "wal")
    # What a loss of power takes away is found again in the packs; the file itself stays whole.
    connection.pragma("synchronous", "normal")
    connection.pragma("cache_size", -_CACHE_KB)
    connection.wal_autocheckpoint(_CHECKPOINT_PAGES)
    return connection


def _load(connection: Connection) -> Journalled:
    version = int(connection.pragma("user_version"))
    if version == 0:
        with connection:
            connection.execute(_SCHEMA)
        return Journalled(True, [], [], {}, [], [])
    if version != VERSION:
        raise ValueError(f"a journal of version {version}")
    tenants = [bytes(name).decode("utf-8", "surrogatepass") for _, name in _all(connection, "shelves", "number")]
    return Journalled(
        is_new=False,
        tenants=tenants,
        rows=_all(connection, "entries", "slot"),
        packs=dict(_all(connection, "packs", "number")),
        arriving=[Arriving(*row) for row in _all(connection, "arriving", "name")],
        leaving=[name for (name,) in _all(connection, "leaving", "name")],
    )


def _all(connection: Connection, table: str, order: str) -> list[Any]:
    return list(connection.execute(f"SELECT * FROM {table} ORDER BY {order}"))


def complete(connection: Connection) -> None:
    """Everything that was there before the journal is in it now; from here on it is believed."""
    connection.pragma("user_version", VERSION)
