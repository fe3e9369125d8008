"""`rota top`: what runs, what waits and why, who works and how much gets done, kept current on a terminal."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rota.cli.given import seconds
from rota.cli.reaching import elsewhere, folder_of
from rota.cli.showing import finish, put, put_json, say

if TYPE_CHECKING:
    from rota.app import AsyncRota
    from rota.cli.frames import Rate, Sight

LOOK_EVERY_S = 1.0
RUNS_SHOWN = 50
EXAMPLES = """
  rota top
  rota top --interval 5 --coordinator grpc://rota.example.org:7433
  rota top --once     one picture, also for a file or a pipe
  rota top --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    text = f"how often to look (default {LOOK_EVERY_S:g})"
    parser.add_argument("--interval", type=seconds, default=LOOK_EVERY_S, metavar="SECONDS", help=text)
    parser.add_argument("--once", action="store_true", help="draw one picture and end; so it does without a terminal")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Watch until `q` is pressed."""
    import asyncio

    return asyncio.run(_watch(options))


async def _watch(options: argparse.Namespace) -> int:
    from rota.app import AsyncRota
    from rota.cli.bars import has_colour
    from rota.cli.frames import Rate, coloured, draw, plain
    from rota.cli.screen import size
    from rota.wire.views import as_plain

    url = elsewhere(options)
    where = url or f"data in {folder_of(options)}"
    paint = coloured if has_colour(sys.stdout) else plain
    async with await (AsyncRota.connect(url) if url else AsyncRota.open(folder_of(options))) as rota:
        if options.json:
            sight = await _look(rota, where, Rate())
            put_json(
                {
                    "overview": as_plain(sight.overview),
                    "running": [as_plain(view) for view in sight.running],
                    "workers": [as_plain(view) for view in sight.workers],
                }
            )
            return 0
        is_watched = sys.stdout.isatty() and sys.stdin.isatty()
        # Where no service is, nothing changes meanwhile.
        if options.once or rota.is_host or not is_watched:
            sight = await _look(rota, where, Rate())
            for line in draw(sight, size()[0], 10_000, _clock(sight), paint):
                put(line)
            if rota.is_host:
                say("rota: nobody runs on it; start it with `rota up`")
            return 0
        return await _keep_current(options, rota, where)


async def _keep_current(options: argparse.Namespace, rota: "AsyncRota", where: str) -> int:
    import asyncio
    from contextlib import suppress

    from rota.cli import EXIT_TERMINATED
    from rota.cli.bars import has_colour
    from rota.cli.frames import Rate, coloured, draw, plain
    from rota.cli.screen import size, taken

    paint = coloured if has_colour(sys.stdout) else plain
    rate = Rate()
    sight = await _look(rota, where, rate)
    with taken() as screen:
        looked_at = asyncio.get_running_loop().time()
        while not screen.quit.is_set():
            columns, rows = size()
            screen.draw(draw(sight, columns, rows, _clock(sight), paint))
            with suppress(TimeoutError):
                async with asyncio.timeout_at(looked_at + options.interval):
                    await screen.stale.wait()
            screen.stale.clear()
            if asyncio.get_running_loop().time() >= looked_at + options.interval:
                sight = await _look_again(rota, where, rate, sight)
                looked_at = asyncio.get_running_loop().time()
    return EXIT_TERMINATED if screen.is_terminated else 0


async def _look(rota: "AsyncRota", where: str, rate: "Rate") -> "Sight":
    from rota.cli.frames import Sight
    from rota.core.states import RunState

    overview = await rota.overview()
    ended, failed = rate.hear(overview)
    running = await rota.runs(states=(RunState.RUNNING,), limit=RUNS_SHOWN, history=False)
    return Sight(where, overview, running, await rota.workers(), ended, failed)


async def _look_again(rota: "AsyncRota", where: str, rate: "Rate", before: "Sight") -> "Sight":
    """The same; who cannot be reached is said, and what was seen last stays."""
    from msgspec import structs

    from rota.core.errors import Refused, Unavailable

    try:
        return await _look(rota, where, rate)
    except (Refused, Unavailable) as trouble:
        return structs.replace(before, trouble=f"as it was: {trouble}", ended_per_s=None, failed_per_s=0.0)


def _clock(sight: "Sight") -> str:
    return datetime.fromtimestamp(sight.overview.as_of / 1000, UTC).astimezone().strftime("%H:%M:%S")
