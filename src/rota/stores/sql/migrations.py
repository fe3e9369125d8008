"""Versions of the schema, each a step from the one before.

A step has a part `pre` that runs before anything is loaded, in one transaction with all others that are due, and may
have a part `post` that goes over old rows in bounded slices after the start, as part of housekeeping. Both may be
interrupted anywhere: the first leaves the old version, the second is asked again until it has nothing left to do. A
step is never changed once it was released; `meta.migrated` is the last one whose `post` is finished.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from rota.stores.sql.columns import Value
from rota.stores.sql.schema import (
    AGENTS,
    BUILDS,
    FEEDS,
    IDENTITY,
    IDLE_TIME,
    REVOKED_LEASES,
    TABLES,
    TENANTS_AND_AUDITS,
    VIEWS,
    WORKFLOWS,
)


class Database(Protocol):
    """As much of a connection as a step needs."""

    def execute(self, statements: str, bindings: Sequence[Value] | None = None, /) -> Iterable[Any]:
        """Carry out a statement; its rows."""
        ...


class Migration(Struct, frozen=True):
    """One step: `number` is the version it leads to. `post` does a slice of so many rows and says how many it did."""

    number: int
    name: str
    pre: Callable[[Database], None]
    post: Callable[[Database, int], int] | None = None


def statements(*texts: str) -> Callable[[Database], None]:
    """A `pre` that is just these statements."""

    def pre(database: Database) -> None:
        for text in texts:
            database.execute(text)

    return pre


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "the first tables", statements(*TABLES)),
    Migration(2, "shares of tenants, and who asked for what", statements(*TENANTS_AND_AUDITS)),
    Migration(3, "workflows, and what runs, tasks and schedules know of them", statements(*WORKFLOWS)),
    Migration(4, "keys, labels and shares of runs, and what else a queue decides", statements(*BUILDS)),
    Migration(5, "pauses, and runs that wait for others, a person, or whoever knows a token", statements(*AGENTS)),
    Migration(6, "tasks that go on as others", statements(*FEEDS)),
    Migration(7, "how long a run lay ended before it was opened again", statements(*IDLE_TIME)),
    Migration(8, "the identity of the store", statements(*IDENTITY)),
    Migration(9, "leases that were revoked before their end, and why workers rest", statements(*REVOKED_LEASES)),
)


def latest(migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The version that this program writes."""
    return migrations[-1].number


def migrate(database: Database, version: int, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Take a database from `version` to the latest. The caller has begun a transaction, and commits it."""
    for name in VIEWS:
        database.execute(f"DROP VIEW IF EXISTS {name}")
    for step in migrations:
        if step.number > version:
            step.pre(database)
    for name, text in VIEWS.items():
        database.execute(f"CREATE VIEW {name} AS\n{text}")


def finish(database: Database, limit: int, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """One slice of what `post` parts have left to do; zero if nothing. The caller has begun a transaction."""
    ((done,),) = database.execute("SELECT value FROM meta WHERE name = 'migrated'")
    for step in migrations:
        if step.number <= done:
            continue
        rows = step.post(database, limit) if step.post is not None else 0
        if rows:
            return rows
        database.execute("UPDATE meta SET value = ? WHERE name = 'migrated'", (step.number,))
    return 0
