"""Benchmarks of the pages: a run of 10,000 tasks, mapped and one by one, as a browser asks for it."""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.rig import Row
from rota.core.model import Graph, TaskSpec
from tests.integration.http_stage import Stage, staged

TASKS = 10_000
TRIES = 9
BYTES_MAX = 300_000
# So that they wait, all of them, as long as they are looked at.
NEVER = (("gpu_count", "99"),)
HTML = {"Accept": "text/html"}
VIEWS = ("", "/graph", "/timeline", "/logs", "/tasks", "/story")


def wide() -> Graph:
    """One mapped task."""
    return Graph(name="wide", tasks=(TaskSpec(id="work", width=TASKS, requires=NEVER),))


def many() -> Graph:
    """As many tasks of their own, in groups of a hundred, each after one of the group before."""
    tasks = [
        TaskSpec(
            id=f"g{number // 100:02d}.t{number:04d}",
            upstream=(f"g{number // 100 - 1:02d}.t{number - 100:04d}",) if number >= 100 else (),
            requires=NEVER,
        )
        for number in range(TASKS)
    ]
    return Graph(name="many", tasks=tuple(tasks))


def large_runs() -> Iterator[Row]:
    """What a page of such a run takes, from the request to its last byte, when something has just happened to it."""
    with ExitStack() as parts:
        stage = parts.enter_context(staged())
        for graph in (wide(), many()):
            run = stage.rota.submit(graph, run=graph.name)
            # What a service does once, whoever asks first.
            for view in VIEWS:
                _ask(stage, f"/runs/{run.id}{view}")
            for view in VIEWS:
                took_ms: list[float] = []
                began = time.process_time()
                size = 0
                for number in range(TRIES):
                    # Its story goes on, so that nothing that was read of it before holds any more.
                    run.pause(paused=number % 2 == 0)
                    at = time.perf_counter()
                    size = _ask(stage, f"/runs/{run.id}{view}")
                    took_ms.append((time.perf_counter() - at) * 1000)
                cpu_us = (time.process_time() - began) / TRIES * 1e6
                name = f"page of 10,000 tasks, {graph.name}: {view.strip('/') or 'grid'}"
                note = (
                    f"{size / 1000:.0f} KB of at most {BYTES_MAX / 1000:.0f}; worst of {TRIES}: {max(took_ms):.0f} ms"
                )
                yield Row(name, round(statistics.median(took_ms), 1), "ms", 200, "lower", cpu_us, note)


def _ask(stage: Stage, url: str) -> int:
    response = stage.http.get(url, headers=HTML)
    assert response.status_code == 200, response.text
    assert len(response.content) < BYTES_MAX, f"{url} has {len(response.content):,} bytes"
    return len(response.content)
