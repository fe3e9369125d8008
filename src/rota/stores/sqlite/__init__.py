"""The SQLite store: a folder with one database in it, for everything on one machine. Decision 0007 says why so."""

from rota.stores.sqlite.disk import SqliteDisk
from rota.stores.sqlite.disk_reader import IDENTITY_FILE, DiskReader, read_identity_file
from rota.stores.sqlite.lock import FolderLock, held, holder_of
from rota.stores.sqlite.store import SqliteReader, SqliteStore

__all__ = [
    "IDENTITY_FILE",
    "DiskReader",
    "FolderLock",
    "SqliteDisk",
    "SqliteReader",
    "SqliteStore",
    "held",
    "holder_of",
    "read_identity_file",
]
