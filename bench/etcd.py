"""Benchmarks of the etcd store: one member on the disk of this checkout, with every commit synced."""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.core import flat
from bench.rig import BEGIN, Rig, Row, Stopwatch
from rota.core.bounds import TimeLimits
from rota.core.graph import graph_digest
from rota.core.ids import Epoch
from rota.core.load import load
from rota.core.model import Graph, TaskSpec
from rota.core.records import Batch, GraphRecord, Record, Run, Task
from rota.core.states import RunState, TaskState
from rota.ports import Candidate
from rota.stores.blobs import open_blobs
from rota.stores.etcd import EtcdStore
from tests.servers.etcd import etcd_server

T = TypeVar("T")
FOREVER = 2**62


class MeasuredStore:
    """A store whose calls are waited for one by one, and that counts what its commits cost."""

    def __init__(self, url: str, blobs: Path) -> None:
        self.runner = asyncio.Runner()
        self.store = EtcdStore(url, open_blobs(blobs))
        self.epoch: Epoch = 0
        self.cpu_s = self.wall_s = 0.0
        self.rows = self.count = 0

    def wait(self, call: Awaitable[T]) -> T:
        """What a call answers."""

        async def wait() -> T:
            return await call

        return self.runner.run(wait())

    def elect(self) -> Epoch | None:
        """See the port."""
        self.epoch = self.wait(self.store.elect(Candidate("bench"))) or 0
        return self.epoch

    def load(self, epoch: Epoch) -> list[Record]:
        """See the port."""

        async def records() -> list[Record]:
            return [record async for record in self.store.load(epoch)]

        return self.wait(records())

    def commit(self, epoch: Epoch, batch: Batch) -> None:
        """See the port."""
        cpu, wall = time.process_time(), time.perf_counter()
        self.wait(self.store.commit(epoch, batch))
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall
        self.rows += len(batch.puts)
        self.count += 1

    def tidy(self) -> None:
        """All the housekeeping there is."""
        while self.wait(self.store.tidy(self.epoch, BEGIN, FOREVER)):
            pass

    def close(self) -> None:
        """The end."""
        self.wait(self.store.close())
        self.runner.close()


@contextmanager
def measured() -> Iterator[MeasuredStore]:
    """An empty store."""
    with etcd_server(place=Path.cwd()) as server:
        store = MeasuredStore(server.url(), server.member.folder / "blobs")
        try:
            yield store
        finally:
            store.close()


def lifecycles() -> Iterator[Row]:
    """Submit, assign, start, complete, each durable before the next."""
    count = 5_000
    for name in ("one run", "one-task runs"):
        with measured() as store:
            disk: Any = store
            rig = Rig(100, 100, disk=disk)
            store.cpu_s = store.wall_s = store.rows = store.count = 0
            began = time.perf_counter()
            with Stopwatch() as watch:
                if name == "one run":
                    rig.submit(0, flat(count))
                else:
                    for first in range(0, count, 500):
                        rig.submit_many(first, 500, flat(1, "one"))
                done = rig.finish_all(short=True)
            wall_s = time.perf_counter() - began
        assert done == count, f"{done} of {count} were done"
        yield Row(
            f"task lifecycles on etcd, {name}",
            round(count / wall_s),
            "tasks/s",
            1_000,
            "higher",
            watch.cpu_s / count * 1e6,
            f"by the clock, loop and store taking turns in one thread; {store.count} commits of"
            f" {store.wall_s / store.count * 1e3:.1f} ms, {store.cpu_s / store.rows * 1e6:.1f} µs of our CPU per row",
        )


def commits() -> Iterator[Row]:
    """Commits one after the other."""
    for rows, count, reach in ((1, 500, 200), (30, 500, 150), (1_000, 50, 30)):
        with measured() as store:
            epoch = store.elect() or 0
            store.load(epoch)
            store.commit(epoch, Batch([Run("t", "r", "digest", "name")], [], [], []))
            batches = [
                Batch(
                    [Task("t", "r", idx, fence=number, worker="w", assigned_at=BEGIN) for idx in range(rows)],
                    [],
                    [],
                    [],
                )
                for number in range(count)
            ]
            store.cpu_s = store.wall_s = 0.0
            for batch in batches:
                store.commit(epoch, batch)
        yield Row(
            f"commits of {rows:,} rows on etcd",
            round(count / store.wall_s),
            "commits/s",
            reach,
            "higher",
            store.cpu_s / count * 1e6,
            f"{store.cpu_s / count / rows * 1e6:.1f} CPU µs per row in this process",
        )


def rebuild() -> Iterator[Row]:
    """Everything a new coordinator does before it leads, with a checkpoint below and a log above it."""
    count = 10_000
    graph = Graph(name="g", tasks=(TaskSpec(id="t", width=count),))
    digest = graph_digest(graph)
    with measured() as store:
        epoch = store.elect() or 0
        store.load(epoch)
        run = Run("t", "r", digest, "g", state=RunState.RUNNING, created_at=BEGIN, started_at=BEGIN)
        store.commit(epoch, Batch([GraphRecord("t", digest, graph, BEGIN), run], [], [], []))
        for first in range(0, count, 1_000):
            puts: list[Record] = [
                Task("t", "r", idx, TaskState.QUEUED, eligible_at=BEGIN) for idx in range(first, first + 1_000)
            ]
            store.commit(epoch, Batch(puts, [], [], []))
        store.tidy()
        for number in range(2_000):
            puts = [
                Task("t", "r", (30 * number + idx) % count, TaskState.QUEUED, eligible_at=BEGIN) for idx in range(30)
            ]
            store.commit(epoch, Batch(puts, [], [], []))
        gc.collect()
        began = time.perf_counter()
        with Stopwatch() as watch:
            records = store.load(epoch)
            read_s = time.perf_counter() - began
            state = load(epoch, TimeLimits(), records, BEGIN)
        wall_s = time.perf_counter() - began
        assert state.index.queued == count, f"{state.index.queued} of {count} are queued"
    yield Row(
        f"rebuild with {count:,} live tasks on etcd, 2,000 commits after the checkpoint",
        round(wall_s, 2),
        "s",
        0.7,
        "lower",
        watch.cpu_s / count * 1e6,
        f"by the clock, {read_s:.2f} s of it to read the records; at a load of {os.getloadavg()[0]:.1f}",
    )
