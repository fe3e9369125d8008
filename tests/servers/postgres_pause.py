"""A line to PostgreSQL that stands still at a chosen point of a commit.

A commit is one statement and its end, `Sync`, on which the server commits. By default the line passes on the first and
holds back the second, and everything that comes from the server, until it is told to go on: the server stands between
the compare and the COMMIT, and the store hears nothing, as if its process had been stopped there.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from enum import Enum

import psycopg

from rota.stores.postgres import PostgresStore
from rota.stores.postgres.address import Address
from tests.servers.postgres import PostgresServer

_ASKS_FOR_TLS = 80_877_103
_ASKS_FOR_GSS = 80_877_104
_COMPARED = (
    "SELECT 1 FROM pg_locks WHERE relation = to_regclass(%s) AND mode = 'RowShareLock' AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Point(Enum):
    """Where a commit is held."""

    NOT_SENT = "P"  # the statement is on its way, and the line takes no more of it
    COMPARED = "S"  # the server has done everything but to commit
    ANSWERED = "A"  # the server has committed and said so, and the answer is held back


def hold_commit(
    store: PostgresStore, server: PostgresServer, stand: Callable[[], Awaitable[None]], at: Point = Point.COMPARED
) -> Address:
    """Where the store's writer is to connect. Its next commit stands in `stand`; later ones pass.

    If `stand` raises OSError, the line is cut there.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    line = Line(store, server, stand, at)
    store.writer.drop()
    line.serving = asyncio.get_running_loop().create_task(line.serve(listening))
    url = server.url().replace(f":{server.port}/", f":{listening.getsockname()[1]}/")
    return Address(url, "the writer's line")


class Line:
    """Passes on what is said on each connection, until the first commit is where it is to be held."""

    def __init__(
        self, store: PostgresStore, server: PostgresServer, stand: Callable[[], Awaitable[None]], at: Point
    ) -> None:
        self._store = store
        self._server = server
        self._stand = stand
        self._at = at
        self._answered = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._held = False
        self._is_cut = False
        self.serving: asyncio.Task[None] | None = None

    async def serve(self, listening: socket.socket) -> None:
        """Take connections until the event loop ends."""
        async with await asyncio.start_server(self._connected, sock=listening) as server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._down(from_server, writer))
                group.create_task(self._up(reader, to_server))
        except* (OSError, EOFError):
            pass
        finally:
            self._is_cut = False
            to_server.close()
            writer.close()

    async def _down(self, from_server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while data := await from_server.read(65_536):
            if not self._flowing.is_set():
                self._answered.set()
            await self._flowing.wait()
            if self._is_cut:
                raise EOFError
            to_client.write(data)
            await to_client.drain()
        await self._flowing.wait()
        raise EOFError

    async def _up(self, from_client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        code = 0
        while code in (0, _ASKS_FOR_TLS, _ASKS_FOR_GSS):
            head = await from_client.readexactly(8)
            size, code = struct.unpack(">II", head)
            to_server.write(head + await from_client.readexactly(size - 8))
        is_commit = False
        while True:
            head = await from_client.readexactly(5)
            if self._at is Point.NOT_SENT and head[:1] == b"P" and not self._held:
                await self._hold()
            body = await from_client.readexactly(struct.unpack(">I", head[1:])[0] - 4)
            is_commit |= head[:1] == b"P" and f"{self._store.schema}.write(".encode() in body
            is_end = head[:1] == b"S" and is_commit and not self._held
            if is_end and self._at is Point.COMPARED:
                self._flowing.clear()
                await self._compared()
                await self._hold()
            elif is_end and self._at is Point.ANSWERED:
                self._flowing.clear()
                to_server.write(head + body)
                await self._answered.wait()
                await self._hold()
                continue
            to_server.write(head + body)

    async def _hold(self) -> None:
        self._held = True
        try:
            await self._stand()
        except OSError:
            self._is_cut = not self._flowing.is_set()
            raise
        finally:
            self._flowing.set()

    async def _compared(self) -> None:
        """Wait until the server has compared the epoch, under its lock."""
        async with await psycopg.AsyncConnection.connect(self._server.url(), autocommit=True) as connection:
            while True:
                found = await connection.execute(_COMPARED, (f"{self._store.schema}.reign",))
                if await found.fetchone():
                    return
                await asyncio.sleep(0.01)
