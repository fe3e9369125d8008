"""A connection to a database, as far as the store uses one. The types that apsw comes with need Python 3.12."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, cast

import apsw

from rota.stores.sql.columns import Value

READ_WRITE = apsw.SQLITE_OPEN_READWRITE
CREATE = apsw.SQLITE_OPEN_CREATE


class Copying(Protocol):
    """A copy of a database that is being made."""

    @property
    def done(self) -> bool:
        """Whether everything is copied."""
        ...

    @property
    def page_count(self) -> int:
        """How many pages there are."""
        ...

    @property
    def remaining(self) -> int:
        """How many are left."""
        ...

    def step(self, npages: int = -1) -> bool:
        """Copy some pages."""
        ...

    def finish(self) -> None:
        """It is copied, or given up."""
        ...


class Connection(Protocol):
    """What of `apsw.Connection` is used."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    @property
    def system_errno(self) -> int:
        """What the operating system said last."""
        ...

    def execute(self, statements: str, bindings: Sequence[Value] | None = None) -> Iterator[Any]:
        """Carry out a statement; its rows."""
        ...

    def executemany(self, statements: str, sequenceofbindings: Iterable[Sequence[Value]]) -> Iterator[Any]:
        """Carry out a statement for each of many bindings."""
        ...

    def changes(self) -> int:
        """How many rows the last statement changed."""
        ...

    def total_changes(self) -> int:
        """How many rows were changed since the connection was opened."""
        ...

    def pragma(self, name: str, value: Value = None) -> Any:
        """Ask for a setting, or change it."""
        ...

    def set_busy_timeout(self, milliseconds: int) -> None:
        """How long to wait for a lock."""
        ...

    def set_commit_hook(self, callable: Callable[[], bool] | None) -> None:  # noqa: A002 - apsw's name for it
        """Called when a commit is about to be written."""
        ...

    def config(self, op: int, value: int) -> int:
        """Change a setting of the connection that is no pragma."""
        ...

    def wal_autocheckpoint(self, n: int) -> None:
        """After how many pages the log is moved to the file."""
        ...

    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
        """Move the log to the file now."""
        ...

    def backup(self, databasename: str, sourceconnection: Any, sourcedatabasename: str) -> Copying:
        """Begin to copy another connection's database into this one."""
        ...

    def close(self, force: bool = False) -> None:
        """Close it."""
        ...

    def __enter__(self) -> Self:
        """A transaction, or one inside another."""
        ...

    def __exit__(self, *exc: object) -> bool | None:
        """The end of the transaction."""
        ...


def connect(path: Path, flags: int = READ_WRITE, vfs: str | None = None) -> Connection:
    """Open a database file."""
    return cast("Connection", apsw.Connection(str(path), flags=flags, vfs=vfs))
