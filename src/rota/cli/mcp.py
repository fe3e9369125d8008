"""`rota mcp`: tools for an agent over the Model Context Protocol, on the standard streams."""

import argparse
import os
import signal
import sys
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

from rota import __version__
from rota.cli.reaching import add_place, elsewhere, folder_of
from rota.core.errors import Refused, Unavailable

if TYPE_CHECKING:
    import asyncio


# What an agent's spawner says of it.
SESSION, AGENT, WORKSPACE, CHANNEL, CAPABILITIES = (
    f"ROTA_{name}" for name in ("SESSION", "AGENT", "WORKSPACE", "CHANNEL", "CAPABILITIES")
)

EXAMPLES = """
  rota mcp --coordinator grpc://rota.example.org:7433 --workspace docs --capability review
  ROTA_SESSION=reviewer-7 rota mcp --data .rota
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_place(parser)
    for name, variable, text in (
        ("session", SESSION, "its id (default ${}, or made up)"),
        ("agent", AGENT, "the agent's name, which work may ask for (default ${})"),
        ("workspace", WORKSPACE, "where it works (default ${}, or nowhere in particular)"),
        ("channel", CHANNEL, "its channel (default ${}, or none)"),
    ):
        default = os.environ.get(variable, "")
        parser.add_argument(
            f"--{name}", default=default, metavar="ID" if name == "session" else "NAME", help=text.format(variable)
        )
    text = f"what it can do; may be given several times (default ${CAPABILITIES}, with commas in between)"
    parser.add_argument("--capability", action="append", metavar="NAME", help=text)
    parser.add_argument("--limit", type=int, default=1, metavar="N", help="items that it may hold at once (default 1)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until whoever speaks to it hangs up."""
    import asyncio

    module = _load()
    asyncio.run(serve(options, module))
    return 0


def _load() -> ModuleType:
    """What it takes, which is not needed to show help."""
    try:
        from rota.api.mcp import server
    except ModuleNotFoundError as missing:
        text = f"a server for MCP needs {missing.name}"
        raise Refused("config.value", text, "pip install 'rota[agent]'.", path="mcp") from None
    return server


async def serve(options: argparse.Namespace, module: ModuleType) -> None:
    """One session, from its start to its end."""
    import asyncio

    from rota.app import AsyncRota
    from rota.app.clocks import wall_clock

    url = elsewhere(options)
    async with await (AsyncRota.connect(url) if url else AsyncRota.open(folder_of(options))) as client:
        session = client.agent_session(
            options.session,
            agent=options.agent,
            workspace=options.workspace,
            channel=options.channel,
            session_type="mcp",
            capabilities=capabilities_of(options),
            limit=options.limit,
        )
        # From now on somebody may have to be told of the end.
        asked = _listen_for_signals()
        await session.register()
        try:
            server = module.make_server(client, session, options.workspace, wall_clock, __version__)
            await _until(asked, asyncio.ensure_future(server.run_stdio_async()))
        finally:
            # Whoever is gone cannot be told; silence says it then.
            with suppress(Refused, Unavailable):
                await session.end()
    if asked.is_set():
        # A thread reads from whoever has not hung up, and nothing but its next line would end it.
        sys.stderr.flush()
        os._exit(0)


def capabilities_of(options: argparse.Namespace) -> list[str]:
    """What was said on the command line, or in the environment."""
    if options.capability is not None:
        return options.capability
    return [name.strip() for name in os.environ.get(CAPABILITIES, "").split(",") if name.strip()]


def _listen_for_signals() -> "asyncio.Event":
    """Set when the process is asked to end."""
    import asyncio

    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)
    return asked


async def _until(asked: "asyncio.Event", serving: "asyncio.Future[None]") -> None:
    """Until the other side hangs up, or a signal asks for it."""
    import asyncio

    waiting = asyncio.ensure_future(asked.wait())
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if serving.done():
        serving.result()
