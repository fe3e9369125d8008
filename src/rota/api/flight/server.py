"""The server: what a Flight SQL driver calls, each call a translation to a query of its caller's session.

Each call has a thread of its own, for as long as its caller waits.
"""

import re
import secrets
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
from google.protobuf.message import Message

from rota.api.flight import metadata
from rota.api.flight.batches import driver_schema, pieces
from rota.api.flight.desk import CallersSession, Desk
from rota.api.flight.statements import Begun, Bounds, Statements, owner_of
from rota.api.flight.statuses import translated
from rota.core.errors import Refused, Unavailable
from rota.wire.flight import flight_sql_pb2 as pb
from rota.wire.flight.commands import pack, unpack, unpack_cancel

HEADERS = "rota-headers"
BEARER = "bearer "
# The cookie by which a connection is known again: many callers may have the same token, or none.
CONNECTION = "rota-connection"
_ID_BYTES = 16
_ID = re.compile(r"[0-9a-f]{32}")
# How often it is looked whether a caller who waits is still there; seldom for those who wait for long.
LOOK_EVERY_S = 0.1
LOOK_EVERY_MAX_S = 1.0
SWEEP_EVERY_S = 5.0
# How long those who read slowly may go on when the server is stopped.
STOP_S = 5.0
CANCELLED = 1

CANCEL_INFO = "CancelFlightInfo"
_ACTIONS = (
    ("CreatePreparedStatement", "Prepares a statement."),
    ("ClosePreparedStatement", "Drops a prepared statement."),
    ("CancelQuery", "Ends a query."),
    (CANCEL_INFO, "Ends a query."),
)

# Is told of a mistake of our own: what was asked, and what went wrong.
Failed = Callable[[str, Exception], None]


class _Headers(fl.ServerMiddleware):
    """What the headers of a call say: the token, and the connection. `cookie` is one that the reply sets."""

    def __init__(self, token: str, connection: str, cookie: str) -> None:
        self.token = token
        self.connection = connection
        self._cookie = cookie

    def sending_headers(self) -> dict[str, list[str] | list[bytes]]:
        """Give a connection its cookie."""
        return {"set-cookie": [f"{CONNECTION}={self._cookie}; Path=/; HttpOnly"]} if self._cookie else {}


class _ReadsHeaders(fl.ServerMiddlewareFactory):
    """Takes the bearer token and the cookie of the connection from the headers of each call."""

    def start_call(self, info: Any, headers: Any) -> _Headers:
        """What the caller presents; "" if that is nothing."""
        text = next(iter(_header(headers, "authorization")), "")
        token = text[len(BEARER) :].strip() if text.lower().startswith(BEARER) else ""
        cookies = (each.strip().partition("=") for text in _header(headers, "cookie") for each in text.split(";"))
        connection = next((value for name, _, value in cookies if name == CONNECTION and _ID.fullmatch(value)), "")
        return _Headers(token, connection, "" if connection else secrets.token_hex(_ID_BYTES))


def _header(headers: Any, name: str) -> list[str]:
    values = next((values for each, values in headers.items() if each.lower() == name), [])
    return [value for value in values if isinstance(value, str)]


