"""`rota flight`: queries of other people's drivers, by Arrow Flight SQL, for a coordinator elsewhere."""

import argparse
import os
import sys
from contextlib import AsyncExitStack
from types import ModuleType
from typing import TYPE_CHECKING

from rota.cli.serving import Signals, add_config, add_setting, done_before, follow, run_until_stopped, settings, tell
from rota.cli.showing import show_count
from rota.core.errors import Refused

if TYPE_CHECKING:
    from rota.config import Config

EXAMPLES = """
  rota flight --coordinator grpc://rota.example.org:7433 --listen 127.0.0.1:8982
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_config(parser)
    text = "such as grpc://host:7433 (default $ROTA_COORDINATOR)"
    add_setting(parser, "--coordinator", "client.coordinator", metavar="URL", help=text)
    text = "where drivers reach it (default 127.0.0.1:8982)"
    add_setting(parser, "--listen", "queries.listen", metavar="HOST:PORT", help=text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    config = settings(options)
    return run_until_stopped(lambda signals: serve(config, signals))


def _load() -> ModuleType:
    """What it takes, which is not needed to show help."""
    try:
        from rota.app.sql import flight
    except ModuleNotFoundError as missing:
        text = f"a front end for queries needs {missing.name}"
        raise Refused("config.value", text, "pip install 'rota[query]'.", path="queries.listen") from None
    return flight


async def serve(config: "Config", signals: Signals) -> int:
    """A front end from its start to its end."""
    import asyncio

    flight = _load()

    from rota.app.beside import Lifeline

    lifeline = Lifeline()
    followed = await follow(lifeline, config, signals)
    if followed is None:
        return 0
    config = followed
    async with AsyncExitStack() as parts:
        starting = asyncio.ensure_future(flight.start_flight(parts, config))
        if not await done_before(starting, signals.asked):
            return 0
        front = starting.result()
        # Whoever is beside says by itself when it is ready.
        what = "queries" if lifeline.is_held else "ready"
        tell(f"{what}: {front.url} speaks Flight SQL, with {show_count(len(config.queries.tables), 'table')}")
        left = asyncio.ensure_future(lifeline.cut())
        await done_before(left, signals.asked)
        tell("stopping")
    if front.is_stuck():
        tell("stopped: somebody did not read what they had asked for")
        sys.stderr.flush()
        os._exit(0)
    return 0
