"""Benchmarks of the embedded runtime: a chain of no-op callables, and what it costs to start."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import rota
from bench.rig import Row

HOPS = 1_000
TRIES = 15


@rota.task
def hop(value: int) -> int:
    """Nothing but a step."""
    return value + 1


@rota.workflow
def chain():
    value = 0
    for _ in range(HOPS):
        value = hop(value)


def hops() -> Iterator[Row]:
    """A chain of callables in threads, on SQLite with synchronous=FULL: the time between the ends of neighbours."""
    with tempfile.TemporaryDirectory() as folder, rota.Rota.embedded(Path(folder) / "data", threads=True) as here:
        began = time.process_time()
        run = here.submit(chain)
        view = run.wait(120)
        cpu_s = time.process_time() - began
        assert view.state == "success", view.reason
        ends = sorted(task.ended_at for task in run.tasks())
    wall_ms = (ends[-1] - ends[0]) / (HOPS - 1)
    gaps = [after - before for before, after in pairwise(ends)]
    note = f"mean {wall_ms:.2f} ms; the clock counts whole milliseconds, so the mean is given"
    yield Row(
        "chain of 1,000 callables embedded, per hop",
        round(wall_ms, 3),
        "ms",
        1,
        "lower",
        cpu_s / HOPS * 1e6,
        f"{note}; p99 {statistics.quantiles(gaps, n=100)[98]:.0f} ms",
    )


def starts() -> Iterator[Row]:
    """What a program pays before anything happens: the best of several tries."""
    for name, reach, words in (
        ("import rota", 60, ["-c", "import rota"]),
        ("rota --help", 150, ["-m", "rota.cli", "--help"]),
    ):
        bare = min(_run([sys.executable, "-c", "pass"]) for _ in range(TRIES))
        best = min(_run([sys.executable, *words]) for _ in range(TRIES))
        value = best - bare if name.startswith("import") else best
        what = "over an empty interpreter" if name.startswith("import") else "the whole command"
        yield Row(name, round(value, 1), "ms", reach, "lower", value * 1000, f"{what}, best of {TRIES}")


def _run(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own interpreter
    return (time.perf_counter() - began) * 1000
