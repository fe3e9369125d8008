"""The port of a build front end: services of the Remote Execution API over gRPC."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from rota.api.reapi.calls import Reception, Service, Traffic
from rota.api.rpc.server import RECHECK_EVERY_S, STOP_S, count_nothing, say_nothing
from rota.api.rpc.visits import Count, Failed, Gate
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import Options, grpc, server_options
from rota.wire.reapi.limits import MESSAGE_BYTES_MAX

# A build has hundreds of calls under way on one connection, and each waits for its action.
STREAMS_MAX = 5_000
# A client that thinks for a while does not have to dial again.
IDLE_MS = 30 * 60_000
# Content comes in pieces of up to a megabyte or two. HTTP/2 by itself begins with 64 KB on the way, in frames of 16.
WINDOW_BYTES = 4 << 20
FRAME_BYTES = 1 << 20


class ReapiServer:
    """Serves clients and workers on one or more addresses."""

    def __init__(
        self,
        services: Iterable[Service],
        gate: Gate,
        failed: Failed,
        *,
        addresses: Iterable[str] = ("127.0.0.1:0",),
        credentials: Any = None,
        say: Callable[[str], None] = say_nothing,
        count: Count = count_nothing,
    ) -> None:
        """`credentials` are of `rota.wire.places.server_credentials`; without them nothing is encrypted.

        `failed` tells the operator of an error of ours. `say` is given a line about each caller that does what it
        should not, and bounds them.
        """
        self._addresses = list(addresses)
        self._credentials = credentials
        self._reception = Reception(gate, say, count, failed)
        self._methods: dict[str, Any] = {}
        for service in services:
            for name, method in service.methods().items():
                assert name not in self._methods, f"{name} is served twice"
                self._methods[name] = self._reception.open(name, method)
        self._server: Any = None
        self._rechecking: asyncio.Task[None] | None = None

    @property
    def traffic(self) -> Traffic:
        """What came in and went out."""
        return self._reception.traffic

    async def start(self) -> list[int]:
        """Begin to listen; the answer is the port of each address."""
        server = grpc.aio.server(options=_options())
        server.add_generic_rpc_handlers((_Methods(self._methods),))
        ports = [self._listen(server, address) for address in self._addresses]
        self._server = server
        await server.start()
        self._rechecking = asyncio.create_task(self._recheck())
        return ports

    def _listen(self, server: Any, address: str) -> int:
        try:
            if self._credentials is None:
                return server.add_insecure_port(address)
            return server.add_secure_port(address, self._credentials)
        except RuntimeError:
            # What exactly is wrong gRPC writes to its own log only.
            text = f"{address} cannot be listened on: it is in use, or not an address of this machine"
            raise Refused("listen.failed", text, "Choose another address, or stop who uses it.") from None

    async def stop(self) -> None:
        """Hang up on everybody. Each is told, so that nobody waits for what does not come."""
        if self._rechecking is not None:
            self._rechecking.cancel()
            await asyncio.gather(self._rechecking, return_exceptions=True)
        self._reception.close(Unavailable("service.busy", "this front end is stopping."))
        if self._server is not None:
            await self._server.stop(STOP_S)

    async def _recheck(self) -> None:
        """A stream on which nothing is said must end too when its token is revoked."""
        while True:
            await asyncio.sleep(RECHECK_EVERY_S)
            self._reception.recheck()


def _options() -> Options:
    ours = {
        "grpc.max_receive_message_length": MESSAGE_BYTES_MAX,
        "grpc.max_concurrent_streams": STREAMS_MAX,
        # Calls that come in one burst wait for us; gRPC would turn some away from the thousandth on.
        "grpc.server.max_pending_requests": STREAMS_MAX,
        "grpc.server.max_pending_requests_hard_limit": 2 * STREAMS_MAX,
        "grpc.max_connection_idle_ms": IDLE_MS,
        "grpc.http2.lookahead_bytes": WINDOW_BYTES,
        "grpc.http2.max_frame_size": FRAME_BYTES,
        # Bazel pings when it is told to, also while nothing is under way.
        "grpc.http2.min_ping_interval_without_data_ms": 1_000,
        "grpc.keepalive_permit_without_calls": 1,
    }
    return list({**dict(server_options()), **ours}.items())


class _Methods(grpc.GenericRpcHandler):
    """Which method is whose."""

    def __init__(self, methods: dict[str, Any]) -> None:
        self._methods = methods

    def service(self, handler_call_details: Any) -> Any:
        """See `grpc.GenericRpcHandler`."""
        return self._methods.get(handler_call_details.method)
