"""A transaction pooler, as small as one can be: every transaction of a client goes to the next of a few sessions.

Of such a pooler's habits it has the ones that matter here: what is settled in a session is not there in the next
statement, and the process that answers is not the one that was announced.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

_SESSIONS = 3
_ASKS_FOR_TLS = 80_877_103
_ASKS_FOR_GSS = 80_877_104


@asynccontextmanager
async def pooled(url: str) -> AsyncIterator[str]:
    """The same database, through a pooler."""
    port = urlsplit(url).port
    assert port is not None

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _Client(reader, writer).serve(port)
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield url.replace(f":{port}/", f":{server.sockets[0].getsockname()[1]}/")


class _Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sessions: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def serve(self, port: int) -> None:
        try:
            await self._start(port)
            turn = 0
            while True:
                turn += 1
                await self._transaction(*self._sessions[turn % _SESSIONS])
        finally:
            for _, to_server in self._sessions:
                to_server.close()

    async def _start(self, port: int) -> None:
        """Refuse TLS, then open all sessions as the client asked for its one; it hears the first of them."""
        while True:
            head = await self._reader.readexactly(8)
            size, code = struct.unpack(">II", head)
            if code not in (_ASKS_FOR_TLS, _ASKS_FOR_GSS):
                break
            self._writer.write(b"N")
        startup = head + await self._reader.readexactly(size - 8)
        for number in range(_SESSIONS):
            session = await asyncio.open_connection("127.0.0.1", port)
            self._sessions.append(session)
            session[1].write(startup)
            await self._answers(session[0], is_heard=number == 0)

    async def _transaction(self, from_server: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        state = b"?"
        while state != b"I":
            while True:
                kind, message = await _message(self._reader)
                to_server.write(message)
                if kind == b"X":
                    raise EOFError
                if kind in (b"Q", b"S"):
                    break
            state = await self._answers(from_server, is_heard=True)

    async def _answers(self, from_server: asyncio.StreamReader, *, is_heard: bool) -> bytes:
        """Pass on answers up to the one that says which state the session is in."""
        while True:
            kind, message = await _message(from_server)
            if is_heard:
                self._writer.write(message)
            if kind == b"Z":
                return message[-1:]


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)
