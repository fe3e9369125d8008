"""The PostgreSQL store: a schema in a database, for coordinators on many machines. Decision 0010 says why so."""

from rota.stores.postgres.lock import AdvisoryLock
from rota.stores.postgres.store import PostgresStore

__all__ = ["AdvisoryLock", "PostgresStore"]
