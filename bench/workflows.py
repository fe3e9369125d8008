"""Benchmarks of workflows as their users meet them: deployed, on a service, in the default isolation.

Instants come from the service itself; CPU is what its processes used, read from /proc.
"""

import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import rota
from bench.rig import Row
from bench.service import Service, cpu_s_of, running, spec, tree_of
from rota.core.model import Graph

FAN = 1_000
CHAIN = 100
TRIGGERS = 100
GRAPHS = 1_000
MINUTES = 2
LARGE = 10_000
# As `rota up` has it on two cores, and as somebody sets it whose tasks mostly wait.
SLOTS, SLOTS_MANY = 2, 32
MINUTE_MS = 60_000

SOURCE = """
from rota import task, workflow

@task
def nothing(x=None):
    pass

@task
def number():
    return list(range({fan}))

@workflow
def fan():
    nothing.override(id="end")(nothing.override(id="each").expand(x=number()))

@workflow
def chain():
    last = nothing.override(id="t0")()
    for at in range(1, {chain}):
        now = nothing.override(id=f"t{{at}}")()
        last >> now
        last = now

@workflow
def one():
    nothing()
"""


MANY = """
from rota import task, workflow

@task
def nothing():
    pass

for number in range({graphs}):

    @workflow(name=f"g{{number}}", schedule="* * * * *")
    def flow():
        nothing()

    globals()[f"flow{{number}}"] = flow
"""


@contextmanager
def deployed(slots: int) -> Iterator[tuple[Service, rota.Rota]]:
    """A service with one worker, and the workflows above."""
    with tempfile.TemporaryDirectory() as folder, running(1, slots) as service, rota.connect(service.url) as client:
        file = Path(folder) / "flows.py"
        file.write_text(SOURCE.format(fan=FAN, chain=CHAIN), encoding="utf-8")
        client.deploy(file)
        client.trigger("one").wait(60)
        yield service, client


def fan(service: Service, client: rota.Rota, slots: int) -> Row:
    """1 → 1,000 → 1, the second time."""
    took_s = cpu_us = 0.0
    for _ in range(2):
        before = service.cpu_s()
        view = client.trigger("fan").wait(60)
        assert view.state == "success", view.reason
        took_s = (view.ended_at - view.created_at) / 1_000
        cpu_us = (service.cpu_s() - before) * 1e6 / (FAN + 2)
    return Row(f"workflow of 1 → 1,000 → 1 no-op tasks, {slots} slots", took_s, "s", 0.6, "lower", cpu_us)


def latency() -> Iterator[Row]:
    """A fan on few and on many slots, a chain, and how soon a trigger's first task starts."""
    with deployed(SLOTS_MANY) as (service, client):
        yield fan(service, client, SLOTS_MANY)
    with deployed(SLOTS) as (service, client):
        yield fan(service, client, SLOTS)
        run = client.trigger("chain")
        run.wait(60)
        ends = sorted(each.ended_at for each in run.tasks())
        hop_ms = (ends[-1] - ends[0]) / (CHAIN - 1)
        p50_ms = statistics.median(after - before for before, after in pairwise(ends))
        note = f"mean {hop_ms:.2f} ms"
        yield Row("chain of 100 tasks in processes, per hop, p50", float(p50_ms), "ms", 2, "lower", 0, note)
        waits: list[int] = []
        for _ in range(TRIGGERS):
            run = client.trigger("one")
            view = run.wait(60)
            waits.append(run.tasks()[0].started_at - view.created_at)
        waits.sort()
        note = f"p99 {waits[-2]} ms"
        yield Row("trigger → first task starts, p50", float(waits[TRIGGERS // 2]), "ms", 5, "lower", 0, note)


def minutely() -> Iterator[Row]:
    """A thousand workflows that all fire at every full minute."""
    with tempfile.TemporaryDirectory() as folder, running(2, 2) as service, rota.connect(service.url) as client:
        file = Path(folder) / "many.py"
        file.write_text(MANY.format(graphs=GRAPHS), encoding="utf-8")
        client.deploy(file)
        time.sleep((MINUTE_MS - time.time_ns() // 1_000_000 % MINUTE_MS) / 1_000 - 5)
        server = service.processes[0].pid
        before = sum(cpu_s_of(pid) for pid in tree_of(server))
        began = time.monotonic()
        time.sleep(MINUTES * 60)
        used = sum(cpu_s_of(pid) for pid in tree_of(server)) - before
        share = used / (time.monotonic() - began) * 100
        lags: dict[int, list[int]] = {}
        for view in client.runs(limit=MINUTES * GRAPHS):
            lags.setdefault(view.slot_at, []).append(view.started_at - view.slot_at)
        assert all(len(found) == GRAPHS for found in lags.values()), {slot: len(found) for slot, found in lags.items()}
        last_s = max(max(found) for found in lags.values()) / 1_000
        cpu_us = used * 1e6 / (MINUTES * GRAPHS)
        yield Row("1,000 workflows every minute, the coordinator's share of a core", share, "%", 2, "lower", cpu_us)
        yield Row("1,000 workflows every minute, the last start after the minute", last_s, "s", 1, "lower", 0)


def responsive() -> Iterator[Row]:
    """How long HTTP takes to answer while a run of 10,000 tasks is going on."""
    with running(2, 50, "--threads", http=True) as service, rota.connect(service.url) as client:
        run = client.submit(Graph(name="large", tasks=(spec("x", width=LARGE),)))
        paths = [f"/api/v1/runs/{run.id}", "/api/v1/runs?limit=20", f"/api/v1/runs/{run.id}/tasks?limit=100"]
        ended = threading.Event()
        threading.Thread(target=lambda: (run.wait(300), ended.set()), daemon=True).start()
        took_ms: list[float] = []
        while not ended.is_set():
            for path in paths:
                began = time.perf_counter()
                with urllib.request.urlopen(service.http + path) as answer:  # noqa: S310 - our own service
                    answer.read()
                took_ms.append((time.perf_counter() - began) * 1e3)
        took_ms.sort()
        p99 = took_ms[int(len(took_ms) * 0.99)]
        note = f"{len(took_ms)} requests, p50 {took_ms[len(took_ms) // 2]:.1f} ms, worst {took_ms[-1]:.0f} ms"
        yield Row("HTTP answers beside a run of 10,000 tasks, p99", p99, "ms", 50, "lower", 0, note)
