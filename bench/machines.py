"""Benchmarks of stores that machines share, beside SQLite in the same run: throughput, hops, and what a standby costs.

CPU counts coordinator, workers and client, and not what the database's own processes use.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import rota
from bench.rig import Row
from bench.service import chain_ms, cpu_s_of, running, spec, tasks_per_s, tree_of
from rota.core.model import Graph
from tests.rig.backing import open_etcd, open_postgres
from tests.rig.fleet import open_fleet
from tests.rig.history import judge
from tests.rig.ledger import ledger_at
from tests.rig.load import Load, definitions
from tests.servers.etcd import etcd_server
from tests.servers.postgres import postgres_server

TASKS = 20_000
TASKS_OF_ETCD = 10_000
IDLE_S = 20
LIVE = 10_000
KILLS = 5
STANDING = "standing"
ETCD = "etcd"
POSTGRES = "PostgreSQL"
SQLITE = "SQLite"


Settings = dict[str, str]


@contextmanager
def _stores() -> Iterator[dict[str, Settings]]:
    """Settings for empty stores, each on a server of its own; none for SQLite."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        postgres = stack.enter_context(postgres_server())
        etcd = stack.enter_context(etcd_server())
        urls = {POSTGRES: postgres.new_database(), ETCD: etcd.url("bench")}
        shared = {
            name: {"ROTA_SERVER_STORE": url, "ROTA_SERVER_BLOBS": f"{folder}/{name}"} for name, url in urls.items()
        }
        yield {SQLITE: {}, **shared}


def throughput() -> Iterator[Row]:
    """No-op tasks and a chain on each store, with two worker processes."""
    found: dict[str, tuple[float, float, float]] = {}
    with _stores() as stores:
        for name, settings in stores.items():
            with running(2, 64, "--threads", settings=settings) as service, rota.connect(service.url) as client:
                per_s, cpu_us = tasks_per_s(service, client, TASKS_OF_ETCD if name == ETCD else TASKS)
            with running(2, 8, "--threads", settings=settings) as service, rota.connect(service.url) as client:
                tasks_per_s(service, client, 500)
                found[name] = per_s, cpu_us, chain_ms(client)[0]
    sqlite = found[SQLITE]
    for name, (per_s, cpu_us, hop_ms) in found.items():
        if name == SQLITE:
            continue
        ratio = round(per_s / sqlite[0], 2)
        note = f"{per_s:,.0f}/s, SQLite {sqlite[0]:,.0f}/s"
        yield Row(f"tasks on {name} by those on SQLite", ratio, "", 1 / 3, "higher", cpu_us, note)
        if name == ETCD:
            yield Row("tasks on etcd", round(per_s), "/s", 1_000, "higher", cpu_us)
        note = f"{hop_ms:.2f} ms, SQLite {sqlite[2]:.2f} ms"
        yield Row(f"hop on {name} by that on SQLite", round(hop_ms / sqlite[2], 2), "", 2, "lower", 0, note)


def standby() -> Iterator[Row]:
    """What a coordinator costs that follows another and waits."""
    with _stores() as stores:
        for name in (POSTGRES, ETCD):
            with running(0, 0, settings=stores[name]), tempfile.TemporaryDirectory() as folder:
                words = [sys.executable, "-m", "rota", "server", "--data", folder, "--http", "", "--listen"]
                env = {**os.environ, **stores[name]}
                process = subprocess.Popen([*words, "127.0.0.1:0"], stderr=subprocess.DEVNULL, env=env)  # noqa: S603 - our own program
                try:
                    time.sleep(5)
                    assert process.poll() is None, "the standby has ended"
                    before = sum(cpu_s_of(pid) for pid in tree_of(process.pid))
                    time.sleep(IDLE_S)
                    used = sum(cpu_s_of(pid) for pid in tree_of(process.pid)) - before
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait(30)
            share = round(used / IDLE_S * 100, 2)
            yield Row(f"idle CPU of a standby on {name}", share, "% of a core", 0.3, "lower", 0)


def failover() -> Iterator[Row]:
    """Leaders are killed with 10,000 tasks alive and some at work: how soon another leads, and what it costs."""
    for name, open_backing, reach in ((POSTGRES, open_postgres, 3), (ETCD, open_etcd, 6)):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            backing = stack.enter_context(open_backing(folder))
            fleet = stack.enter_context(
                open_fleet(
                    folder,
                    servers=2,
                    lease_s=30,
                    definitions=definitions(),
                    server_settings=lambda _, at=backing: at.settings(),
                    worker_settings=lambda _: {"worker.queues": ["default"]},
                )
            )
            client = stack.enter_context(fleet.connect())
            client.put_queue("nobody")
            client.submit(Graph(name="standing", tasks=(spec("x", width=LIVE, queue="nobody"),)), run=STANDING)
            load = Load(fleet.url, str(folder), seed=1, clients=2).start()
            took: list[float] = []
            for _ in range(KILLS):
                load.until_acknowledged(10)
                dead = fleet.until_leader()
                began = time.perf_counter()
                dead.kill()
                fleet.until_leader(other_than=dead)
                took.append(time.perf_counter() - began)
                fleet.restart_dead()
            load.until_acknowledged(5)
            load.finish()
            report = judge(load.history(ledger_at(fleet.url), fleet.kills()))
            load.close()
            found = [gap.ms or 0 for gap in report.gaps]
            # That run is not the load's, and is not meant to end.
            wrong = [each for each in report.violations if STANDING not in str(each)]
            note = "; ".join(
                (
                    f"each {', '.join(f'{one:.2f}' for one in took)} s",
                    f"clients unanswered for {max(found) / 1000:.1f} s at most",
                    f"work re-run {report.rerun}, kept {report.kept}",
                    f"errors of calls {sum(report.call_errors.values())}",
                    f"errors of requests {sum(report.try_errors.values())}",
                    f"violations {len(wrong)}",
                )
            )
            yield Row(f"failover on {name}, worst of {KILLS}", round(max(took), 2), "s", reach, "lower", 0, note)
