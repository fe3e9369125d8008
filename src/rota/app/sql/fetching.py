"""Answers that stayed with the workers which computed them, fetched from there: nobody else carries them."""

import http.client
import ssl
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pyarrow as pa

from rota.wire.queries import KeptAnswer
from rota.worker.runners.queries.orders import Source
from rota.worker.runners.queries.reaching import BUCKET, TICKET

PATIENCE_S = 10.0
# What an Arrow file has before what a stream has, too.
_BEFORE_STREAM_BYTES = 8


class AnswerGone(Exception):
    """An answer is not where it was left, or its worker does not answer."""


class FetchedAnswer:
    """A piece of an answer that is there, and of which nothing is read yet."""

    def __init__(self, kept: KeptAnswer, ca: str = "") -> None:
        """Ask for it. Raises AnswerGone. `ca` is the file of who vouches for workers, if not the system does."""
        place = urlsplit(kept.url)
        host = place.hostname or ""
        if place.scheme == "https":
            trusted = ssl.create_default_context(cafile=ca or None)
            self._connection = http.client.HTTPSConnection(host, place.port, timeout=PATIENCE_S, context=trusted)
        else:
            self._connection = http.client.HTTPConnection(host, place.port, timeout=PATIENCE_S)
        path = Source("", kept.folder, (kept.part,), peer=0).path(kept.part)
        try:
            self._connection.request("GET", quote(f"/{BUCKET}/{path}"), headers={TICKET: kept.ticket})
            self._answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise AnswerGone(f"{kept.url} does not answer: {error}") from None
        if self._answer.status != http.HTTPStatus.OK:
            self._connection.close()
            raise AnswerGone(f"{kept.url} does not have the answer any more: {self._answer.status}")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches. Raises AnswerGone if the worker is lost in the middle."""
        try:
            self._answer.read(_BEFORE_STREAM_BYTES)
            with pa.ipc.open_stream(pa.PythonFile(self._answer, mode="r")) as stream:
                yield from stream
        except (OSError, http.client.HTTPException, pa.ArrowException) as error:
            raise AnswerGone(f"the rest of the answer did not come: {error}") from None
        finally:
            self._connection.close()
