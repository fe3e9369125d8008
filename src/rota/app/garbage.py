"""Removing what nobody refers to any more: results of attempts that did not count, and what outlived its run.

What is young is left alone: an attempt stores its result before its report is accepted.
"""

import asyncio
from collections.abc import Callable

from rota.control.driver import Listener
from rota.control.events import Tell
from rota.core.ids import Millis
from rota.ports import Blobs, Store
from rota.wire.names import safe_name
from rota.worker.logs import LogFolder
from rota.worker.logs import collect as collect_logs

GARBAGE_AGE_MS = 24 * 3_600_000
COLLECT_EVERY_S = 3_600.0
STAMP = "garbage.stamp"


async def collect(store: Store, blobs: Blobs, logs: LogFolder, tenant: str, now: Millis) -> tuple[int, int]:
    """Remove a tenant's garbage once; how many blobs and how many runs' logs that were."""
    kept = await store.kept()
    runs = {(safe_name(tenant), safe_name(run)) for tenant, run in kept.runs}
    before = now - GARBAGE_AGE_MS

    def is_wanted(name: str) -> bool:
        fence = fence_of(name)
        return fence is None or fence in kept.fences

    home = safe_name(tenant)
    removed = await blobs.collect(home, is_wanted, before)
    return removed, await asyncio.to_thread(
        collect_logs, logs.root / home, lambda run: (home, run) in runs, before * 1_000_000
    )


def fence_of(name: str) -> int | None:
    """The fence in the name of an attempt's blob; None if it is not such a name."""
    parts = name.split("/")
    attempt, _, fence = parts[-2].partition("-") if len(parts) > 1 else ("", "", "")
    return int(fence) if attempt.isdigit() and fence.isdigit() else None


async def keep_collecting(
    store: Store, blobs: Blobs, logs: LogFolder, tenant: str, clock: Callable[[], Millis], listener: Listener
) -> None:
    """Remove garbage every hour. The hour is the folder's: programs that live for seconds take turns at it."""
    stamp = logs.root.parent / STAMP
    while True:
        try:
            if not stamp.exists() or clock() - stamp.stat().st_mtime_ns // 1_000_000 >= COLLECT_EVERY_S * 1_000:
                stamp.touch(0o600)
                await collect(store, blobs, logs, tenant, clock())
        except Exception as error:  # it is tried again, and nothing depends on it
            listener(Tell("garbage.failed", (("error", f"{error}"),)))
        await asyncio.sleep(COLLECT_EVERY_S)
