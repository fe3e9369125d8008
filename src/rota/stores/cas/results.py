"""The action cache: results of actions in a SQLite file.

What was put is committed when the call returns; many are committed at once. It is a cache: a file that cannot be read
is begun anew, and what was not used for longest goes when there is too much.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from rota.core.errors import Refused, Unavailable
from rota.core.ids import NO_FENCE, Digest, Fence, Millis
from rota.stores.cas.index import key_of
from rota.stores.sql.columns import Value
from rota.stores.sqlite.connection import CREATE, READ_WRITE, Connection, connect
from rota.stores.sqlite.errors import is_full
from rota.stores.sqlite.lock import FolderLock, held

RESULTS_NAME = "results.db"
VERSION = 1
RESULT_BYTES_MAX = 4 * 1024 * 1024
# How many go at once when there is too much.
_SLICE = 100
_CACHE_KB = 16 * 1024
# How much older than it is a last use may be in the file.
_NOTE_LAG_MS = 3_600_000

_SCHEMA = """
CREATE TABLE results (id INTEGER PRIMARY KEY, tenant BLOB NOT NULL, instance BLOB NOT NULL, action BLOB NOT NULL,
  size INTEGER NOT NULL, fence INTEGER NOT NULL, used INTEGER NOT NULL, result BLOB NOT NULL,
  UNIQUE (tenant, instance, action, size)) STRICT;
CREATE INDEX results_used ON results (used);
"""
_WHICH = "tenant = ? AND instance = ? AND action = ? AND size = ?"
_PUT = """
INSERT INTO results (tenant, instance, action, size, fence, used, result) VALUES (?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (tenant, instance, action, size) DO UPDATE
  SET fence = max(results.fence, excluded.fence), used = excluded.used, result = excluded.result
  WHERE excluded.fence = 0 OR excluded.fence >= results.fence
"""
_GET = f"SELECT result, used FROM results WHERE {_WHICH}"
_USED = f"UPDATE results SET used = ? WHERE {_WHICH}"
_OLDEST = f"DELETE FROM results WHERE id IN (SELECT id FROM results ORDER BY used LIMIT {_SLICE})"

# Tenant, instance, and the action's key and size.
_Which = tuple[bytes, bytes, bytes, int]


class _Write:
    """A statement that waits to be committed; whether it changed anything is known then."""

    __slots__ = ("done", "statement", "values")

    def __init__(self, statement: str, values: tuple[Value, ...]) -> None:
        self.statement = statement
        self.values = values
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class DiskResults:
    """Results in a folder of this process. Made by `open_results`."""

    def __init__(
        self, path: Path, lock: FolderLock, connection: Connection, clock: Callable[[], Millis], bytes_max: int
    ) -> None:
        self._path = path
        self._lock = lock
        self._connection = connection
        self._clock = clock
        self._bytes_max = bytes_max
        # One thread for both: a look-up takes microseconds, and a commit is not synced.
        self._thread = ThreadPoolExecutor(1, "rota-results")
        self._waiting: list[_Write] = []
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def get(self, tenant: str, instance: str, action: Digest) -> bytes | None:
        """See the port."""
        which = _which(tenant, instance, action)
        found = await asyncio.get_running_loop().run_in_executor(self._thread, self._look_up, which)
        if found is None:
            return None
        result, used = found
        now = self._clock()
        if used + _NOTE_LAG_MS < now:
            # Nobody waits for it, nor for what went wrong with it.
            self._ask(_USED, (now, *which)).add_done_callback(lambda done: done.cancelled() or done.exception())
        return result

    async def put(self, tenant: str, instance: str, action: Digest, result: bytes, fence: Fence = NO_FENCE) -> bool:
        """See the port."""
        if len(result) > RESULT_BYTES_MAX:
            raise Refused("field.size", f"a result of {len(result):,} bytes; at most {RESULT_BYTES_MAX:,} are kept.")
        return await self._ask(_PUT, (*_which(tenant, instance, action), fence, self._clock(), result))

    def _ask(self, statement: str, values: tuple[Value, ...]) -> "asyncio.Future[bool]":
        """Have a statement written with the others that wait."""
        write = _Write(statement, values)
        self._waiting.append(write)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._keep_writing())
        return write.done

    async def _keep_writing(self) -> None:
        """Commit what waits, again and again until nothing does."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                changed = await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, batch)
            except Unavailable as error:
                for write in batch:
                    if not write.done.done():
                        write.done.set_exception(error)
            else:
                for write, has_changed in zip(batch, changed, strict=True):
                    if not write.done.done():
                        write.done.set_result(has_changed)

    def _commit(self, batch: Sequence[_Write]) -> list[bool]:
        changed: list[bool] = []
        try:
            with self._connection as connection:
                for write in batch:
                    connection.execute(write.statement, write.values)
                    changed.append(connection.changes() > 0)
                while self._bytes() > self._bytes_max:
                    connection.execute(_OLDEST)
                    if not connection.changes():
                        break
        except apsw.Error as error:
            raise self._unavailable(error) from error
        return changed

    def _bytes(self) -> int:
        pages = int(self._connection.pragma("page_count")) - int(self._connection.pragma("freelist_count"))
        return pages * int(self._connection.pragma("page_size"))

    def _look_up(self, which: _Which) -> tuple[bytes, Millis] | None:
        try:
            return next(iter(self._connection.execute(_GET, which)), None)
        except apsw.Error as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: apsw.Error) -> Unavailable:
        code = "store.full" if is_full(error, self._connection) else "store.unavailable"
        return Unavailable(code, f"{self._path}: {type(error).__name__}: {error}.")

    async def close(self) -> None:
        """See the port."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        self._thread.shutdown(wait=True)
        self._connection.close()
        self._lock.free()


async def open_results(folder: Path, *, clock: Callable[[], Millis], bytes_max: int) -> DiskResults:
    """The results in a folder. Raises `Refused` if another process has it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FolderLock(folder)
    if not lock.take("results"):
        raise held(folder)
    try:
        connection = await asyncio.to_thread(_open, folder)
    except BaseException:
        lock.free()
        raise
    return DiskResults(folder / RESULTS_NAME, lock, connection, clock, bytes_max)


def _open(folder: Path) -> Connection:
    path = folder / RESULTS_NAME
    connection: Connection | None = None
    try:
        connection = _connect(path)
        if int(connection.pragma("user_version")) == VERSION:
            return connection
    except apsw.Error as error:
        if connection is not None and is_full(error, connection):
            connection.close()
            raise Unavailable("store.full", f"no space left for {path}.") from error
    if connection is not None:
        connection.close()
    for name in (RESULTS_NAME, f"{RESULTS_NAME}-wal", f"{RESULTS_NAME}-shm"):
        (folder / name).unlink(missing_ok=True)
    connection = _connect(path)
    with connection:
        connection.execute(_SCHEMA)
        connection.pragma("user_version", VERSION)
    return connection


def _connect(path: Path) -> Connection:
    connection = connect(path, READ_WRITE | CREATE)
    connection.pragma("journal_mode", "wal")
    # A loss of power may take the last results away, and the file stays whole.
    connection.pragma("synchronous", "normal")
    connection.pragma("cache_size", -_CACHE_KB)
    return connection


def _which(tenant: str, instance: str, action: Digest) -> _Which:
    return (
        tenant.encode("utf-8", "surrogatepass"),
        instance.encode("utf-8", "surrogatepass"),
        key_of(action),
        action.size,
    )
