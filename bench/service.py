"""Benchmarks of the service: a coordinator, two worker processes and one client, over gRPC, on SQLite FULL.

CPU is what all processes used together, read from /proc; wall times on shared cores are told beside it.
"""

import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import rota
from bench.rig import Row
from rota.core.model import Graph, TaskSpec
from rota.wire.work import PYTHON, PythonWork, encode_work

TASKS = 20_000
CHAIN = 100
FAN = 1_000
ENQUEUED = 100_000
ONES = 200
IDLE_S = 30
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def nothing() -> None:
    """The work of every task here."""


def spec(name: str, *, upstream: tuple[str, ...] = (), width: int = 1, queue: str = "default") -> TaskSpec:
    work = encode_work(PythonWork(function="bench.service:nothing", path=str(Path(__file__).parents[1])))
    return TaskSpec(id=name, kind=PYTHON, work=work, upstream=upstream, width=width, queue=queue)


class Service:
    """Processes that belong together."""

    def __init__(self, url: str, processes: list["subprocess.Popen[bytes]"], http: str = "") -> None:
        self.url = url
        self.processes = processes
        self.http = http

    def cpu_s(self) -> float:
        """What these processes and everything they started have used, and this one."""
        mine = sum(os.times()[:2])
        return mine + sum(cpu_s_of(pid) for process in self.processes for pid in tree_of(process.pid))

    def pss_mb(self) -> float:
        """Memory of the processes, what they share counted once."""
        return sum(_pss_kb(pid) for process in self.processes for pid in tree_of(process.pid)) / 1024


def tree_of(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with_children = Path(f"/proc/{parent}/task").glob("*/children")
        found += [int(child) for path in with_children for child in path.read_text().split()]
    return found


def cpu_s_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) * _TICK_S


def _pss_kb(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port: int, give_up_at: float) -> None:
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < give_up_at, "the service did not start"
        time.sleep(0.05)


