"""The port that HTTP is served on: uvicorn without its clock, its signals and its log."""

import asyncio
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from rota.api.http.protocol import HEAD_BYTES_MAX, KEEP_ALIVE_S, PatientProtocol
from rota.api.http.room import Arrivals, Room
from rota.core.errors import Refused
from rota.core.graph import check_number

# How long requests that are being answered may take when the service stops.
GRACE_S = 5
# How many connections the system holds for us until we accept them.
BACKLOG = 1_024


class Application(Protocol):
    """What is served: an ASGI application that can be told to end what would go on by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        ...

    async def stop(self) -> None:
        """Begin no more, and end what streams."""
        ...


class _Server(uvicorn.Server):
    """uvicorn's server looks ten times a second whether it should end; this one is told."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self.ending = asyncio.Event()

    async def main_loop(self) -> None:
        self.ready.set()
        await self.ending.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # Signals belong to whoever runs the process.
        yield


class HttpServer:
    """Serves an application on one address."""

    def __init__(self, service: Application, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Port 0 takes a free one."""
        self._service = service
        self._address = (host, port)
        self._context = tls
        self._room = Room()
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._arrivals: Arrivals | None = None

    async def start(self) -> int:
        """Begin to listen: the port. Raises Refused if the address cannot be had."""
        listening = _bind(*self._address)
        config = uvicorn.Config(
            self._service,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        config.load()
        self._server = server = _Server(config)
        # It is given no socket: connections come by way of the room.
        self._serving = asyncio.get_running_loop().create_task(server.serve([]), name="rota-http")
        ready = asyncio.ensure_future(self._server.ready.wait())
        await asyncio.wait((ready, self._serving), return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            ready.cancel()
            await self._serving

        def speaker() -> PatientProtocol:
            return PatientProtocol(config=config, server_state=server.server_state, app_state={}, room=self._room)

        self._arrivals = Arrivals(self._room, listening, self._context, speaker)
        self._arrivals.start()
        return listening.getsockname()[1]

    async def stop(self) -> None:
        """Take no more, end what streams, and let the rest be answered for a moment."""
        await self._service.stop()
        if self._arrivals is not None:
            await self._arrivals.stop()
        if self._server is not None and self._serving is not None:
            self._server.ending.set()
            await self._serving
        self._room.close()


def _bind(host: str, port: int) -> socket.socket:
    check_number(port, 0, 65_535, "port")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Named, not left to the system: asyncio sends at once only where it sees that it is TCP; else an answer
        # waits for the client's delayed acknowledgement, 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        text = f"{host}:{port} cannot be listened on: {error.strerror or error}"
        raise Refused("listen.failed", text, "Choose another address.", path="http") from None
    return listening
