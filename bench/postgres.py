"""The PostgreSQL store against the SQLite one, on the same machine and disk, both syncing every commit."""

import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
from msgspec import Struct

from bench.rig import BEGIN, Row
from rota.config.settings import LOCK_ID
from rota.core.ids import Epoch
from rota.core.records import Batch, Record, Run, Story, Task
from rota.core.states import RunState, TaskState
from rota.ports import Candidate, Store
from rota.stores.postgres import PostgresStore
from rota.stores.sqlite import SqliteStore
from tests.servers.postgres import postgres_server

# Rows in a commit, and how many commits of them.
SIZES = {1: 400, 30: 200, 1_000: 20}
LOADED = 10_000


class Cost(Struct, frozen=True):
    """What so many rows took: by the clock, and of this process's and the server's processors."""

    rows: int
    wall_s: float
    cpu_s: float
    server_s: float = 0.0

    @property
    def told(self) -> str:
        """The cost of a row, for the note of a result."""
        return (
            f"{self.cpu_s / self.rows * 1e6:.1f} CPU µs per row here and {self.server_s / self.rows * 1e6:.1f} in the"
            f" server, {self.wall_s / self.rows * 1e6:.0f} by the clock"
        )


def commits() -> Iterator[Row]:
    """How many commits and rows a second, as a share of what SQLite does; and what a standby has to read."""
    for kind in ("tasks", "one-task runs"):
        sqlite, postgres = uvloop.run(_both(lambda store, epoch, kind=kind: _write(store, epoch, kind == "tasks")))
        for size in SIZES:
            mine, theirs = postgres[size], sqlite[size]
            yield Row(
                f"PostgreSQL commits of {size:,} {kind}, as a share of SQLite's",
                round(theirs.wall_s / mine.wall_s, 2),
                "of SQLite",
                0.33,
                "higher",
                mine.cpu_s / mine.rows * 1e6,
                f"PostgreSQL {SIZES[size] / mine.wall_s:,.0f} commits/s, {mine.told}; SQLite"
                f" {SIZES[size] / theirs.wall_s:,.0f} commits/s, {theirs.told}",
            )
    sqlite, postgres = uvloop.run(_both(_load))
    yield Row(
        f"PostgreSQL load of {LOADED:,} live tasks",
        round(postgres[LOADED].wall_s, 3),
        "s",
        1.0,
        "lower",
        postgres[LOADED].cpu_s / LOADED * 1e6,
        f"{postgres[LOADED].told}; SQLite {sqlite[LOADED].told}",
    )


Measured = dict[int, Cost]


async def _both(measure: Callable[[Store, Epoch], Awaitable[Measured]]) -> tuple[Measured, Measured]:
    with tempfile.TemporaryDirectory(prefix=".rota-bench-", dir=Path.cwd()) as folder:
        store = SqliteStore(Path(folder))
        sqlite = await measure(store, await store.elect(Candidate("bench")) or 0)
        store.close()
    async with _postgres() as store:
        return sqlite, await measure(store, await store.elect(Candidate("bench")) or 0)


@asynccontextmanager
async def _postgres() -> AsyncIterator[PostgresStore]:
    with postgres_server({"shared_buffers": "128MB"}) as server:
        store = PostgresStore(server.url(), lock_id=LOCK_ID)
        try:
            yield store
        finally:
            await store.close()


async def _write(store: Store, epoch: Epoch, are_tasks: bool) -> Measured:
    """The life of rows as a coordinator writes it: each is put three times, with its story."""
    if are_tasks:
        await store.commit(epoch, Batch([Run("t", "r", "g", "g", created_at=BEGIN)], [], [], []))
    made: Measured = {}
    for size, count in SIZES.items():
        # Once for the server's caches and plans.
        await store.commit(epoch, _batch(size, 0, 0, are_tasks))
        batches = [_batch(size, 1 + number // 3, number, are_tasks) for number in range(count)]
        cpu, server, began = time.process_time(), _server_s(store), time.perf_counter()
        for batch in batches:
            await store.commit(epoch, batch)
        wall_s = time.perf_counter() - began
        made[size] = Cost(size * count, wall_s, time.process_time() - cpu, _server_s(store) - server)
    return made


def _batch(size: int, group: int, number: int, are_tasks: bool) -> Batch:
    first = (size * 1_000 + group) * 1_000
    state = (TaskState.QUEUED, TaskState.ASSIGNED, TaskState.RUNNING)[number % 3]
    puts: list[Record] = []
    stories: list[Story] = []
    for idx in range(first, first + size):
        run = "r" if are_tasks else f"run-{idx}"
        task = Task("t", run, idx if are_tasks else 0, state, attempt=1, fence=idx, worker="w1", eligible_at=BEGIN)
        if are_tasks:
            puts.append(task)
        else:
            puts.append(Run("t", run, "g", "g", state=RunState.RUNNING, created_at=BEGIN, story=number % 3, solo=task))
            stories.append(Story("t", run, BEGIN, number % 3, BEGIN, bytes(60)))
    if are_tasks:
        stories.append(Story("t", "r", BEGIN, first + number, BEGIN, bytes(20 * min(size, 100))))
    return Batch(puts, [], [], stories)


async def _load(store: Store, epoch: Epoch) -> Measured:
    run = Run("t", "r", "g", "g", created_at=BEGIN)
    tasks: list[Record] = [Task("t", "r", idx, TaskState.QUEUED, eligible_at=BEGIN) for idx in range(LOADED)]
    await store.commit(epoch, Batch([run, *tasks], [], [], []))
    cpu, began = time.process_time(), time.perf_counter()
    count = len([record async for record in store.load(epoch)])
    assert count == LOADED + 1, f"{count} records"
    return {LOADED: Cost(LOADED, time.perf_counter() - began, time.process_time() - cpu)}


def _server_s(store: Store) -> float:
    """What the server's process behind the writing session has used."""
    if not isinstance(store, PostgresStore) or store.writer.wire is None:
        return 0.0
    fields = Path(f"/proc/{store.writer.wire.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