@contextmanager
def running(
    workers: int, slots: int, *more: str, settings: Mapping[str, str] | None = None, http: bool = False
) -> Iterator[Service]:
    """A coordinator and its workers; `settings` are variables for all of them."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe, socket.socket() as other:
        probe.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, http_port = probe.getsockname()[1], other.getsockname()[1]
        probe.close()
        other.close()
        at = f"127.0.0.1:{http_port}" if http else ""
        url = f"grpc://127.0.0.1:{port}"
        base = [sys.executable, "-m", "rota"]
        server = [*base, "server", "--data", f"{folder}/data", "--listen", f"127.0.0.1:{port}", "--http", at]
        commands = [server] + [
            [*base, "worker", "--coordinator", url, "--data", f"{folder}/worker{number}", "--slots", str(slots), *more]
            for number in range(workers)
        ]
        log = (Path(folder) / "log").open("wb")
        env = {**os.environ, **(settings or {})}
        processes = [subprocess.Popen(words, stdout=log, stderr=log, env=env) for words in commands]  # noqa: S603 - our own program
        try:
            give_up_at = time.monotonic() + 30
            wait_for(port, give_up_at)
            with rota.connect(url) as client:
                while sum(worker.present for worker in client.workers()) < workers:
                    assert time.monotonic() < give_up_at, (Path(folder) / "log").read_text()
                    time.sleep(0.05)
            yield Service(url, processes, f"http://{at}")
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(30)
            log.close()


def tasks_per_s(service: Service, client: rota.Rota, count: int) -> tuple[float, float]:
    """No-op tasks through whatever is running: how many a second, and CPU of all processes for each."""
    client.submit(Graph(name="warm", tasks=(spec("x", width=500),))).wait(60)
    before, began = service.cpu_s(), time.perf_counter()
    view = client.submit(Graph(name="many", tasks=(spec("x", width=count),))).wait(300)
    wall_s = time.perf_counter() - began
    assert view.state == "success", view.reason
    return count / wall_s, (service.cpu_s() - before) / count * 1e6


def chain_ms(client: rota.Rota) -> tuple[float, float]:
    """From the end of a task to the end of the next: mean and median."""
    names = [f"t{number}" for number in range(CHAIN)]
    tasks = tuple(spec(name, upstream=tuple(names[at - 1 : at] if at else ())) for at, name in enumerate(names))
    run = client.submit(Graph(name="chain", tasks=tasks))
    run.wait(60)
    ends = sorted(task.ended_at for task in run.tasks())
    return (ends[-1] - ends[0]) / (CHAIN - 1), statistics.median(after - before for before, after in pairwise(ends))


def throughput() -> Iterator[Row]:
    """No-op Python tasks through two worker processes: in threads of theirs, and in warm processes."""
    for slots, more, note in ((64, ("--threads",), "threads of the workers"), (8, (), "warm processes")):
        with running(2, slots, *more) as service, rota.connect(service.url) as client:
            per_s, cpu_us = tasks_per_s(service, client, TASKS)
        yield Row(f"tasks through gRPC, {note}", round(per_s), "/s", 5_000, "higher", cpu_us, "two workers")
        yield Row(f"CPU per task over all processes, {note}", round(cpu_us), "µs", 300, "lower", cpu_us)


def latency() -> Iterator[Row]:
    """One task on an idle system, a chain, a fan out and in."""
    with running(2, 8, "--threads") as service, rota.connect(service.url) as client:
        client.submit(Graph(name="warm", tasks=(spec("x", width=500),))).wait(60)
        one = Graph(name="one", tasks=(spec("x"),))
        took: list[float] = []
        for _ in range(ONES):
            began = time.perf_counter()
            client.submit(one).wait(10)
            took.append((time.perf_counter() - began) * 1_000)
        p50, p99 = statistics.median(took), statistics.quantiles(took, n=100)[98]
        yield Row("one task, submit to done, p50", round(p50, 2), "ms", 3, "lower", 0, f"p99 {p99:.1f} ms")
        mean, median = chain_ms(client)
        note = f"mean; p50 {median:.0f} ms of a clock in whole milliseconds"
        yield Row("chain of 100, per hop", round(mean, 2), "ms", 1.5, "lower", 0, note)
        fan = (spec("a"), spec("b", upstream=("a",), width=FAN), spec("c", upstream=("b",)))
        began = time.perf_counter()
        client.submit(Graph(name="fan", tasks=fan)).wait(60)
        yield Row("1 to 1,000 to 1", round(time.perf_counter() - began, 3), "s", 0.45, "lower", 0)


def enqueue() -> Iterator[Row]:
    """100,000 tasks into a queue that nobody serves: as one run, and as runs of one task."""
    with running(0, 0) as service, rota.connect(service.url) as client:
        client.put_queue("nobody")
        before, began = service.cpu_s(), time.perf_counter()
        client.submit(Graph(name="many", tasks=(spec("x", width=ENQUEUED, queue="nobody"),)))
        wall_s = time.perf_counter() - began
        cpu_us = (service.cpu_s() - before) / ENQUEUED * 1e6
        yield Row("enqueue 100,000 tasks as one run", round(ENQUEUED / wall_s), "/s", 20_000, "higher", cpu_us)


def idle() -> Iterator[Row]:
    """What the whole of `rota up` costs while nothing happens, with one worker and the front ends off."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "rota", "up", "--data", f"{folder}/data", "--slots", "1", "--http", ""]
        process = subprocess.Popen([*words, "--listen", "127.0.0.1:0"], stderr=subprocess.DEVNULL)  # noqa: S603 - our own program
        try:
            service = Service("", [process])
            time.sleep(5)
            before = sum(cpu_s_of(pid) for pid in tree_of(process.pid))
            time.sleep(IDLE_S)
            used = sum(cpu_s_of(pid) for pid in tree_of(process.pid)) - before
            yield Row("idle CPU of rota up", round(used / IDLE_S * 100, 2), "% of a core", 0.4, "lower", 0)
            yield Row("memory of rota up", round(service.pss_mb(), 1), "MB PSS", 160, "lower", 0)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
