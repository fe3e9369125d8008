"""A front end beside a coordinator: a process of its own that is started again when it dies, and ends with this one.

It is started before the coordinator, because clients have little patience with one that comes back after a crash, and
most of a start is loading code. It has patience itself: clients wait with it until the coordinator answers.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from rota.config import Address, Config, read_address
from rota.control.events import Level, Tell

# By this a process knows that it is beside another one: the end of a pipe that only that one holds. The first line in
# it says where the coordinator is, and its end that the other one is gone.
LIFELINE = "ROTA_LIFELINE_FD"
# One that does not live for so long is not started again at once, and each time later: a port that is taken, say, is
# worth a line now and then, not a journal full of them.
STEADY_S = 5.0
AGAIN_S = 1.0
AGAIN_S_MAX = 30.0
STOP_S = 10.0
LINE_BYTES_MAX = 4_096


def front_end_url(config: Config, listen: Address, port: int) -> str:
    """Where workers reach a front end that listens there."""
    host = config.builds.advertise or (socket.gethostname() if listen.is_everywhere else listen.host)
    return f"{'grpcs' if config.tls.cert else 'grpc'}://{Address(host, port)}"


class Beside:
    """Keeps a front end up, as the settings say."""

    def __init__(self, config: Config, what: str, command: list[str]) -> None:
        """`what` it is for, as people are told, and the words that start it."""
        self._what = what
        self._command = [sys.executable, "-m", "rota", *command, *(["--config", config.file] if config.file else [])]
        self._coordinator: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tell: Callable[[Tell], None] = lambda _: None
        self._keeper: asyncio.Task[None] | None = None
        listen = read_address(config.server.listen, "server.listen")
        if listen.port:
            # Where it is reached from everywhere it is reached from here, by the name in its certificate.
            host = config.server.advertise or ("127.0.0.1" if listen.is_everywhere else listen.host)
            self._coordinator.set_result(f"{'grpcs' if config.tls.cert else 'grpc'}://{Address(host, listen.port)}")

    def start(self, parts: AsyncExitStack) -> None:
        """Begin; `parts` stops it, if nobody has done so before."""
        self._keeper = asyncio.create_task(self._keep_up())
        parts.push_async_callback(self.stop)

    async def stop(self) -> None:
        """End it, and start no other."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def found(self, coordinator: str, tell: Callable[[Tell], None]) -> None:
        """The coordinator is there, whichever port it was given. `tell` hears of front ends that died."""
        self._tell = tell
        if not self._coordinator.done():
            self._coordinator.set_result(coordinator)

    async def _keep_up(self) -> None:
        again_s = AGAIN_S
        while True:
            began = time.monotonic()
            try:
                text = (
                    f"the front end for {self._what} ended with status {await self._run_once()}, and is started again"
                )
            except OSError as error:
                text = f"the front end for {self._what} could not be started, which is tried again: {error}"
            self._tell(Tell("frontend.ended", (("warning", text),), Level.WARNING))
            if time.monotonic() - began < STEADY_S:
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, AGAIN_S_MAX)
            else:
                again_s = AGAIN_S

    async def _run_once(self) -> int:
        """One front end from its start to its end, which is not of its own will."""
        reading, writing = os.pipe()
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command, env={**os.environ, LIFELINE: str(reading)}, pass_fds=(reading,)
                )
            finally:
                os.close(reading)
            try:
                ended = asyncio.ensure_future(process.wait())
                await asyncio.wait((ended, self._coordinator), return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    with suppress(BrokenPipeError):
                        os.write(writing, f"{self._coordinator.result()}\n".encode())
                return await ended
            except asyncio.CancelledError:
                await _end(process)
                raise
        finally:
            os.close(writing)


def front_ends(config: Config) -> list[Beside]:
    """Those that the settings ask for."""
    found: list[Beside] = []
    if config.builds.listen:
        data = config.builds.data or os.path.join(config.server.data, "builds")  # noqa: PTH118 - a word of a command
        found.append(Beside(config, "builds", ["frontend", "--listen", config.builds.listen, "--data", data]))
    if config.queries.listen:
        found.append(Beside(config, "queries", ["flight", "--listen", config.queries.listen]))
    return found


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


class Lifeline:
    """The other end: what this process was started beside, if anything."""

    def __init__(self) -> None:
        given = os.environ.pop(LIFELINE, "")
        self._pipe = int(given) if given else None

    @property
    def is_held(self) -> bool:
        """Whether there is anybody to follow."""
        return self._pipe is not None

    async def coordinator(self) -> str:
        """Where the coordinator is, once whoever is beside says so; empty if that one is gone."""
        assert self._pipe is not None, "only asked if it is held"
        await self.cut()
        # One write of so few bytes arrives as a whole, and nothing follows it.
        return os.read(self._pipe, LINE_BYTES_MAX).decode().strip()

    async def cut(self) -> None:
        """Wait until whoever started this process is gone, or speaks first; for ever if there is nobody."""
        heard = asyncio.Event()
        loop = asyncio.get_running_loop()
        if self._pipe is not None:
            loop.add_reader(self._pipe, heard.set)
        try:
            await heard.wait()
        finally:
            if self._pipe is not None:
                loop.remove_reader(self._pipe)
