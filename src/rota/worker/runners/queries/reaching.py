"""Peers, as a fragment reaches them: the engine reads their files as if they were in a bucket.

A peer that has a certificate is one whom the workers' own authority vouches for, if they have one. The engine takes its
authorities from a file that the environment names, when it opens a bucket: it is named just then, for others may be
vouched for by others. It has no certificate to show; who asks is known by the ticket.

The ticket travels in the header for a session's token, and not in the address: addresses stand in error messages.
"""

import contextlib
import http.client
import os
import ssl
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from rota.worker.runners.queries.orders import Order, Peer
from rota.worker.runners.queries.parts import TICKET, NotAPart

# Any: what is asked for stands behind it, and nothing else is served.
BUCKET = "x"
PATIENCE_S = 10
_AUTHORITIES = "SSL_CERT_FILE"


def host_of(number: int) -> str:
    """By what name a plan calls a peer; none that a bucket may have."""
    return f"rota_peer_{number}"


@contextlib.contextmanager
def trusting(order: Order) -> Generator[None]:
    """Meanwhile the engine trusts whom the workers' authority vouches for, and takes nobody for a bucket of others."""
    others = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    try:
        with _authority(order):
            yield
    finally:
        os.environ.update(others)


@contextlib.contextmanager
def _authority(order: Order) -> Generator[None]:
    if not order.authority:
        yield
        return
    # In the attempt's own folder, which is removed, or cleared when what is in it is kept.
    path = Path(order.folder, "authority.pem")
    path.write_bytes(order.authority)
    before = os.environ.get(_AUTHORITIES)
    os.environ[_AUTHORITIES] = str(path)
    try:
        yield
    finally:
        del os.environ[_AUTHORITIES]
        if before is not None:
            os.environ[_AUTHORITIES] = before


def store_of(peer: Peer) -> Any:
    """A peer as the engine's bucket. The keys are for a signature that nobody looks at."""
    stores: Any = import_module("datafusion.object_store")
    return stores.AmazonS3(
        bucket_name=BUCKET,
        endpoint=peer.url,
        region="rota",
        access_key_id="rota",
        secret_access_key="rota",  # noqa: S106 - no secret: see above
        session_token=peer.ticket,
        allow_http=peer.url.startswith("http://"),
    )


class Distrusted(Exception):
    """A peer shows a certificate for which nobody vouches whom we trust; to make its files again would not help."""


class Asking:
    """Connections for asking for files, or whether they are there; one for each peer, opened when it is first asked."""

    def __init__(self, peers: tuple[Peer, ...], authority: bytes = b"") -> None:
        self._peers = peers
        self._authority = authority
        self._open: dict[int, http.client.HTTPConnection] = {}
        self._silent: dict[int, str] = {}

    def check(self, number: int, path: str) -> None:
        """Raise NotAPart unless a peer has the file that a path names."""
        self._asked("HEAD", number, path)

    def fetch(self, number: int, path: str) -> bytes:
        """The file of a peer that a path names, which it has checked; or NotAPart."""
        return self._asked("GET", number, path)

    def _asked(self, verb: str, number: int, path: str) -> bytes:
        peer = self._peers[number]
        if number not in self._silent:
            try:
                status, content = self._ask(verb, number, peer, path)
            except ssl.SSLCertVerificationError as error:
                raise Distrusted(f"{peer.url} is not trusted: {error.verify_message} (client.ca, tls.cert)") from None
            except (OSError, http.client.HTTPException) as error:
                # Whoever does not answer once is not asked for each of its files.
                self._silent[number] = f"{peer.url} does not answer: {error}"
            else:
                if status != http.HTTPStatus.OK:
                    raise NotAPart(f"{peer.url} does not give out {path}: {status}")
                return content
        raise NotAPart(self._silent[number])

    def _ask(self, verb: str, number: int, peer: Peer, path: str) -> tuple[int, bytes]:
        if number not in self._open:
            self._open[number] = self._connection(urlsplit(peer.url))
        connection = self._open[number]
        connection.request(verb, quote(f"/{BUCKET}/{path}"), headers={TICKET: peer.ticket})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def _connection(self, place: SplitResult) -> http.client.HTTPConnection:
        if place.scheme == "http":
            return http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
        context = ssl.create_default_context(cadata=self._authority.decode("ascii") or None)
        return http.client.HTTPSConnection(place.hostname or "", place.port, timeout=PATIENCE_S, context=context)

    def close(self) -> None:
        """Hang up."""
        for connection in self._open.values():
            with contextlib.suppress(OSError):
                connection.close()
