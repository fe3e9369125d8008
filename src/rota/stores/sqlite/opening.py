"""Opening a data folder: settings of a connection, versions, and what is refused."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from rota.core.errors import Refused
from rota.stores.sql.migrations import MIGRATIONS, Migration, latest, migrate
from rota.stores.sqlite.connection import CREATE, READ_WRITE, Connection, connect
from rota.stores.sqlite.errors import CORRUPT_HINT, at_open
from rota.stores.sqlite.lock import FolderLock, held

DATABASE_NAME = "rota.db"
# "ROTA", in the header of the file.
APPLICATION_ID = 0x524F5441
# Up to 3.51.2 a log that was reset at the wrong moment could damage the file.
ENGINE_MIN = (3, 51, 3)
BUSY_MS = 2_000
# Pages in the log (16 MB) before they are moved to the file.
CHECKPOINT_PAGES = 4_000
_LOG_BYTES_KEPT = 64 * 1024 * 1024
# The writer's cache of pages fills up with history, which it never reads again: what lives is in memory anyway.
CACHE_KB = 8 * 1024


def open_writer(folder: Path, vfs: str | None = None) -> Connection:
    """The connection that writes: a commit is on the disk when it returns."""
    connection = _connect(folder, vfs, READ_WRITE | CREATE)
    connection.pragma("synchronous", "full")
    connection.pragma("cache_size", -CACHE_KB)
    connection.pragma("temp_store", "memory")
    connection.pragma("journal_size_limit", _LOG_BYTES_KEPT)
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    return connection


def open_reader(folder: Path, vfs: str | None = None) -> Connection:
    """A connection that only reads, and never waits for a commit. The log stays as it is, also when it is closed."""
    connection = _connect(folder, vfs, READ_WRITE)
    connection.pragma("query_only", True)
    connection.wal_autocheckpoint(0)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def open_existing(folder: Path) -> Connection:
    """The same to a folder whose version is not known. Refuses one that is not there, or is not Rota's."""
    path = folder / DATABASE_NAME
    if not path.is_file():
        raise missing(folder)
    return _opened(path, lambda: open_reader(folder), lambda connection: check_version(connection, folder))


def missing(folder: Path) -> Refused:
    """The refusal of a folder without a database."""
    return Refused("store.missing", f"there is no {DATABASE_NAME} in {folder}.", "Name the folder with --data.")


def _connect(folder: Path, vfs: str | None, flags: int) -> Connection:
    connection = connect(folder / DATABASE_NAME, flags, vfs)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def open_folder(folder: Path, vfs: str | None = None, migrations: Sequence[Migration] = MIGRATIONS) -> Connection:
    """The writing connection of a folder at the latest version; makes the folder if it is not there."""
    if not _is_new_enough():
        raise Refused("store.engine", f"SQLite {apsw.sqlite_lib_version()} is too old.", "Upgrade the apsw package.")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Parameters, results and errors are for their owner; SQLite gives its other files the database's mode.
        os.close(os.open(folder / DATABASE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Refused("store.missing", f"{folder} cannot be made: {error.strerror}.", "Name another folder.") from error
    path = folder / DATABASE_NAME
    return _opened(path, lambda: open_writer(folder, vfs), lambda found: _prepare(found, folder, migrations))


def _opened(path: Path, opener: Callable[[], Connection], prepare: Callable[[Connection], object]) -> Connection:
    """A connection that was prepared; one that cannot be is closed, and what keeps it from that is refused by name."""
    connection: Connection | None = None
    try:
        connection = opener()
        prepare(connection)
    except BaseException as error:
        said = at_open(error, connection, path)
        if connection is not None:
            connection.close()
        if said is error:
            raise
        raise said from error
    return connection


def _is_new_enough() -> bool:
    return tuple(int(part) for part in apsw.sqlite_lib_version().split(".")) >= ENGINE_MIN


def _prepare(connection: Connection, folder: Path, migrations: Sequence[Migration]) -> None:
    """Create the tables, or bring them to this version, or refuse the file."""
    version = check_version(connection, folder, migrations)
    if version == 0:
        connection.pragma("journal_mode", "wal")
        _migrate(connection, folder, migrations)
    elif version < latest(migrations):
        # Whoever holds the folder works with the old tables; they must not change under it.
        lock = FolderLock(folder)
        if not lock.take("migration"):
            raise held(folder)
        try:
            _migrate(connection, folder, migrations)
        finally:
            lock.free()


def _migrate(connection: Connection, folder: Path, migrations: Sequence[Migration]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while this one waited.
        version = check_version(connection, folder, migrations)
        if version < latest(migrations):
            migrate(connection, version, migrations)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", latest(migrations))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_version(connection: Connection, folder: Path, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The version of a folder, 0 if it is empty; refuses one that this program does not know."""
    version = int(connection.pragma("user_version"))
    if version > latest(migrations):
        raise Refused(
            "store.newer",
            f"{folder} has version {version}, and this Rota knows up to {latest(migrations)}.",
            "Use the newer Rota, or restore a backup that this one made.",
        )
    owner = int(connection.pragma("application_id"))
    is_empty = not list(connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1"))
    if owner != APPLICATION_ID and not (is_empty and owner == 0):
        raise Refused("store.corrupt", f"{folder / DATABASE_NAME} is not a database of Rota.", CORRUPT_HINT)
    return version
