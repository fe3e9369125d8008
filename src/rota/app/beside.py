"""A front end beside a coordinator: a process of its own that is started again when it dies, and ends with this one."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from rota.config import Address, Config
from rota.control.events import Level, Tell

# By this a process knows that it should end when whoever started it does: the end of a pipe that only that one holds.
LIFELINE = "ROTA_LIFELINE_FD"
AGAIN_S = 1.0
STOP_S = 10.0


def front_end_url(config: Config, listen: Address, port: int) -> str:
    """Where workers reach a front end that listens there."""
    host = config.builds.advertise or (socket.gethostname() if listen.is_everywhere else listen.host)
    return f"{'grpcs' if config.tls.cert else 'grpc'}://{Address(host, port)}"


async def start_beside(parts: AsyncExitStack, config: Config, coordinator: str, tell: Callable[[Tell], None]) -> None:
    """Start a front end for builds as the settings say; `parts` stops it."""
    keeper = asyncio.create_task(_keep_up(_command(config, coordinator), tell))
    parts.push_async_callback(_stop, keeper)


def _command(config: Config, coordinator: str) -> list[str]:
    command = [sys.executable, "-m", "rota", "frontend", "--coordinator", coordinator, "--listen", config.builds.listen]
    command += ["--data", config.builds.data or os.path.join(config.server.data, "builds")]  # noqa: PTH118 - a word of a command
    return [*command, "--config", config.file] if config.file else command


async def _keep_up(command: list[str], tell: Callable[[Tell], None]) -> None:
    while True:
        # Never written to: it ends when this process does, however that is.
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env={**os.environ, LIFELINE: str(reading)}, pass_fds=(reading,)
            )
        finally:
            os.close(reading)
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        finally:
            os.close(writing)
        text = f"the front end for builds ended with status {status}, and is started again"
        tell(Tell("frontend.ended", (("warning", text),), Level.WARNING))
        await asyncio.sleep(AGAIN_S)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _stop(keeper: "asyncio.Task[None]") -> None:
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)


async def lifeline_cut() -> None:
    """Wait until whoever started this process is gone; for ever if nobody is to be followed."""
    given = os.environ.pop(LIFELINE, "")
    if not given:
        await asyncio.Event().wait()
    cut = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(int(given), cut.set)
    await cut.wait()
