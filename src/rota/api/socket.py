"""A coordinator's socket in its data folder: how other programs of the same user reach an embedded coordinator.

Who may open the file may ask: the socket is readable by its owner only.
"""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.api.auth import Principal
from rota.api.counter import Counter
from rota.api.desk import Desk
from rota.api.request_limits import message_bytes_max
from rota.core.errors import Refused
from rota.wire.requests import LENGTH_BYTES, MESSAGE_BYTES_MAX, Response, pack_message
from rota.wire.sockets import short_path

SOCKET = "rota.sock"
UNREAD_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
# As much of a message as its number needs, and of one that is not read what is passed over at once.
HEAD_BYTES = 64
PIECE_BYTES = 64 * 1024


class SocketServer:
    """Serves the socket of one data folder."""

    def __init__(self, folder: Path, who: Principal, desk: Desk) -> None:
        """Whoever may open the file asks as `who`."""
        self.path = folder / SOCKET
        self._who = who
        self._bytes_max = message_bytes_max(who)
        self._desk = desk
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[Any], None] = {}

    async def start(self) -> None:
        """Begin to listen. The folder's lock is ours, so a socket that is there was left behind."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(self.path) as name:
                listening.bind(name)
            # Before anybody can connect: nobody listens yet.
            self.path.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening)
        except BaseException:
            listening.close()
            raise

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        with suppress(FileNotFoundError):
            self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._clients[task] = None
        connection = SocketCounter(self._desk, self._who, writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                if length > self._bytes_max:
                    await self._refuse(connection, reader, length)
                else:
                    await connection.take(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        except Exception as error:
            self._desk.failed("socket", error)
        finally:
            self._clients.pop(task, None)
            connection.close()

    async def _refuse(self, connection: "SocketCounter", reader: asyncio.StreamReader, length: int) -> None:
        """Answer a message that is too large, and read past it without keeping it."""
        head = await reader.readexactly(min(length, HEAD_BYTES))
        text = f"a message of {length:,} bytes is larger than {self._bytes_max:,}"
        connection.refuse(head, Refused("field.size", text, "Send less at once, or large values as blobs."))
        left = length - len(head)
        while left:
            piece = await reader.read(min(left, PIECE_BYTES))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)


class SocketCounter(Counter):
    """One client of the socket."""

    def __init__(self, desk: Desk, who: Principal, writer: asyncio.StreamWriter) -> None:
        super().__init__(desk, who)
        self._writer = writer

    def send(self, response: Response) -> None:
        """See `Counter`. A client that does not read is hung up on: others must not pay for it with our memory."""
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._writer.transport.abort()
            return
        self._writer.write(pack_message(response))

    def close(self) -> None:
        """The client is gone."""
        super().close()
        self._writer.close()
