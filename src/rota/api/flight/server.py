"""The server: what a Flight SQL driver calls, each call a translation to a query of its caller's session."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as fl
from google.protobuf.message import Message

from rota.api.flight import metadata
from rota.api.flight.desk import CallersSession, Desk
from rota.api.flight.statements import Begun, Statements, owner_of
from rota.core.errors import Refused, Unavailable
from rota.wire.flight import flight_sql_pb2 as pb
from rota.wire.flight.commands import pack, unpack

T = TypeVar("T")

TOKEN = "rota-token"  # noqa: S105 - the name of a middleware
BEARER = "bearer "
LOOK_EVERY_S = 0.1
SWEEP_EVERY_S = 5.0
CANCELLED = 1

_ACTIONS = (
    ("CreatePreparedStatement", "Prepares a statement."),
    ("ClosePreparedStatement", "Drops a prepared statement."),
    ("CancelQuery", "Ends a query."),
)


class _Token(fl.ServerMiddleware):
    def __init__(self, token: str) -> None:
        self.token = token


class _ReadsTokens(fl.ServerMiddlewareFactory):
    """Takes the bearer token from the headers of each call."""

    def start_call(self, info: Any, headers: Any) -> _Token:
        """What the caller presents; "" if that is nothing."""
        values = next((values for name, values in headers.items() if name.lower() == "authorization"), [""])
        text = values[0]
        return _Token(text[len(BEARER) :].strip() if text.lower().startswith(BEARER) else "")


class FlightSqlServer(fl.FlightServerBase):
    """Serves statements, prepared statements and questions about tables."""

    def __init__(self, desk: Desk, location: str, version: str, **tls: Any) -> None:
        super().__init__(location, middleware={TOKEN: _ReadsTokens()}, **tls)
        self._desk = desk
        self._version = version
        self._statements = Statements()
        self._stopping = threading.Event()
        threading.Thread(target=self._sweep, name="rota-flight-sweep", daemon=True).start()

    def stop(self) -> None:
        """End what goes on, and serve nobody any more."""
        self._stopping.set()
        self._statements.close()
        self.shutdown()

    def _sweep(self) -> None:
        while not self._stopping.wait(SWEEP_EVERY_S):
            self._statements.sweep()

    # What is called.

    def get_flight_info(self, context: Any, descriptor: Any) -> fl.FlightInfo:
        """Begin a statement, or say of what an answer about tables is made."""
        with _translated():
            name, command = unpack(descriptor.command)
            if name in metadata.SCHEMAS:
                return _info(metadata.schema_of(name, command), descriptor, descriptor.command)
            sql, params = self._statement(context, name, command)
            session, owner = self._caller(context)
            handle, query = self._statements.begin(owner, lambda: session.begin(sql, params))
            ticket = pack("TicketStatementQuery", pb.Ticket(handle=handle))
            return _info(query.schema, descriptor, ticket)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Of what an answer would be made."""
        with _translated():
            name, command = unpack(descriptor.command)
            if name in metadata.SCHEMAS:
                return fl.SchemaResult(metadata.schema_of(name, command))
            sql, _ = self._statement(context, name, command)
            return fl.SchemaResult(self._caller(context)[0].schema_of(sql) or pa.schema([]))

    def do_get(self, context: Any, ticket: Any) -> fl.FlightDataStream:
        """The answer, as soon as it is there."""
        with _translated():
            name, command = unpack(ticket.ticket)
            session, owner = self._caller(context)
            if name in metadata.SCHEMAS:
                return fl.RecordBatchStream(metadata.answer(name, command, session.tables(), self._version))
            if not isinstance(command, pb.Ticket):
                raise Refused("field.value", f"{name} is no ticket", path="ticket")
            begun = self._statements.find(owner, command.handle)
            begun.readers += 1
            try:
                self._wait(context, begun)
                reader = begun.query.stream()
            except BaseException:
                begun.readers -= 1
                raise
            return fl.GeneratorStream(reader.schema, self._read(begun, reader))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Bind values to a prepared statement. Nothing can be written here."""
        with _translated():
            name, command = unpack(descriptor.command)
            if not isinstance(command, pb.Prepared) or name != "CommandPreparedStatementQuery":
                text = "statements that change something are not served here"
                raise Refused("query.unsupported", text, "Write with a session of your own.", path="command")
            rows = reader.read_all().to_pylist()
            if len(rows) > 1:
                text = f"{len(rows)} rows of values are bound, and a statement takes one"
                raise Refused("query.parameter", text, "Bind one row at a time.", path="params")
            _, owner = self._caller(context)
            self._statements.bind(owner, command.handle, tuple(rows[0].values()) if rows else ())
            writer.write(pa.py_buffer(pb.Prepared(handle=command.handle).SerializeToString()))

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Prepare, drop, cancel."""
        with _translated():
            if action.type not in [name for name, _ in _ACTIONS]:
                raise Refused("query.unsupported", f"there is no action {action.type} here", path="action")
            _, command = unpack(action.body.to_pybytes())
            session, owner = self._caller(context)
            if isinstance(command, pb.Statement):
                return iter([self._prepare(session, owner, command.query)])
            if isinstance(command, pb.Prepared):
                self._statements.unprepare(owner, command.handle)
                return iter(())
            assert isinstance(command, pb.CancelQuery), "one message for each action"
            return iter([self._cancel(owner, command.info)])

    def list_actions(self, context: Any) -> Any:
        """What `do_action` knows."""
        return list(_ACTIONS)

    # How it is done.

    def _caller(self, context: Any) -> tuple[CallersSession, bytes]:
        token = context.get_middleware(TOKEN).token
        return self._desk.session(token), owner_of(token)

    def _statement(self, context: Any, name: str, command: Message | None) -> tuple[str, tuple[Any, ...]]:
        if isinstance(command, pb.Statement) and name == "CommandStatementQuery":
            return command.query, ()
        if isinstance(command, pb.Prepared) and name == "CommandPreparedStatementQuery":
            found = self._statements.prepared(self._caller(context)[1], command.handle)
            return found.sql, found.values
        raise Refused("query.unsupported", f"{name} is not served here", path="command")

    def _prepare(self, session: CallersSession, owner: bytes, sql: str) -> bytes:
        schema = session.schema_of(sql)
        # Of which type a parameter is, is not known before it has a value.
        params = pa.schema([pa.field(name, pa.null()) for name in session.parameters_of(sql)])
        made = pb.Created(
            handle=self._statements.prepare(owner, sql),
            dataset_schema=schema.serialize().to_pybytes() if schema is not None else b"",
            parameter_schema=params.serialize().to_pybytes(),
        )
        return pack("ActionCreatePreparedStatementResult", made)

    def _cancel(self, owner: bytes, info: bytes) -> bytes:
        for endpoint in fl.FlightInfo.deserialize(info).endpoints:
            _, command = unpack(endpoint.ticket.ticket)
            if isinstance(command, pb.Ticket):
                self._statements.find(owner, command.handle).query.cancel("cancelled by its client")
        return pack("ActionCancelQueryResult", pb.Cancelled(result=CANCELLED))

    def _wait(self, context: Any, begun: Begun) -> None:
        """Until the query has ended, or its caller has gone."""
        while not begun.is_over:
            try:
                begun.query.wait(LOOK_EVERY_S)
            except TimeoutError:
                if context.is_cancelled():
                    # It may come back for it; the sweep ends what nobody comes back for.
                    raise fl.FlightCancelledError("the caller has gone") from None
                continue
            except Refused:
                begun.is_over = True
                raise
            begun.is_over = True

    def _read(self, begun: Begun, reader: pa.RecordBatchReader) -> Generator[pa.RecordBatch]:
        try:
            with _translated():
                yield from reader
        finally:
            begun.readers -= 1


def _info(schema: pa.Schema, descriptor: Any, ticket: bytes) -> fl.FlightInfo:
    return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(fl.Ticket(ticket), [])], -1, -1)


_ERRORS: tuple[tuple[str, Callable[[str], Exception]], ...] = (
    ("auth.role", fl.FlightUnauthorizedError),
    ("auth.tenant", fl.FlightUnauthorizedError),
    ("auth.", fl.FlightUnauthenticatedError),
    ("query.failed", fl.FlightServerError),
    ("query.memory", fl.FlightServerError),
    ("run.ended", fl.FlightCancelledError),
    ("run.unknown", pa.ArrowKeyError),
    ("query.unsupported", pa.ArrowNotImplementedError),
    ("", pa.ArrowInvalid),
)


@contextmanager
def _translated() -> Generator[None]:
    """Refusals as the statuses that drivers know."""
    try:
        yield
    except Refused as refused:
        kind = next(kind for prefix, kind in _ERRORS if refused.code.startswith(prefix))
        raise kind(str(refused)) from None
    except Unavailable as unavailable:
        raise fl.FlightUnavailableError(str(unavailable)) from None