class FlightSqlServer(fl.FlightServerBase):
    """Serves statements, prepared statements and questions about tables."""

    def __init__(
        self, desk: Desk, location: str, version: str, failed: Failed, bounds: Bounds | None = None, **tls: Any
    ) -> None:
        """`failed` is told of mistakes of our own; `tls` is what pyarrow's server takes."""
        # Before anybody can call.
        self._desk = desk
        self._version = version
        self._failed = failed
        bounds = bounds or Bounds()
        self._statements = Statements(bounds)
        self._sweep_every_s = min(SWEEP_EVERY_S, bounds.grace_s / 2)
        self._stopping = threading.Event()
        # Whether somebody who does not read was left behind; nothing but the end of the process ends their call.
        self.is_stuck = False
        super().__init__(location, middleware={HEADERS: _ReadsHeaders()}, **tls)
        threading.Thread(target=self._sweep, name="rota-flight-sweep", daemon=True).start()

    def stop(self) -> None:
        """End what goes on, and serve nobody any more. Those who do not read what they asked for are left behind."""
        self._stopping.set()
        self._statements.close()
        ending = threading.Thread(target=self.shutdown, name="rota-flight-stop", daemon=True)
        ending.start()
        ending.join(STOP_S)
        self.is_stuck = ending.is_alive()

    def _sweep(self) -> None:
        while not self._stopping.wait(self._sweep_every_s):
            try:
                self._statements.sweep()
            except Exception as error:
                self._failed("sweep", error)

    # What is called.

    def get_flight_info(self, context: Any, descriptor: Any) -> fl.FlightInfo:
        """Begin a statement, or say of what an answer about tables is made."""
        with translated(self._failed, "GetFlightInfo"):
            name, command = unpack(descriptor.command)
            session, owner = self._caller(context)
            if name in metadata.SCHEMAS:
                return _info(metadata.schema_of(name, command), descriptor, descriptor.command)
            sql, params = self._statement(owner, name, command)
            handle, query = self._statements.begin(owner, lambda: session.begin(sql, params, _connection(context)))
            if context.is_cancelled():
                # Nobody has its ticket.
                self._statements.give_up(self._statements.find(owner, handle), "its caller has gone")
            ticket = pack("TicketStatementQuery", pb.Ticket(handle=handle))
            return _info(driver_schema(query.schema), descriptor, ticket)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Of what an answer would be made."""
        with translated(self._failed, "GetSchema"):
            name, command = unpack(descriptor.command)
            session, owner = self._caller(context)
            if name in metadata.SCHEMAS:
                return fl.SchemaResult(metadata.schema_of(name, command))
            sql, params = self._statement(owner, name, command)
            return fl.SchemaResult(driver_schema(session.schema_of(sql, params, _connection(context)) or pa.schema([])))

    def do_get(self, context: Any, ticket: Any) -> fl.FlightDataStream:
        """The answer, as soon as it is there."""
        with translated(self._failed, "DoGet"):
            name, command = unpack(ticket.ticket)
            session, owner = self._caller(context)
            if name in metadata.SCHEMAS:
                return fl.RecordBatchStream(metadata.answer(name, command, session.tables(), self._version))
            if not isinstance(command, pb.Ticket):
                raise Refused("field.value", f"{name} is no ticket", path="ticket")
            begun = self._statements.find(owner, command.handle)
            reader = self._opened(context, begun)
            schema = driver_schema(reader.schema)
            return fl.GeneratorStream(schema, self._read(begun, reader, schema))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Bind values to a prepared statement. Nothing can be written here."""
        with translated(self._failed, "DoPut"):
            name, command = unpack(descriptor.command)
            _, owner = self._caller(context)
            if not isinstance(command, pb.Prepared) or name != "CommandPreparedStatementQuery":
                text = "statements that change something are not served here"
                raise Refused("query.unsupported", text, "Ask with execute, one statement at a time.", path="command")
            self._statements.bind(owner, command.handle, _values(reader))
            writer.write(pa.py_buffer(pb.Prepared(handle=command.handle).SerializeToString()))

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Prepare, drop, cancel."""
        with translated(self._failed, f"DoAction {action.type[:100]}"):
            if action.type not in [name for name, _ in _ACTIONS]:
                raise Refused("query.unsupported", f"there is no action {action.type[:100]} here", path="action")
            session, owner = self._caller(context)
            body = action.body.to_pybytes()
            command = unpack_cancel(body) if action.type == CANCEL_INFO else unpack(body)[1]
            if isinstance(command, pb.Statement):
                return iter([self._prepare(session, owner, command.query, _connection(context))])
            if isinstance(command, pb.Prepared):
                self._statements.unprepare(owner, command.handle)
                return iter(())
            if not isinstance(command, pb.CancelQuery):
                raise Refused("field.value", f"{action.type} is asked for with another message", path="action")
            self._cancel(owner, command.info)
            done = pb.Cancelled(result=CANCELLED)
            is_bare = action.type == CANCEL_INFO
            return iter([done.SerializeToString() if is_bare else pack("ActionCancelQueryResult", done)])

    def list_actions(self, context: Any) -> Any:
        """What `do_action` knows."""
        return list(_ACTIONS)

    def list_flights(self, context: Any, criteria: Any) -> Any:
        """What others have begun is nobody's business."""
        with translated(self._failed, "ListFlights"):
            raise Refused("query.unsupported", "queries are not listed here", "Ask a coordinator: `rota runs`.")

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Nothing of Flight SQL needs it."""
        with translated(self._failed, "DoExchange"):
            raise Refused("query.unsupported", "there is no exchange here", path="command")

    # How it is done.

    def _caller(self, context: Any) -> tuple[CallersSession, bytes]:
        if self._stopping.is_set():
            raise Unavailable("service.busy", "this front end is stopping", retry_after_ms=1_000)
        token = context.get_middleware(HEADERS).token
        return self._desk.session(token, context.peer()), owner_of(token)

    def _statement(self, owner: bytes, name: str, command: Message | None) -> tuple[str, tuple[Any, ...]]:
        if isinstance(command, pb.Statement) and name == "CommandStatementQuery":
            return command.query, ()
        if isinstance(command, pb.Prepared) and name == "CommandPreparedStatementQuery":
            found = self._statements.prepared(owner, command.handle)
            return found.sql, found.values
        raise Refused("query.unsupported", f"{name} is not served here", path="command")

    def _prepare(self, session: CallersSession, owner: bytes, sql: str, connection: str) -> bytes:
        schema = session.schema_of(sql, (), connection)
        # Of which type a parameter is, is not known before it has a value.
        params = pa.schema([pa.field(name, pa.null()) for name in session.parameters_of(sql)])
        made = pb.Created(
            handle=self._statements.prepare(owner, sql),
            dataset_schema=driver_schema(schema).serialize().to_pybytes() if schema is not None else b"",
            parameter_schema=params.serialize().to_pybytes(),
        )
        return pack("ActionCreatePreparedStatementResult", made)

    def _cancel(self, owner: bytes, info: bytes) -> None:
        try:
            endpoints = fl.FlightInfo.deserialize(info).endpoints
        except (pa.ArrowException, OSError, ValueError):
            raise Refused("field.value", "what to cancel cannot be read", path="info") from None
        for endpoint in endpoints:
            _, command = unpack(endpoint.ticket.ticket)
            if isinstance(command, pb.Ticket):
                begun = self._statements.find(owner, command.handle)
                if not begun.is_over:
                    begun.query.cancel("cancelled by its client")

    def _opened(self, context: Any, begun: Begun) -> pa.RecordBatchReader:
        """The answer. A query whose caller has gone is ended, because nobody else has its ticket."""
        look_s = LOOK_EVERY_S
        with self._statements.reading(begun):
            while not context.is_cancelled():
                if self._stopping.is_set():
                    raise Unavailable("service.busy", "this front end is stopping", retry_after_ms=1_000)
                try:
                    reader = begun.query.stream(look_s)
                except TimeoutError:
                    # It goes on, or again: its answer may have been lost since it was read before.
                    begun.is_over = False
                    look_s = min(look_s * 1.5, LOOK_EVERY_MAX_S)
                    continue
                except Refused:
                    begun.is_over = True
                    raise
                begun.is_over = True
                return reader
        self._statements.give_up(begun, "its caller has gone")
        raise fl.FlightCancelledError("the caller has gone")

    def _read(self, begun: Begun, reader: pa.RecordBatchReader, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        with self._statements.reading(begun), translated(self._failed, "DoGet"):
            for batch in reader:
                if self._stopping.is_set():
                    raise Unavailable("service.busy", "this front end is stopping", retry_after_ms=1_000)
                yield from pieces(batch, schema)


def _connection(context: Any) -> str:
    """The connection of a call; "" if it did not send the cookie that it was given."""
    return context.get_middleware(HEADERS).connection


def _values(reader: Any) -> tuple[Any, ...]:
    """The one row of values that is bound, by place: drivers name columns as they like."""
    values: tuple[Any, ...] = ()
    count = 0
    for chunk in reader:
        batch = chunk.data
        count += batch.num_rows
        if count > 1:
            text = "several rows of values are bound, and a statement takes one"
            raise Refused("query.parameter", text, "Bind one row at a time.", path="params")
        if batch.num_rows:
            values = tuple(batch.column(number)[0] for number in range(batch.num_columns))
    return values


def _info(schema: pa.Schema, descriptor: Any, ticket: bytes) -> fl.FlightInfo:
    return fl.FlightInfo(schema, descriptor, [fl.FlightEndpoint(fl.Ticket(ticket), [])], -1, -1)
