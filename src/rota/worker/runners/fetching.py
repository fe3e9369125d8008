"""One request and its answer, through a connection that goes where the egress policy lets it."""

import ssl
from collections.abc import Iterable
from typing import cast

import httpcore
from msgspec import Struct

from rota.worker.runners.egress import EgressPolicy


class TooLarge(Exception):
    """The answer is longer than may be taken in."""


class Answer(Struct, frozen=True):
    """What came back. Names of headers are in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connections to addresses that the policy has seen: the name is looked up here, and nowhere again."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy
        self._inner = cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of a host's addresses that answers."""
        trouble: Exception | None = None
        for address in await self._policy.resolve(host, port):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                trouble = error
        assert trouble is not None, "a host has at least one address"
        raise trouble


async def fetch(
    method: str,
    url: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    policy: EgressPolicy,
    bytes_max: int,
    trust: ssl.SSLContext | None,
) -> Answer:
    """Send one request; cancelling closes the connection. Raises TooLarge, Forbidden, OSError, errors of httpcore."""
    sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    async with (
        httpcore.AsyncConnectionPool(ssl_context=trust, network_backend=CheckedBackend(policy)) as pool,
        pool.stream(method, url, headers=sent, content=body or None) as response,
    ):
        received = bytearray()
        async for piece in response.aiter_stream():
            received += piece
            if len(received) > bytes_max:
                raise TooLarge
        known = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return Answer(response.status, known, bytes(received))
