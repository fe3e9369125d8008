"""Benchmarks of the SQLite store, on a real disk with `synchronous=FULL`."""

import gc
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.core import flat
from bench.rig import BEGIN, Rig, Row, Stopwatch
from rota.core.bounds import TimeLimits
from rota.core.graph import graph_digest
from rota.core.ids import Epoch
from rota.core.load import load
from rota.core.model import Graph, TaskSpec
from rota.core.records import Batch, GraphRecord, Record, Run, Task
from rota.core.states import RunState, TaskState
from rota.stores.sqlite import SqliteDisk


class MeasuredDisk(SqliteDisk):
    """A folder that counts what its commits cost."""

    cpu_s = 0.0
    wall_s = 0.0
    commits = 0

    def commit(self, epoch: Epoch, batch: Batch) -> None:
        """See the disk."""
        cpu, wall = time.process_time(), time.perf_counter()
        super().commit(epoch, batch)
        self.cpu_s += time.process_time() - cpu
        self.wall_s += time.perf_counter() - wall
        self.commits += 1


@contextmanager
def folder() -> Iterator[MeasuredDisk]:
    """A folder on the disk of this checkout, not in memory."""
    with tempfile.TemporaryDirectory(prefix=".rota-bench-", dir=Path.cwd()) as name:
        disk = MeasuredDisk(Path(name))
        try:
            yield disk
        finally:
            disk.close()


def lifecycles() -> Iterator[Row]:
    """Submit, assign, start, complete, each durable before the next."""
    count = 20_000
    for name in ("one run", "one-task runs"):
        with folder() as disk:
            rig = Rig(100, 100, disk=disk)
            rows = disk.writer.total_changes()
            disk.cpu_s = disk.wall_s = disk.commits = 0
            began = time.perf_counter()
            with Stopwatch() as watch:
                done = _run(rig, count, name == "one run")
            wall_s = time.perf_counter() - began
            rows = disk.writer.total_changes() - rows
        assert done == count, f"{done} of {count} were done"
        cost = f"{disk.cpu_s / rows * 1e6:.1f} CPU µs per row in the store, {disk.commits} commits"
        yield Row(
            f"task lifecycles on SQLite FULL, {name}",
            round(count / watch.cpu_s),
            "tasks/s",
            10_000,
            "higher",
            watch.cpu_s / count * 1e6,
            f"per CPU second, loop and store in one thread; {count / wall_s:,.0f}/s by the clock; {cost}",
        )
        yield Row(
            f"rows written per task lifecycle, {name}",
            round(rows / count, 2),
            "rows",
            3,
            "lower",
            disk.cpu_s / count * 1e6,
            "attempts that end within 10 ms: their start and their end share a commit; longer ones write one row more",
        )


def _run(rig: Rig, count: int, wide: bool) -> int:
    if wide:
        rig.submit(0, flat(count))
    else:
        for first in range(0, count, 500):
            rig.submit_many(first, 500, flat(1, "one"))
    return rig.finish_all(short=True)


def rebuild() -> Iterator[Row]:
    """Everything a new coordinator does before it leads: read all live records, and make a state of them."""
    count = 100_000
    for name, solo in (("one run", False), ("one-task runs", True)):
        with folder() as disk:
            epoch = _fill(disk, count, solo)
            # What a fresh process finds: nothing in SQLite's cache.
            disk.close()
            again = SqliteDisk(disk.folder)
            epoch = again.elect() or epoch
            gc.collect()
            began = time.perf_counter()
            with Stopwatch() as watch:
                records = again.load(epoch)
                read_s = time.process_time() - watch.began
                state = load(epoch, TimeLimits(), records, BEGIN)
            wall_s = time.perf_counter() - began
            assert state.index.queued == count, f"{state.index.queued} of {count} are queued"
            again.close()
            del state, records
        yield Row(
            f"rebuild with {count:,} live tasks, {name}",
            round(watch.cpu_s, 2),
            "s",
            1.5,
            "lower",
            watch.cpu_s / count * 1e6,
            f"CPU seconds, {read_s:.2f} of them to read the records; {wall_s:.2f} s by the clock at a load of"
            f" {os.getloadavg()[0]:.1f}",
        )


def _fill(disk: SqliteDisk, count: int, solo: bool) -> Epoch:
    epoch = disk.elect() or 0
    graph = Graph(name="g", tasks=(TaskSpec(id="t", width=1 if solo else count),))
    digest = graph_digest(graph)
    disk.commit(epoch, Batch([GraphRecord("t", digest, graph, BEGIN)], [], [], []))
    if not solo:
        row = Run("t", "r", digest, "g", state=RunState.RUNNING, created_at=BEGIN, started_at=BEGIN)
        disk.commit(epoch, Batch([row], [], [], []))
    for first in range(0, count, 1_000):
        puts: list[Record] = []
        for number in range(first, first + 1_000):
            run = f"run-{number}" if solo else "r"
            task = Task("t", run, 0 if solo else number, TaskState.QUEUED, eligible_at=BEGIN)
            puts.append(task if not solo else _one_task_run(run, digest, number, task))
        disk.commit(epoch, Batch(puts, [], [], []))
    return epoch


def _one_task_run(run: str, digest: str, number: int, task: Task) -> Run:
    created_at = BEGIN + number
    return Run(
        "t",
        run,
        digest,
        "g",
        state=RunState.RUNNING,
        created_at=created_at,
        started_at=created_at,
        command_id=f"c{number}",
        story=1,
        solo=task,
    )
