"""Answers that stayed with the workers which computed them, fetched from there: nobody else carries them."""

import http.client
import ssl
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlsplit

import pyarrow as pa

from rota.wire.queries import KeptAnswer
from rota.worker.runners.queries.parts import TICKET, asked_name
from rota.worker.runners.queries.reaching import BUCKET

# For the first byte, too: a worker may sum up all of an answer before it gives it out.
PATIENCE_S = 60.0
CONNECT_S = 5.0
# How often in a row a worker may hang up before anything more has come.
TRIES_MAX = 2
# What an Arrow file has before what a stream has, too.
_BEFORE_STREAM_BYTES = 8


# Asks by a method, from a byte on.
Ask = Callable[[str, int], tuple[http.client.HTTPConnection, http.client.HTTPResponse]]


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

    def _ask(self, method: str, first: int = 0) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
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
            more = {"Range": f"bytes={first}-"} if first else {}
            connection.request(method, quote(path), headers={TICKET: kept.ticket, **more})
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise WorkerUnreached(f"{kept.url} does not answer: {error}") from None
        if answer.status != (http.HTTPStatus.PARTIAL_CONTENT if first else http.HTTPStatus.OK):
            connection.close()
            raise AnswerGone(f"{kept.url} does not have the answer any more: {answer.status}")
        return connection, answer

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches. Raises AnswerGone if the worker is lost in the middle."""
        file = _Reading(self._ask, self._kept.part.bytes)
        rows = 0
        try:
            with pa.ipc.open_stream(pa.PythonFile(file, mode="r")) as stream:  # pyright: ignore[reportArgumentType] - it reads like one
                for batch in stream:
                    rows += batch.num_rows
                    yield batch
        except (OSError, http.client.HTTPException, pa.ArrowException) as error:
            raise AnswerGone(f"the rest of the answer did not come: {error}") from None
        finally:
            file.hang_up()
        if rows != self._kept.part.rows:
            # A stream that is cut between two batches looks like one that has ended.
            raise AnswerGone(f"only {rows:,} of {self._kept.part.rows:,} rows came")


class _Reading:
    """The stream in a file of a worker, from where it begins to its end.

    A worker hangs up on whoever takes nothing for two minutes. Who goes on asks for the rest, as long as it is there.
    """

    closed = False

    def __init__(self, ask: Ask, size: int) -> None:
        self._ask = ask
        self._size = size
        self._at = _BEFORE_STREAM_BYTES
        self._tries = 0
        self._connection: http.client.HTTPConnection | None = None
        self._answer: http.client.HTTPResponse | None = None

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end, or if it cannot be had."""
        wanted = min(size, self._size - self._at)
        found = self._some(wanted)
        if len(found) == wanted:
            return found
        pieces = [found]
        while (left := wanted - sum(map(len, pieces))) and (more := self._some(left)):
            pieces.append(more)
        return b"".join(pieces)

    def _some(self, size: int) -> bytes:
        """At least one byte; none if the worker has hung up too often."""
        while size and self._tries <= TRIES_MAX:
            try:
                if self._answer is None:
                    self._connection, self._answer = self._ask("GET", self._at)
                if found := self._answer.read(size):
                    self._at += len(found)
                    self._tries = 0
                    return found
            except (OSError, http.client.HTTPException):
                if self._tries == TRIES_MAX:
                    raise
            self._tries += 1
            self.hang_up()
        return b""

    def hang_up(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._answer = None
