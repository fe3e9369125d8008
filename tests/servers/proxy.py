"""A way to a TCP port that can be cut, stopped, stopped in one direction, or made slow, while it is used.

It runs in a thread of its own. Whatever is done to it has happened when the call returns: from then on no byte passes
that should not. What it holds back is bounded; beyond that the sender feels it, as with a network that loses packets.
"""

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from rota.client.threads import LoopThread

CHUNK_BYTES = 1 << 16
# How much one direction of a connection holds back: chunks that were read and may not pass yet.
CHUNKS_HELD_MAX = 16
CONNECTIONS_MAX = 1_000
BACKLOG = 128
# An abortive close: the other side is told at once, and told that it was no orderly end.
_RESET = struct.pack("ii", 1, 0)


class Direction:
    """What may pass in one direction, of all connections."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.flows = asyncio.Event()
        self.flows.set()


class Pump:
    """Carries bytes from one socket to another, as its direction allows."""

    def __init__(self, source: socket.socket, target: socket.socket, way: Direction) -> None:
        self._source = source
        self._target = target
        self._way = way
        # What was read, and when it may pass; empty bytes are the end.
        self._held: deque[tuple[float, bytes]] = deque()
        self._has_some = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_broken = False

    async def run(self) -> None:
        """Until the source says no more, and that was passed on too. Raises OSError if it was no orderly end."""
        reading = asyncio.create_task(self._read())
        try:
            await self._write()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        content = b"-"
        while content:
            await self._has_room.wait()
            try:
                content = await loop.sock_recv(self._source, CHUNK_BYTES)
            except OSError:
                # The news travels like everything else: nobody hears of it while nothing passes.
                self._is_broken, content = True, b""
            self._held.append((loop.time() + self._way.delay_s, content))
            self._has_some.set()
            if len(self._held) >= CHUNKS_HELD_MAX:
                self._has_room.clear()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        content = b"-"
        while content:
            await self._has_some.wait()
            due, _ = self._held[0]
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            await self._way.flows.wait()
            _, content = self._held.popleft()
            self._has_room.set()
            if not self._held:
                self._has_some.clear()
            if content and not await self._send(content):
                return
        if self._is_broken:
            raise ConnectionResetError
        with suppress(OSError):
            self._target.shutdown(socket.SHUT_WR)

    async def _send(self, content: bytes) -> bool:
        """All of it; what does not fit into the socket waits, and may be stopped on the way.

        False if the target is gone: that is for the other direction to tell.
        """
        while content:
            await self._way.flows.wait()
            try:
                content = content[self._target.send(content) :]
            except BlockingIOError:
                await _writable(self._target)
            except OSError:
                return False
        return True


async def _writable(one: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_writer(one, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(one)


class Proxy:
    """A port of this machine that leads to another one. Close it, or use it in a `with` statement."""

    def __init__(self, target: str) -> None:
        """`target` is `host:port`. Nobody need be there yet."""
        host, _, port = target.rpartition(":")
        self._target = (host.strip("[]"), int(port))
        # Two sockets with one port: this one never listens, and keeps the port ours while nobody does.
        self._keeper = _bound(0)
        self.port: int = self._keeper.getsockname()[1]
        self._thread = LoopThread()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        self._sockets: dict[socket.socket, None] = {}
        self._accepts = asyncio.Event()
        self._up = Direction()
        self._down = Direction()
        self._is_closed = False
        self.heal()

    @property
    def address(self) -> str:
        """Where it is reached: `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections lead through it just now."""
        return self._thread.call(self._count())

    def cut(self) -> None:
        """Reset every connection, and refuse new ones."""
        self._thread.call(self._cut())

    def hang(self) -> None:
        """Lose every packet: nothing passes, nobody is told, and what is open stays open.

        A new connection is taken by the system and heard by nobody.
        """
        self._thread.call(self._set(accepts=False, up=False, down=False))

    def hang_up_to_target(self) -> None:
        """Lose what goes to the target; what comes from it passes."""
        self._thread.call(self._set(accepts=True, up=False, down=True))

    def hang_from_target(self) -> None:
        """Lose what comes from the target; what goes to it passes."""
        self._thread.call(self._set(accepts=True, up=True, down=False))

    def slow(self, ms: float) -> None:
        """Hold everything up for so long in each direction, from now on; the rest stays as it is."""
        self._thread.call(self._slow(ms / 1_000))

    def heal(self) -> None:
        """Let everything pass, at once. What was held back follows; connections that were cut stay so."""
        self._thread.call(self._set(accepts=True, up=True, down=True, delay_s=0.0))

    def close(self) -> None:
        """Cut everything and free the port. It may be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._thread.call(self._cut())
        self._thread.stop()
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _count(self) -> int:
        return len(self._connections)

    async def _slow(self, delay_s: float) -> None:
        for way in (self._up, self._down):
            way.delay_s = delay_s

    async def _set(self, *, accepts: bool, up: bool, down: bool, delay_s: float | None = None) -> None:
        if delay_s is not None:
            await self._slow(delay_s)
        for event, is_open in ((self._accepts, accepts), (self._up.flows, up), (self._down.flows, down)):
            if is_open:
                event.set()
            else:
                event.clear()
        if self._listener is None:
            self._listener = _bound(self.port)
            self._listener.listen(BACKLOG)
            self._accepting = asyncio.get_running_loop().create_task(self._accept(self._listener))

    async def _cut(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._accepting = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for one in self._sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._accepts.wait()
            client, _ = await loop.sock_accept(listener)
            if len(self._connections) >= CONNECTIONS_MAX:
                client.close()
                continue
            task = loop.create_task(self._serve(client))
            self._connections[task] = None
            task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _serve(self, client: socket.socket) -> None:
        """One connection, from its beginning to its end."""
        target = socket.socket(socket.AF_INET6 if ":" in self._target[0] else socket.AF_INET)
        pair = (client, target)
        for one in pair:
            one.setblocking(False)
            self._sockets[one] = None
        try:
            # A packet to the target that is lost may be the first one.
            await self._up.flows.wait()
            await asyncio.get_running_loop().sock_connect(target, self._target)
            for one in pair:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.TaskGroup() as group:
                group.create_task(Pump(client, target, self._up).run())
                group.create_task(Pump(target, client, self._down).run())
        except (OSError, ExceptionGroup):
            # One side reset the connection, or nobody is there: the other side is told the same.
            for one in pair:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        finally:
            for one in pair:
                self._sockets.pop(one, None)
                one.close()


def _bound(port: int) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    one.bind(("127.0.0.1", port))
    one.setblocking(False)
    return one
