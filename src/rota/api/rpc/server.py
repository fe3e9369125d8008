"""The coordinator's port for gRPC."""

import asyncio
from collections.abc import Callable
from typing import Any

from rota.api.desk import Desk
from rota.api.rpc.sync import Streams, Sync
from rota.api.rpc.talk import Talk
from rota.api.rpc.visits import Context, Count, Door, Gate, Visit
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import SYNC, TALK, grpc, server_options

# How often it is looked whether tokens were revoked whose streams are silent.
RECHECK_EVERY_S = 5.0
STOP_S = 2.0


def say_nothing(line: str) -> None:
    """Nobody listens."""


def count_nothing(surface: str, method: str, code: str) -> None:
    """Nobody counts."""


class RpcServer:
    """Serves clients and workers on one port."""

    def __init__(
        self,
        desk: Desk,
        streams: Streams,
        gate: Gate,
        *,
        address: str = "127.0.0.1:0",
        credentials: Any = None,
        say: Callable[[str], None] = say_nothing,
        count: Count = count_nothing,
    ) -> None:
        """`credentials` are of `rota.wire.places.server_credentials`; without them nothing is encrypted.

        `say` is given a line about each caller that does what it should not, and bounds them.
        """
        self._desk = desk
        self._streams = streams
        self._address = address
        self._credentials = credentials
        self._door = Door(gate, say, count, desk.failed, streams.check_leads)
        streams.on_change(self._check_all)
        self._server: Any = None
        self._rechecking: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Begin to listen; the answer is the port."""
        server = grpc.aio.server(options=server_options())
        server.add_generic_rpc_handlers((_Methods(self),))
        try:
            if self._credentials is None:
                port = server.add_insecure_port(self._address)
            else:
                port = server.add_secure_port(self._address, self._credentials)
        except RuntimeError:
            # What exactly is wrong gRPC writes to its own log only.
            text = f"{self._address} cannot be listened on: it is in use, or not an address of this machine"
            raise Refused("listen.failed", text, "Choose another address, or stop who uses it.") from None
        self._server = server
        await server.start()
        self._rechecking = asyncio.create_task(self._recheck())
        return port

    async def stop(self) -> None:
        """Hang up on everybody. Each is told, so that nobody waits for what does not come."""
        if self._rechecking is not None:
            self._rechecking.cancel()
            await asyncio.gather(self._rechecking, return_exceptions=True)
        self._door.closed = Unavailable("leader.none", "this coordinator is stopping.")
        for visit in list(self._door.visits):
            visit.end(self._door.closed)
        if self._server is not None:
            await self._server.stop(STOP_S)

    def _check_all(self) -> None:
        """Whoever is here has to go elsewhere if another leads now."""
        try:
            self._door.check()
        except Unavailable as elsewhere:
            for visit in list(self._door.visits):
                visit.end(elsewhere)

    def talk(self, context: Context) -> Visit:
        """A client has come."""
        return Talk(self._door, context, self._desk)

    def sync(self, context: Context) -> Visit:
        """A worker has come."""
        return Sync(self._door, context, self._streams)

    async def _recheck(self) -> None:
        """A stream on which nothing is said must end too when its token is revoked."""
        while True:
            await asyncio.sleep(RECHECK_EVERY_S)
            for visit in list(self._door.visits):
                visit.recheck()


class _Methods(grpc.GenericRpcHandler):
    """Which method is whose; gRPC passes bytes on as they are."""

    def __init__(self, server: RpcServer) -> None:
        async def talk(_requests: object, context: Context) -> None:
            await server.talk(context).serve()

        async def sync(_requests: object, context: Context) -> None:
            await server.sync(context).serve()

        self._methods: dict[str, Any] = {
            TALK: grpc.stream_stream_rpc_method_handler(talk),
            SYNC: grpc.stream_stream_rpc_method_handler(sync),
        }

    def service(self, handler_call_details: Any) -> Any:
        """See `grpc.GenericRpcHandler`."""
        return self._methods.get(handler_call_details.method)
