"""The same build by the same Bazel: carried out by Rota, and at home in Bazel's own sandbox.

Both run on the cores that are here, so this is what the way through a service costs, and not what more machines give.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.rig import Row
from bench.service import cpu_s_of, free_port, tree_of, wait_for
from tests.integration.builds.clients.bazel import Bazel, open_bazel

ROUNDS = 5
LOCAL = ("--spawn_strategy=linux-sandbox",)
START_S = 60


@contextmanager
def up(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """All of Rota as one command starts it; the answer is where Bazel finds it."""
    port = free_port()
    words = [sys.executable, "-m", "rota", "up", "--data", str(folder / "data"), "--http", ""]
    words += ["--listen", "127.0.0.1:0", "--builds", f"127.0.0.1:{port}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=env, cwd=folder)  # noqa: S603 - our own program
    try:
        wait_for(port, time.monotonic() + START_S)
        yield f"--remote_executor=grpc://127.0.0.1:{port}", process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_S)


def build_s(bazel: Bazel, *words: str) -> tuple[float, int]:
    """How long a build from nothing takes, and how many actions were carried out."""
    bazel.clean()
    began = time.perf_counter()
    built = bazel.run("build", "//many:all", *words).well()
    took_s = time.perf_counter() - began
    return took_s, sum(count for how, count in built.processes.items() if how in ("remote", "linux-sandbox"))


def against_local() -> Iterator[Row]:
    """Both in turns, so that a slow minute is one for both; the first of each warms the JVM and does not count."""
    with tempfile.TemporaryDirectory() as name, open_bazel(Path(name)) as bazel, up(Path(name)) as (executor, process):
        remote = (executor, "--noremote_accept_cached")
        times: dict[tuple[str, ...], list[float]] = {LOCAL: [], remote: []}
        used_s = 0.0
        for number in range(ROUNDS + 1):
            before = sum(cpu_s_of(pid) for pid in tree_of(process.pid))
            for words, took in times.items():
                took_s, actions = build_s(bazel, *words)
                if number:
                    took.append(took_s)
            if number:
                used_s += sum(cpu_s_of(pid) for pid in tree_of(process.pid)) - before
        at_home, at_rota = (statistics.median(took) for took in times.values())
    cpu_us = used_s / ROUNDS / actions * 1e6
    note = f"{actions} actions: {at_rota:.2f} s by Rota, {at_home:.2f} s at home; medians of {ROUNDS}"
    yield Row("bazel build, by Rota against a sandbox at home", at_rota / at_home, "×", 1.2, "lower", cpu_us, note)
