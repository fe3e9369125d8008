"""Peers, as a fragment reaches them: the engine reads their files as if they were in a bucket.

The ticket travels in the header for a session's token, and not in the address: addresses stand in error messages.
"""

import contextlib
import http.client
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlsplit

from rota.worker.runners.queries.orders import Peer
from rota.worker.runners.queries.parts import NotAPart

# Any: what is asked for stands behind it, and nothing else is served.
BUCKET = "x"
TICKET = "x-amz-security-token"
PATIENCE_S = 10


def host_of(number: int) -> str:
    """By what name a plan calls a peer; none that a bucket may have."""
    return f"rota_peer_{number}"


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
        allow_http=True,
    )


class Asking:
    """Connections for asking whether files are there, one for each peer, opened when it is first asked."""

    def __init__(self, peers: tuple[Peer, ...]) -> None:
        self._peers = peers
        self._open: dict[int, http.client.HTTPConnection] = {}
        self._silent: dict[int, str] = {}

    def check(self, number: int, path: str) -> None:
        """Raise NotAPart unless a peer has the file that a path names."""
        peer = self._peers[number]
        if number not in self._silent:
            try:
                status = self._ask(number, peer, path)
            except (OSError, http.client.HTTPException) as error:
                # Whoever does not answer once is not asked for each of its files.
                self._silent[number] = f"{peer.url} does not answer: {error}"
            else:
                if status != http.HTTPStatus.OK:
                    raise NotAPart(f"{peer.url} does not give out {path}: {status}")
                return
        raise NotAPart(self._silent[number])

    def _ask(self, number: int, peer: Peer, path: str) -> int:
        if number not in self._open:
            place = urlsplit(peer.url)
            self._open[number] = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
        connection = self._open[number]
        connection.request("HEAD", quote(f"/{BUCKET}/{path}"), headers={TICKET: peer.ticket})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def close(self) -> None:
        """Hang up."""
        for connection in self._open.values():
            with contextlib.suppress(OSError):
                connection.close()
