"""Warm processes: started ahead, bound to one tenant and one origin of code by their first attempt, recycled."""

import asyncio
import os
import socket
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.bounds import ERROR_CHARS_MAX
from rota.core.errors import Refused
from rota.worker.environment import passed_on
from rota.worker.runners.calls import Done
from rota.worker.supervisor.driver import Child, NotStarted, Supervisor
from rota.worker.supervisor.stream import Stream

# Whose code a process runs: tenant, and the folder and script it is imported from. No two of these share a process.
Origin = tuple[str, str, str]

# Not from the folder it happens to be in.
_PYTHON = (sys.executable, "-P")

_decode = msgspec.msgpack.Decoder(Done).decode


class Recycling(Struct, frozen=True, kw_only=True):
    """How many warm processes are kept, and for how long."""

    # Without a tenant yet, so that the next one need not wait for Python to start.
    ahead: int = 1
    idle_max: int = max(4, os.cpu_count() or 4)
    attempts_max: int = 1_000
    growth_bytes_max: int = 256 * 1024 * 1024


async def check_reachable(supervisor: Supervisor) -> None:
    """Refuse a user to run code as who cannot start this interpreter, or cannot read Rota; commands need neither."""
    who = supervisor.run_as
    if who is None:
        return
    heard, said = os.pipe()
    try:
        try:
            child = await supervisor.start(
                [*_PYTHON, "-c", "import rota.worker.runners.child"], passed_on(), files=(said, said)
            )
        finally:
            os.close(said)
        ended = await child.ended()
        trouble = "" if ended.status == 0 else os.read(heard, ERROR_CHARS_MAX).decode(errors="replace").strip()
    except NotStarted as error:
        trouble = str(error)
    finally:
        os.close(heard)
    if trouble:
        raise Refused(
            "worker.run_as",
            f"user {who.name!r} cannot run {sys.executable} with Rota: {trouble.splitlines()[-1]}",
            "Install Python and Rota where that user may read them, or offer commands only.",
            path="run_as",
        )


class WarmProcess:
    """One process, and the connection to it."""

    def __init__(self, child: Child, sock: socket.socket) -> None:
        self.child = child
        self.origin: Origin | None = None
        self.attempts = 0
        self.idle_from = 0.0
        self._reply: asyncio.Future[Done | None] | None = None
        self._fence = 0
        self._stream = Stream(sock, self._heard, self._hung_up)
        child.when_over(self._stream.finish)

    @property
    def is_usable(self) -> bool:
        """Whether it is still there."""
        return self._stream.is_open and not self.child.is_over

    def ask(self, fence: int, request: bytes, log: int) -> "asyncio.Future[Done | None]":
        """Have an attempt made. None says that the process is gone, or has cut the connection."""
        self.attempts += 1
        self._fence = fence
        self._reply = asyncio.get_running_loop().create_future()
        if self.is_usable:
            self._stream.send(request, (log,))
        else:
            self._reply.set_result(None)
        return self._reply

    async def kill(self) -> None:
        """End it with everything it started."""
        self._stream.close()
        await self.child.kill()

    def _heard(self, frame: bytes) -> None:
        try:
            done = _decode(frame)
        except msgspec.MsgspecError:
            # User code found the connection and wrote to it.
            self._stream.close()
            self._hung_up()
            return
        if done.fence == self._fence:
            self._settle(done)

    def _hung_up(self) -> None:
        self._settle(None)

    def _settle(self, done: Done | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(done)


class WarmPool:
    """All warm processes of a worker. How many are at work is the business of the worker's slots."""

    def __init__(
        self, supervisor: Supervisor, recycling: Recycling, env: Mapping[str, str] | None, memory_bytes_max: int
    ) -> None:
        self._supervisor = supervisor
        self._recycling = recycling
        self._env = dict(env or {})
        self._memory_bytes_max = memory_bytes_max
        self._blank: list[WarmProcess] = []
        # The one that was used last is at the end.
        self._idle: list[WarmProcess] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    async def take(self, origin: Origin) -> WarmProcess:
        """A process for code from there, and for nobody else while it lives."""
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].origin == origin:
                warm = self._idle.pop(place)
                if warm.is_usable:
                    return warm
        while self._blank:
            warm = self._blank.pop()
            if warm.is_usable:
                break
        else:
            warm = await self._start()
        warm.origin = origin
        self.start_ahead()
        return warm

    def put_back(self, warm: WarmProcess, grown_bytes: int) -> None:
        """A process whose attempt left nothing behind: for the next one, unless it has served long enough."""
        limits = self._recycling
        is_worn = warm.attempts >= limits.attempts_max or grown_bytes > limits.growth_bytes_max
        if self._is_closed or is_worn or not warm.is_usable:
            self._spawn(warm.kill())
            return
        warm.idle_from = asyncio.get_running_loop().time()
        self._idle.append(warm)
        while len(self._idle) > limits.idle_max:
            self._spawn(self._idle.pop(0).kill())

    def end_idle(self, idle_s: float) -> None:
        """End processes that nobody has needed for so long: what they hold in memory is for nothing."""
        needed_from = asyncio.get_running_loop().time() - idle_s
        while self._idle and self._idle[0].idle_from < needed_from:
            self._spawn(self._idle.pop(0).kill())

    def start_ahead(self) -> None:
        """Start what should be ready before anybody asks."""
        if not self._tasks and len(self._blank) < self._recycling.ahead and not self._is_closed:
            self._spawn(self._start_blanks())

    async def close(self) -> None:
        """End every process that is not at work."""
        self._is_closed = True
        await self.settled()
        idle, self._idle, self._blank = [*self._idle, *self._blank], [], []
        await asyncio.gather(*(warm.kill() for warm in idle))

    async def settled(self) -> None:
        """Wait until what is being started or ended in the background is."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _start_blanks(self) -> None:
        while len(self._blank) < self._recycling.ahead and not self._is_closed:
            self._blank.append(await self._start())

    async def _start(self) -> WarmProcess:
        ours, theirs = socket.socketpair()
        argv = [*_PYTHON, "-X", "faulthandler", "-m", "rota.worker.runners.child"]
        # Until it is ready it may complain to our own stderr, if we have one.
        complaints = _copy_of_stderr()
        files = (complaints, complaints, theirs.fileno())
        try:
            with theirs:
                child = await self._supervisor.start(
                    argv, passed_on(self._env), files=files, memory_bytes_max=self._memory_bytes_max
                )
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(complaints)
        return WarmProcess(child, ours)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)


def _copy_of_stderr() -> int:
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
