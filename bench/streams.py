"""Benchmarks of streams: one process, 1,000 keys, every round on the disk before the next; and how long a row takes."""

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import rota
from bench.rig import Row

KEYS = 1_000
BASE = 1_700_000_000_000
ROUNDS = 3
# The middle of the sorted latencies counts, so the first rounds, which plan, do not.
LATENCY_S = 4
RATE = 100_000


def events(count: int, partitions: int = 2) -> list[pa.Table]:
    """Rows of a millisecond each, up to five seconds out of order, and a few that are late."""
    chance = random.Random(7)
    found: list[pa.Table] = []
    for partition in range(partitions):
        each = count // partitions
        times = [BASE + at * partitions + partition - int(chance.random() * 5_000) for at in range(each)]
        times = [at - 60_000 if chance.random() < 0.0005 else at for at in times]
        keys = [int(chance.random() * KEYS) for _ in range(each)]
        values = [int(chance.random() * 100) for _ in range(each)]
        columns = {"t": pa.array(times, pa.int64()), "k": pa.array(keys, pa.int32()), "v": pa.array(values, pa.int64())}
        found.append(pa.table(columns))
    return found


def _run(tables: list[pa.Table], rows_max: int, shape: dict[str, Any]) -> tuple[float, float]:
    """Seconds on the wall and of the processor, from the first row to the last round on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        stream = rota.StreamSession(folder, rows_max=rows_max, every_s=0)
        stream.register_rows("events", *tables)
        aggregates = {"n": "count(*)", "total": "sum(v)", "most": "max(v)"}
        stream.register_window("w", "events", time="t", by=["k"], aggregates=aggregates, watermark_delay_s=6, **shape)
        with stream.start() as running:
            began, used = time.perf_counter(), time.process_time()
            for _ in running:
                pass
            return time.perf_counter() - began, time.process_time() - used


def throughput() -> Iterator[Row]:
    """Events a second through each kind of window."""
    tables = events(1_000_000)
    for name, shape, rows_max, reach in (
        ("tumbling windows, rounds of 100,000", {"tumbling_s": 10}, 100_000, 2.5),
        ("tumbling windows, rounds of 10,000", {"tumbling_s": 10}, 10_000, 0.5),
        ("sliding windows, rounds of 100,000", {"sliding_s": (60, 10)}, 100_000, 1.2),
        ("sessions, rounds of 40,000", {"session_s": 3}, 40_000, 0.6),
    ):
        count = sum(table.num_rows for table in tables)
        took, used = min(_run(tables, rows_max, shape) for _ in range(ROUNDS))
        yield Row(f"stream: {name}", round(count / took / 1e6, 2), "M events/s", reach, "higher", used / count * 1e6)


def latency() -> Iterator[Row]:
    """From when an event is due to when what it gives is published, at 100,000 a second."""
    with tempfile.TemporaryDirectory() as folder:
        stream = rota.StreamSession(Path(folder), every_s=0)
        stream.register_rate("events", RATE, keys=KEYS, rows=RATE * LATENCY_S)
        stream.register_view("seen", "select at, key, value * 2 as doubled from events")
        took: list[float] = []
        used = time.process_time()
        with stream.start() as running:
            for each in running:
                now_ms = time.time_ns() / 1e6
                due = each.rows["seen"].column("at").cast(pa.int64())
                took += (now_ms - at for at in due[:: max(1, len(due) // 50)].to_pylist())
        used = time.process_time() - used
    note = f"p99 {statistics.quantiles(took, n=100)[98]:.0f} ms"
    p50 = round(statistics.median(took), 1)
    yield Row(
        "stream: end to end at 100,000 events/s, p50", p50, "ms", 60, "lower", used / LATENCY_S / RATE * 1e6, note
    )
