"""Processes that go on until they are told to stop: how they start, how they are stopped, what they say."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from rota.cli import EXIT_FAILED, EXIT_UNAVAILABLE
from rota.cli.showing import say

if TYPE_CHECKING:
    import asyncio

    from rota.app.beside import Lifeline
    from rota.config import Config
    from rota.worker.driver import WorkerDriver

LOUD_LINE_CHARS_MAX = 1_000
# How long stopping at once may take. What hangs then is left behind; leases end by themselves.
AT_ONCE_S = 40.0


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option that names the file of settings."""
    parser.add_argument("--config", metavar="FILE", help="the settings (default $ROTA_CONFIG, ./rota.toml or .json5)")


def add_setting(parser: argparse.ArgumentParser, option: str, path: str, **how: Any) -> None:
    """An option that is a setting; `settings` finds it by its path."""
    parser.add_argument(option, dest=path, default=None, **how)


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """What may be said of a worker on the command line; everything else is in the settings."""
    text = "attempts at once (default: one for each processor)"
    add_setting(parser, "--slots", "worker.slots", type=int, metavar="N", help=text)
    text = "run Python tasks in threads"
    add_setting(parser, "--threads", "worker.threads", action="store_const", const=True, help=text)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """What may be said of a coordinator on the command line."""
    add_setting(parser, "--data", "server.data", metavar="DIR", help="the data folder (default ./.rota)")
    text = "what coordinators share: postgresql://… or etcd://… (default: SQLite in the data folder)"
    add_setting(parser, "--store", "server.store", metavar="URL", help=text)
    text = "where workers and clients reach it, with gRPC"
    add_setting(parser, "--listen", "server.listen", metavar="HOST:PORT", help=text)
    text = "where HTTP is served; empty: nowhere"
    add_setting(parser, "--http", "server.http", metavar="HOST:PORT", help=text)


def settings(options: argparse.Namespace) -> "Config":
    """The settings, with what the options say of them."""
    from rota.config import load_config

    given = {path: value for path, value in vars(options).items() if "." in path}
    return load_config(given, os.environ, options.config)


def tell(line: str) -> None:
    """A line for whoever looks after this process."""
    say(f"rota: {line[:LOUD_LINE_CHARS_MAX]}")


class Signals:
    """What the process was asked by signals: to finish in order (SIGTERM), or at once (Ctrl-C, or asked again)."""

    def __init__(self) -> None:
        import asyncio

        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ask)
        loop.add_signal_handler(signal.SIGINT, self._ask_at_once)

    def _ask(self) -> None:
        if self.asked.is_set():
            self._ask_at_once()
        self.asked.set()

    def _ask_at_once(self) -> None:
        import asyncio

        if not self.at_once.is_set():
            asyncio.get_running_loop().call_later(AT_ONCE_S, _end_anyway)
        self.asked.set()
        self.at_once.set()


def run_until_stopped(work: Callable[[Signals], Coroutine[Any, Any, int]]) -> int:
    """Run something that ends when a signal says so. Nobody else of this user may look into the process."""
    import asyncio

    import uvloop

    from rota.worker.supervisor.confinement import hide_process

    hide_process()

    async def inside() -> int:
        return await work(Signals())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(inside())
    sys.stderr.flush()
    return code


def _end_anyway() -> None:
    """Whatever keeps the process from ending. What was acknowledged is on disk, and leases end by themselves."""
    tell("stopped: not everything could be ended in order")
    sys.stderr.flush()
    os._exit(EXIT_FAILED)


async def first_of(*events: "asyncio.Event") -> None:
    """Wait until one of these is set."""
    import asyncio

    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def follow(lifeline: "Lifeline", config: "Config", signals: Signals) -> "Config | None":
    """The settings of a process that is beside a coordinator, which it is told of; None if nobody is there any more."""
    import asyncio

    from msgspec import structs

    if not lifeline.is_held:
        return config
    told = asyncio.ensure_future(lifeline.coordinator())
    if not await done_before(told, signals.asked) or not told.result():
        return None
    return structs.replace(config, client=structs.replace(config.client, coordinator=told.result()))


async def done_before(work: "asyncio.Future[Any]", event: "asyncio.Event") -> bool:
    """Whether something was done before an event; if not it is given up."""
    import asyncio

    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if work.done():
        return True
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    return False


async def drain(worker: "WorkerDriver", within_s: int, *sooner: "asyncio.Event") -> int:
    """Let a worker finish what it runs, and hand back the rest; the exit code that follows from it.

    A worker whose reports nobody acknowledges is waited for until its leases must be over. Later its word might still
    count, but whoever stops it should not have to wait for a coordinator that is gone.
    """
    import asyncio

    tell(f"stopping: what runs may finish within {within_s} s; ask again to stop at once")
    worker.drain(within_s * 1_000)
    try:
        async with asyncio.timeout(within_s + worker.machine.lease_ms / 1_000):
            await first_of(worker.left, *sooner)
    except TimeoutError:
        tell("stopping: nobody acknowledges what was reported last, so it may be done again elsewhere")
        return EXIT_UNAVAILABLE
    return 0
