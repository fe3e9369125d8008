"""Benchmarks of queries: TPC-H at scale 1 against one process of the engine, and what a query costs at least."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import datafusion as df
import pyarrow as pa

import rota
from bench.rig import Row
from bench.service import Service, cpu_s_of, free_port, running, tree_of, wait_for
from tests.queries.tpch import QUERIES, TABLES, generate

SCALE = 1
ROUNDS = 3
LITTLE = 200
ANSWER = "select l_orderkey, l_partkey, l_suppkey, l_quantity, l_extendedprice from lineitem"


def tables() -> Path:
    """TPC-H at scale 1; it is made once, and kept with other things that may go."""
    return generate(Path(tempfile.gettempdir()) / f"rota-bench-tpch-{SCALE}", SCALE, 4)


def alone(folder: Path) -> df.SessionContext:
    """The engine by itself."""
    context = df.SessionContext(df.SessionConfig().with_target_partitions(2))
    for name in TABLES:
        context.register_parquet(name, f"{folder / name}/")
    return context


def _register(session: rota.Session, folder: Path) -> None:
    for name in TABLES:
        session.register_parquet(name, folder / name)


def _round(ask: Callable[[str], pa.Table], cpu_s: Callable[[], float]) -> tuple[float, float]:
    """Wall and CPU seconds of all queries."""
    began, used = time.perf_counter(), cpu_s()
    for query in QUERIES:
        ask(query)
    return time.perf_counter() - began, cpu_s() - used


def _mine() -> float:
    return sum(os.times()[:2])


def tpch() -> Iterator[Row]:
    """All queries, embedded and on two workers, against the engine by itself.

    They take turns, after a round that does not count, and the least of each is compared: these machines are fast one
    minute and slow the next.
    """
    folder = tables()
    engine = alone(folder)
    session = rota.Session(settings={"datafusion.execution.target_partitions": "2"})
    _register(session, folder)
    with running(workers=2, slots=1) as service, rota.Session.connect(service.url) as far:
        _register(far, folder)
        ways: dict[str, tuple[Callable[[str], pa.Table], Callable[[], float]]] = {
            "alone": (lambda query: engine.sql(query).to_arrow_table(), _mine),
            "here": (lambda query: session.sql(query).to_arrow(), _mine),
            "far": (lambda query: far.sql(query).to_arrow(), service.cpu_s),
        }
        rounds = [{name: _round(*way) for name, way in ways.items()} for _ in range(ROUNDS + 1)][1:]
    wall_s = {name: min(each[name][0] for each in rounds) for name in ways}
    cpu_s = {name: min(each[name][1] for each in rounds) for name in ways}
    note = f"the engine alone: {wall_s['alone']:.2f} s, {cpu_s['alone']:.2f} CPU-s"
    for name, what, found, reach in (
        ("here", "embedded, wall", wall_s, 1.05),
        ("far", "two workers, CPU", cpu_s, 1.15),
        ("far", "two workers, wall", wall_s, 1.25),
    ):
        ratio = found[name] / found["alone"]
        yield Row(f"TPC-H 1, {what} against the engine alone", ratio, "×", reach, "lower", cpu_s[name], note)


def little() -> Iterator[Row]:
    """`select 1`, here and through Flight SQL; and how fast a large answer comes."""
    session = rota.Session()
    yield _median("select 1, embedded", lambda: session.sql("select 1").to_arrow(), 5)
    import adbc_driver_flightsql.dbapi as adbc

    folder = tables()
    with (
        running(workers=1, slots=2) as service,
        _FrontEnd(service, folder) as (url, process),
        adbc.connect(url, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):

        def ask() -> None:
            cursor.execute("select 1")
            cursor.fetch_arrow_table()

        yield _median("select 1 through Flight SQL, on a worker", ask, 8)
        partitions, _ = cursor.adbc_execute_partitions(ANSWER)

        def fetch() -> float:
            began = time.perf_counter()
            size = 0
            for each in partitions:
                cursor.adbc_read_partition(each)
                size += cursor.fetch_arrow_table().nbytes
            return size / 1e6 / (time.perf_counter() - began)

        # The first time it is computed.
        first, used = fetch(), cpu_s_of(process)
        best = max(fetch() for _ in range(ROUNDS))
        used = (cpu_s_of(process) - used) / ROUNDS
        note = f"{first:.0f} MB/s with computing it"
        yield Row("an answer streamed through Flight SQL", round(best), "MB/s", 500, "higher", used * 1e6, note)


class _FrontEnd:
    """A front end for queries, in a process of its own."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._home = tempfile.TemporaryDirectory()
        named = "\n".join(f'{name} = "{folder / name}"' for name in TABLES)
        Path(self._home.name, "rota.toml").write_text(f"[queries.tables]\n{named}\n")
        self._port = free_port()

    def __enter__(self) -> tuple[str, int]:
        words = [sys.executable, "-m", "rota", "flight", "--coordinator", self._service.url]
        words += ["--listen", f"127.0.0.1:{self._port}"]
        self._process = subprocess.Popen(words, cwd=self._home.name, stderr=subprocess.DEVNULL)  # noqa: S603 - our own program
        wait_for(self._port, time.monotonic() + 30)
        return f"grpc://127.0.0.1:{self._port}", tree_of(self._process.pid)[0]

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._home.cleanup()


def _median(name: str, ask: Callable[[], object], reach: float) -> Row:
    for _ in range(20):
        ask()
    took: list[float] = []
    used = _mine()
    for _ in range(LITTLE):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1e3)
    cpu_us = (_mine() - used) / LITTLE * 1e6
    return Row(f"{name}, p50", round(statistics.median(took), 2), "ms", reach, "lower", cpu_us)
