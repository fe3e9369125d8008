"""`rota frontend`: builds for a coordinator elsewhere, by the Remote Execution API."""

import argparse
from contextlib import AsyncExitStack
from types import ModuleType
from typing import TYPE_CHECKING

from rota.cli.serving import Signals, add_config, add_setting, done_before, follow, run_until_stopped, settings, tell
from rota.cli.showing import put, put_json, say
from rota.core.errors import Refused

if TYPE_CHECKING:
    from rota.config import Config


EXIT_DAMAGED = 1

EXAMPLES = """
  rota frontend --coordinator grpc://rota.example.org:7433 --listen 0.0.0.0:8980
  rota frontend --data /var/lib/rota/builds --check     reads everything, drops what is damaged
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_config(parser)
    text = "such as grpc://host:7433 (default $ROTA_COORDINATOR)"
    add_setting(parser, "--coordinator", "client.coordinator", metavar="URL", help=text)
    text = "where clients and workers reach it (default 127.0.0.1:8980)"
    add_setting(parser, "--listen", "builds.listen", metavar="HOST:PORT", help=text)
    text = "its folder (default .rota/builds)"
    add_setting(parser, "--data", "builds.data", metavar="DIR", help=text)
    text = "the queue in which actions wait (default builds)"
    add_setting(parser, "--queue", "builds.queue", metavar="NAME", help=text)
    text = "where it shows its metrics, such as 127.0.0.1:8981 (default: nowhere)"
    add_setting(parser, "--http", "builds.http", metavar="HOST:PORT", help=text)
    text = "serve nothing: read all content that it keeps, drop what is damaged, and end (1 if anything was)"
    parser.add_argument("--check", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print what --check found as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    import asyncio

    config = settings(options)
    if options.check:
        return asyncio.run(check(config, as_json=options.json))
    return run_until_stopped(lambda signals: serve(config, signals))


def _load() -> ModuleType:
    """What it takes, which is not needed to show help."""
    try:
        from rota.app import frontend
    except ModuleNotFoundError as missing:
        text = f"a front end for builds needs {missing.name}"
        raise Refused("config.value", text, "pip install 'rota[build]'.", path="builds.listen") from None
    return frontend


async def check(config: "Config", *, as_json: bool) -> int:
    """Look at everything that a front end keeps."""
    found = await _load().check_content(config)
    if as_json:
        put_json(found)
        return EXIT_DAMAGED if found.damaged else 0
    put(f"{found.checked:,} contents with {found.checked_bytes:,} bytes, {found.damaged:,} damaged")
    if found.damaged:
        say("what was damaged is gone; clients send it again when they are told that it is missing")
    return EXIT_DAMAGED if found.damaged else 0


async def serve(config: "Config", signals: Signals) -> int:
    """A front end from its start to its end."""
    import asyncio

    frontend = _load()

    from rota.app.beside import Lifeline

    lifeline = Lifeline()
    followed = await follow(lifeline, config, signals)
    if followed is None:
        return 0
    config = followed
    async with AsyncExitStack() as parts:
        starting = asyncio.ensure_future(frontend.start_front_end(parts, config))
        if not await done_before(starting, signals.asked):
            return 0
        front = starting.result()
        # Whoever is beside says by itself when it is ready.
        what = "builds" if lifeline.is_held else "ready"
        shown = f"; metrics at {front.http}/metrics" if front.http else ""
        tell(f"{what}: bazel --remote_executor={front.url}; content in {front.folder}{shown}")
        left = asyncio.ensure_future(lifeline.cut())
        await done_before(left, signals.asked)
        tell("stopping")
    return 0
