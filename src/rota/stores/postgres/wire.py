"""A connection as it is used here: statements go out, answers come in, and it can be dropped at any moment.

psycopg opens connections and turns values into Python's. Waiting for an answer is done here: psycopg's own way takes
100 µs longer for each statement, and when it is interrupted it first asks the server to cancel, for up to ten seconds,
which is how long a dead line stays unnoticed.
"""

import asyncio
import select
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.rows import TupleRow
from psycopg.types.string import TextBinaryLoader

from rota.core.errors import Refused

Bound = str | int | bool | bytes | None
_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)
_FIELDS = (
    pq.DiagnosticField.SQLSTATE,
    pq.DiagnosticField.MESSAGE_PRIMARY,
    pq.DiagnosticField.MESSAGE_DETAIL,
    pq.DiagnosticField.SEVERITY_NONLOCALIZED,
)


class Said(Exception):
    """PostgreSQL answered with an error. The transaction it happened in is undone."""

    def __init__(self, sqlstate: str, message: str, detail: str, is_fatal: bool) -> None:
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        # The session ends with it.
        self.is_fatal = is_fatal
        super().__init__(sqlstate, message, detail)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.message}{detail} [{self.sqlstate}]"


class Lost(Exception):
    """The connection broke, or nobody answered in time. `was_sent`: whether the last statement had left whole."""

    def __init__(self, text: str, was_sent: bool) -> None:
        self.was_sent = was_sent
        super().__init__(text)


class Wire:
    """An open connection. One statement at a time; after `Lost` or a cancellation it is only good for dropping."""

    def __init__(self, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        # What is JSON in a column is decoded elsewhere, into what it was.
        connection.adapters.register_loader("json", TextBinaryLoader)
        self._connection = connection
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        # libpq closes it when it finds the connection broken, and then does not say any more which it was.
        self._fd = self._pgconn.socket
        # TLS takes up to 16 KB off the line at a time and libpq half of it; what is left, the line knows nothing of.
        self._reads_min = 3 if self._pgconn.ssl_in_use else 1
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._transformer = Transformer(connection)
        # Whether the statement that is under way has left whole; False when none is.
        self.was_sent = False
        self._end: Callable[[Exception], None] | None = None

    @property
    def pid(self) -> int:
        """The number of the server's process, as it was told when the connection was opened."""
        return self._pgconn.backend_pid

    @property
    def server_version(self) -> int:
        """The server's version, 150004 for 15.4."""
        return self._pgconn.server_version

    @property
    def encoding(self) -> str:
        """How the database stores text."""
        return (self._pgconn.parameter_status(b"server_encoding") or b"").decode()

    @property
    def is_idle(self) -> bool:
        """Whether it is open, outside a transaction, and nothing has arrived that nobody asked for.

        A server that is being stopped says so to every session, and closes it: whoever looks first does not send a
        commit into a connection that has ended, and need not wonder what became of it.
        """
        if self._pgconn.status != pq.ConnStatus.OK or self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
            return False
        return not self._is_readable

    @property
    def _is_readable(self) -> bool:
        return bool(self._poll.poll(0))

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open that can still be ended in order."""
        return self._pgconn.transaction_status == pq.TransactionStatus.INTRANS

    async def run(self, text: str, values: Sequence[Bound] = ()) -> list[tuple[Any, ...]]:
        """Carry out one statement; its rows."""
        self._send(lambda: self._pgconn.send_query_params(text.encode(), bound(values), result_format=pq.Format.BINARY))
        results = await self._answers()
        self._transformer.set_pgresult(results[-1])
        return self._transformer.load_rows(0, results[-1].ntuples, tuple)

    async def script(self, text: str) -> None:
        """Carry out statements without values, one after another."""
        self._send(lambda: self._pgconn.send_query(text.encode()))
        await self._answers()

    async def notified(self) -> None:
        """Wait until a notification has arrived, and take all that have."""
        while self._pgconn.notifies() is None:
            await self._watch(lambda: True)
        while self._pgconn.notifies() is not None:
            pass

    def drop(self) -> None:
        """Close it now; what is under way is lost."""
        if self._end is not None:
            self._end(psycopg.OperationalError("the connection was closed from here"))
        self._pgconn.finish()

    def _send(self, send: Callable[[], None]) -> None:
        self.was_sent = False
        try:
            send()
        except psycopg.OperationalError as error:
            raise Lost(_plain(error), was_sent=False) from error

    async def _answers(self) -> list[pq.abc.PGresult]:
        """All results of what was sent. What of it the server refused is raised as `Said`."""
        results: list[pq.abc.PGresult] = []

        def take() -> bool:
            while not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                if result is None:
                    return True
                results.append(result)
            return False

        try:
            await self._watch(take)
        except Lost:
            # The last words of a session come just before its end.
            self._check(results)
            raise
        self._check(results)
        self.was_sent = False
        return results

    def _check(self, results: Sequence[pq.abc.PGresult]) -> None:
        for result in results:
            if result.status in _FAILED:
                state, message, detail, severity = [
                    (result.error_field(field) or b"").decode(errors="replace") for field in _FIELDS
                ]
                if not state:
                    # libpq's own words: the connection broke.
                    text = " ".join(result.error_message.decode(errors="replace").split())
                    raise Lost(text, self.was_sent)
                raise Said(state, message, detail, severity in ("FATAL", "PANIC"))

    async def _watch(self, take: Callable[[], bool]) -> None:
        """Write what is to be written, and let `take` look at what arrives until it says that is all."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def end(error: Exception | None) -> None:
            # At once: a descriptor that libpq has closed may be somebody else's by the next turn.
            self._end = None
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(Lost(_plain(error), self.was_sent))

        def readable() -> None:
            try:
                # Everything at once: of a connection that was reset, libuv tells only once.
                reads = 0
                while self._is_readable or reads < self._reads_min:
                    reads += 1
                    self._pgconn.consume_input()
                    if take():
                        end(None)
                        return
            except psycopg.OperationalError as error:
                take()
                end(error)

        def writable() -> None:
            try:
                if self._pgconn.flush() == 0:
                    self.was_sent = True
                    loop.remove_writer(self._fd)
            except psycopg.OperationalError as error:
                end(error)

        if self._pgconn.status != pq.ConnStatus.OK:
            raise Lost("the connection is closed", was_sent=False)
        assert self._end is None, "one statement at a time"
        self._end = end
        loop.add_reader(self._fd, readable)
        writable()
        if not self.was_sent and not done.done():
            loop.add_writer(self._fd, writable)
        try:
            await done
        finally:
            if self._end is not None:
                end(None)


def _plain(error: Exception) -> str:
    return " ".join(str(error).split())


def bound(values: Sequence[Bound]) -> list[bytes | None]:
    """Values as they travel beside a statement: as text, the server knows their types. Bytes are text already."""
    return [_bound(value) for value in values]


def _bound(value: Bound) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        if "\0" in value:
            # It would be cut there.
            raise Refused("field.value", f"{value!r} has a NUL, which PostgreSQL cannot keep.")
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise Refused("field.value", f"{value!r} is no text that PostgreSQL can keep.") from None
    return str(value).encode()
