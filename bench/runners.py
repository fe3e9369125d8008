"""Running code on this machine: what a call costs through each runner, and what a new process costs."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.rig import Row, Stopwatch
from rota.core.decide.leases import Offer
from rota.stores.blobs import open_blobs
from rota.wire.work import CommandWork, PythonWork, encode_work
from rota.worker.bundles.driver import BundleCache
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.runners import Runner
from rota.worker.runners.command import CommandRunner
from rota.worker.runners.pool import Recycling
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.thread import ThreadRunner
from rota.worker.supervisor.driver import Supervisor

NOTHING = encode_work(PythonWork(function="time:time"))
TRUE = encode_work(CommandWork(argv=("true",)))


def round_trips() -> Iterator[Row]:
    """A call that does nothing, from offer to outcome."""
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Row]:
    blobs = open_blobs("memory:///")
    logs = LogShipper(blobs, LogFolder(folder))
    supervisor = Supervisor(logs)
    threads = ThreadRunner(blobs, folder)
    bundles = BundleCache(blobs, folder / "bundles")
    warm = ProcessRunner(supervisor, blobs, folder, bundles, recycling=Recycling(ahead=0, attempts_max=1 << 30))
    cold = ProcessRunner(supervisor, blobs, folder, bundles, recycling=Recycling(ahead=0, attempts_max=1))
    commands = CommandRunner(supervisor, warm, bundles)
    rows = [
        await _row("no-op call in a thread, p50", threads, 5_000, NOTHING, 100),
        await _row("no-op call in a warm process, p50", warm, 3_000, NOTHING, 500),
        await _row("command that does nothing, p50", commands, 50, TRUE, 50_000),
        await _row("no-op call in a new process, p50", cold, 20, NOTHING, 500_000),
    ]
    for runner in (threads, warm, cold, commands):
        await runner.close()
    await supervisor.close()
    await logs.close(1.0)
    return rows


async def _row(name: str, runner: Runner, count: int, work: bytes, reach_us: float) -> Row:
    offers = [_offer(number, work) for number in range(1, count + 1)]
    await runner.run(_offer(count + 1, work))
    took_us: list[float] = []
    with Stopwatch() as watch:
        for offer in offers:
            began = time.perf_counter()
            over = await runner.run(offer)
            took_us.append((time.perf_counter() - began) * 1e6)
            assert over.outcome == "success", over.error
    tenths = statistics.quantiles(took_us, n=10)
    return Row(
        name=name,
        value=round(statistics.median(took_us), 1),
        unit="µs",
        reach=reach_us,
        better="lower",
        cpu_us_per_unit=watch.cpu_s * 1e6 / count,
        note=f"p10 {tenths[0]:.0f} µs, p90 {tenths[8]:.0f} µs; CPU of the worker process only",
    )


def _offer(fence: int, work: bytes) -> Offer:
    return Offer("t", "r", 0, "a", fence, 1, "python", work, b"", 0, 30_000)
