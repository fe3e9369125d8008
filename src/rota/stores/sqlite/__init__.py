"""The SQLite store: a folder with one database in it, for everything on one machine. Decision 0007 says why so."""

from rota.stores.sqlite.disk import SqliteDisk
from rota.stores.sqlite.lock import FolderLock, held, holder_of
from rota.stores.sqlite.store import SqliteStore

__all__ = ["FolderLock", "SqliteDisk", "SqliteStore", "held", "holder_of"]
