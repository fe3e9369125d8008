"""Removing what nobody refers to any more: results of attempts that did not count, logs that outlived their run, and
bundles of which no workflow and no run is any more.

What is young is left alone: an attempt stores its result before its report is accepted, and a bundle is there before
what is deployed with it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rota.app.homes import check_own
from rota.control.driver import Listener
from rota.control.events import Tell
from rota.core.ids import Millis
from rota.ports import Blobs, Store
from rota.wire.bundles import FOLDER
from rota.wire.names import safe_name

GARBAGE_AGE_MS = 24 * 3_600_000
COLLECT_EVERY_S = 3_600.0
# How long a new leader of several leaves it at that: it has a fleet to hear, and a store that may just have recovered.
REST_S = 300.0
# How many names are worked out at a time.
_CHUNK = 2_000
STAMP = "garbage.stamp"


async def collect(store: Store, blobs: Blobs, now: Millis) -> int:
    """Remove garbage once; how many blobs that were."""
    kept = await store.kept()
    runs: set[tuple[str, str]] = set()
    for number, (tenant, run) in enumerate(kept.runs):
        runs.add((safe_name(tenant), safe_name(run)))
        if number % _CHUNK == 0:
            # There may be a million of them, and others have work to do.
            await asyncio.sleep(0)

    def is_wanted(name: str) -> bool:
        # tenant/run/task/attempt-fence/result, or …/log/number
        match name.split("/"):
            case [tenant, run, _, attempt, "log", _] if is_attempt(attempt):
                return (tenant, run) in runs
            case [_, _, _, attempt, _] if is_attempt(attempt):
                return int(attempt.partition("-")[2]) in kept.fences
            case [_, bundles, _] if bundles == FOLDER:
                return name in kept.bundles
            case _:
                # Not of an attempt: somebody else's to remove.
                return True

    removed = 0
    for home in await blobs.list(""):
        if home.is_folder:
            removed += await blobs.collect(home.name, is_wanted, now - GARBAGE_AGE_MS)
    return removed


def is_attempt(name: str) -> bool:
    """Whether a part of a name stands for an attempt, by its number and fence."""
    number, _, fence = name.partition("-")
    return number.isdigit() and fence.isdigit()


async def keep_collecting(
    store: Store,
    blobs: Blobs,
    home: str,
    folder: Path,
    clock: Callable[[], Millis],
    listener: Listener,
    *,
    rest_s: float = 0.0,
) -> None:
    """Remove garbage every hour, after a rest. The hour is the folder's: programs that live for seconds take turns.

    `home` is the mark of this coordinator: where somebody else has taken over, everything is theirs to remove.
    """
    stamp = folder / STAMP
    await asyncio.sleep(rest_s)
    while True:
        try:
            if not stamp.exists() or clock() - stamp.stat().st_mtime_ns // 1_000_000 >= COLLECT_EVERY_S * 1_000:
                stamp.touch(0o600)
                await check_own(blobs, home, "where the blobs are")
                await collect(store, blobs, clock())
        except Exception as error:  # it is tried again, and nothing depends on it
            listener(Tell("garbage.failed", (("error", f"{error}"),)))
        await asyncio.sleep(COLLECT_EVERY_S)
