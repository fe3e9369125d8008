"""Answers that stayed with the workers which computed them, fetched from there: nobody else carries them."""

import http.client
import ssl
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pyarrow as pa

from rota.wire.queries import KeptAnswer
from rota.worker.runners.queries.parts import asked_name
from rota.worker.runners.queries.reaching import BUCKET, TICKET

# For the first byte, too: a worker may sum up all of an answer before it gives it out.
PATIENCE_S = 60.0
CONNECT_S = 5.0
# What an Arrow file has before what a stream has, too.
_BEFORE_STREAM_BYTES = 8


class AnswerGone(Exception):
    """An answer is not where it was left."""


class WorkerUnreached(AnswerGone):
    """A worker that should have an answer cannot be spoken to from here."""


class FetchedAnswer:
    """A piece of an answer that is there, and of which nothing is read yet."""

    def __init__(self, kept: KeptAnswer, ca: str = "") -> None:
        """See that it is there. Raises AnswerGone. `ca` is the file of who vouches for workers, if not the system."""
        self._kept = kept
        self._ca = ca
        connection, _ = self._ask("HEAD")
        connection.close()

    def _ask(self, method: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        kept = self._kept
        place = urlsplit(kept.url)
        host = place.hostname or ""
        if place.scheme == "https":
            trusted = ssl.create_default_context(cafile=self._ca or None)
            connection = http.client.HTTPSConnection(host, place.port, timeout=CONNECT_S, context=trusted)
        else:
            connection = http.client.HTTPConnection(host, place.port, timeout=CONNECT_S)
        try:
            connection.connect()
            connection.sock.settimeout(PATIENCE_S)
            path = f"/{BUCKET}/{kept.folder}/{asked_name(kept.part)}"
            connection.request(method, quote(path), headers={TICKET: kept.ticket})
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise WorkerUnreached(f"{kept.url} does not answer: {error}") from None
        if answer.status != http.HTTPStatus.OK:
            connection.close()
            raise AnswerGone(f"{kept.url} does not have the answer any more: {answer.status}")
        return connection, answer

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches. Raises AnswerGone if the worker is lost in the middle."""
        connection, answer = self._ask("GET")
        rows = 0
        try:
            answer.read(_BEFORE_STREAM_BYTES)
            with pa.ipc.open_stream(pa.PythonFile(answer, mode="r")) as stream:
                for batch in stream:
                    rows += batch.num_rows
                    yield batch
        except (OSError, http.client.HTTPException, pa.ArrowException) as error:
            raise AnswerGone(f"the rest of the answer did not come: {error}") from None
        finally:
            connection.close()
        if rows != self._kept.part.rows:
            # A stream that is cut between two batches looks like one that has ended.
            raise AnswerGone(f"only {rows:,} of {self._kept.part.rows:,} rows came")
