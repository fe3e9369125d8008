"""A connection to the socket of a coordinator in another process on this machine."""

import asyncio
from pathlib import Path

from rota.client.conversation import Conversation
from rota.core.errors import Refused, Unavailable
from rota.wire.requests import LENGTH_BYTES, Request, pack_message, read_response
from rota.wire.sockets import short_path


class SocketConnection(Conversation):
    """Messages with their length in front, over a unix socket."""

    def __init__(self, tenant: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(tenant, self._write)
        self._reader = reader
        self._writer = writer
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(cls, path: Path, tenant: str) -> "SocketConnection":
        """Connect to a socket. Raises Unavailable if nobody listens."""
        try:
            with short_path(path) as name:
                reader, writer = await asyncio.open_unix_connection(name, limit=1 << 20)
        except (FileNotFoundError, ConnectionError) as error:
            raise Unavailable("leader.none", f"nobody answers at {path}: {error}.") from None
        except PermissionError as error:
            hint = "A coordinator answers only the user who started it."
            raise Refused("store.held", f"{path} may not be used: {error.strerror}.", hint) from None
        return cls(tenant, reader, writer)

    def _write(self, request: Request) -> None:
        self._writer.write(pack_message(request))

    async def _listen(self) -> None:
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
                self.hear(read_response(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.lose()

    async def close(self) -> None:
        """Hang up."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
