"""A front end for queries: Flight SQL in a process of its own, for a coordinator elsewhere."""

import asyncio
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from typing import Any
from weakref import WeakSet

import pyarrow as pa
from msgspec import Struct

from rota import __version__
from rota.api.flight.desk import Table
from rota.api.flight.server import FlightSqlServer
from rota.api.flight.statements import Bounds
from rota.api.tokens import Gate, check_exposure
from rota.app.clocks import SystemClock, wall_clock
from rota.app.embedded import Rota
from rota.app.journal import Journal
from rota.app.sql.cluster import Choices
from rota.app.sql.describing import describe_tables
from rota.app.sql.frames import DataFrame
from rota.app.sql.handles import QueryHandle
from rota.app.sql.runtimes import ClusterRuntime
from rota.app.sql.session import Session
from rota.app.sql.statement_names import StatementNames
from rota.config import Address, Config, ServerTls, read_address, read_server_tls
from rota.control.events import Level, Tell
from rota.core.errors import Refused
from rota.kinds.query.parameters import names_in, names_statement, numbered
from rota.wire.places import read_places

LISTEN = "127.0.0.1:8982"
SESSIONS_MAX = 100
SETTING = "queries.tables"
_ERROR_CHARS_MAX = 1_000
_NO_TABLE = "there is no table "

TellOf = Callable[[Tell], None]


class FlightEnd(Struct, frozen=True):
    """Where it is reached; and once it was stopped, whether a caller who does not read keeps it from ending."""

    url: str
    is_stuck: Callable[[], bool]


async def start_flight(parts: AsyncExitStack, config: Config, bounds: Bounds | None = None) -> FlightEnd:
    """Start a front end as the settings say; `parts` stops it. What is wrong with them is refused here."""
    listen = read_address(config.queries.listen or LISTEN, "queries.listen")
    tls = read_server_tls(config.tls, wall_clock())
    read_places(config.client, wall_clock())
    clock = SystemClock()
    journal = Journal(clock)
    parts.callback(journal.close)
    journal.start()
    tell = _from_any_thread(journal)
    gate = Gate(config.auth, clock, tell=tell)
    for warning in check_exposure([listen], is_open=gate.is_open, has_tls=tls is not None):
        tell(Tell("exposed", (("warning", warning),)))
    await asyncio.to_thread(check_tables, config.queries.tables, tell)
    desk = CallersDesk(gate, lambda token: _open(config, token))
    parts.push_async_callback(asyncio.to_thread, desk.close)

    def failed(what: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX]
        tell(Tell("request.failed", (("request", what), ("error", text)), Level.WARNING))

    _check_free(listen)
    scheme = "grpc" if tls is None else "grpc+tls"
    server = await asyncio.to_thread(
        FlightSqlServer, desk, f"{scheme}://{listen}", __version__, failed, bounds, **_certificates(tls)
    )
    parts.push_async_callback(asyncio.to_thread, server.stop)
    return FlightEnd(f"{scheme}://{Address(listen.host, server.port)}", lambda: server.is_stuck)


def _from_any_thread(journal: Journal) -> TellOf:
    """The journal for the threads of calls; it lives in the loop."""
    loop = asyncio.get_running_loop()

    def tell(said: Tell) -> None:
        # Not after its end.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(journal, said)

    return tell


def _check_free(listen: Address) -> None:
    """Refuse an address where somebody listens: gRPC would share it with them."""
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:
        text = f"{listen} cannot be listened on: {error.strerror or error}"
        hint = "Choose another address, or stop who uses it."
        raise Refused("listen.failed", text, hint, path="queries.listen") from None


def _certificates(tls: ServerTls | None) -> dict[str, Any]:
    """TLS as pyarrow takes it."""
    if tls is None:
        return {}
    made: dict[str, Any] = {"tls_certificates": [(tls.cert, tls.key.reveal())]}
    if tls.client_ca is not None:
        made |= {"verify_client": True, "root_certificates": tls.client_ca}
    return made


def check_tables(tables: Mapping[str, str], tell: TellOf) -> None:
    """Refuse tables of the settings that cannot be read. What is elsewhere may come later, and is only told."""
    with Session(reads_only=True) as session:
        for name, path in tables.items():
            try:
                session.register_path(name, path)
            except Refused as refused:
                named = _of_setting(name, refused)
                if "://" not in path:
                    raise named from None
                tell(Tell("queries.table", (("table", name), ("why", str(named))), Level.WARNING))


def _of_setting(name: str, refused: Refused) -> Refused:
    return Refused(refused.code, f"table {name!r}: {refused.reason}", refused.hint, path=f"{SETTING}.{name}")


def _open(config: Config, token: str) -> "OneCaller":
    """A session for a caller, with the tables of the settings. Nothing of its queries is run here."""
    client = config.client
    tenant = client.tenant if "client.tenant" in config.sources else None
    rota = Rota.connect(
        client.coordinator,
        token=token,
        tenant=tenant,
        ca=client.ca or None,
        cert=client.cert or None,
        key=client.key or None,
    )
    session = Session(
        reads_only=True, runtime=ClusterRuntime(rota, Choices(), owns=True, may_run_here=False, ca=client.ca)
    )
    try:
        return OneCaller(session, config.queries.tables)
    except BaseException:
        session.close()
        raise


class CallersDesk:
    """A session for each token, made when it is first presented. The one that was used least recently makes room."""

    def __init__(self, gate: Gate, make: Callable[[str], "OneCaller"], sessions_max: int = SESSIONS_MAX) -> None:
        self._gate = gate
        self._make = make
        self._sessions_max = sessions_max
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, OneCaller] = OrderedDict()

    def session(self, token: str, peer: str) -> "OneCaller":
        """The session of a caller. Who is known here is known to the coordinator; it judges what they may do."""
        key = sha256(token.encode(errors="surrogateescape")).digest()
        with self._lock:
            if not self._gate.is_open:
                self._gate.admit(token or None, peer=peer)
            found = self._sessions.get(key)
            if found is not None:
                self._sessions.move_to_end(key)
                return found
        # Outside the lock: it asks the coordinator.
        made = self._make(token)
        with self._lock:
            kept = self._sessions.setdefault(key, made)
            left = self._surplus()
        if kept is not made:
            left.append(made)
        for each in left:
            each.close()
        return kept

    def _surplus(self) -> list["OneCaller"]:
        """Sessions that make room. One whose queries can still be fetched is needed for that."""
        idle = [key for key, each in self._sessions.items() if not each.is_needed]
        count = len(self._sessions) - self._sessions_max
        return [self._sessions.pop(key) for key in idle[: max(0, count)] if key != next(reversed(self._sessions))]

    def close(self) -> None:
        """Hang up everywhere."""
        with self._lock:
            left = list(self._sessions.values())
            self._sessions.clear()
        for each in left:
            each.close()


class OneCaller:
    """A session that several calls use at once: planning is one at a time, running is not."""

    def __init__(self, session: Session, tables: Mapping[str, str]) -> None:
        self._session = session
        self._planning = threading.Lock()
        self._queries: WeakSet[QueryHandle] = WeakSet()
        self._names = StatementNames(session.sql)
        # Tables of the settings that could not be registered yet.
        self._missing = dict(tables)
        self._is_described = False
        self._register()

    @property
    def is_needed(self) -> bool:
        """Whether anybody has a query of it."""
        return len(self._queries) > 0

    def begin(self, sql: str, params: Sequence[Any], connection: str = "") -> QueryHandle:
        """Begin to run a statement that only reads."""
        with self._planning, self._names.scope(sql, connection) as scoped:
            frame = self._frame(scoped, params)
        handle = frame.submit()
        # Its ticket is good here only: a query whose front end was killed is nobody's.
        handle.is_ours_alone = True
        self._queries.add(handle)
        return handle

    def schema_of(self, sql: str, params: Sequence[Any] = (), connection: str = "") -> pa.Schema | None:
        """What a statement would give; None if it has parameters without values."""
        if self.parameters_of(sql) and not params:
            return None
        if names_statement(sql):
            return pa.schema([])
        with self._planning, self._names.scope(sql, connection) as scoped:
            return self._frame(scoped, params).schema

    def parameters_of(self, sql: str) -> Sequence[str]:
        """The parameters of a statement."""
        return names_in(numbered(sql))

    def tables(self) -> list[Table]:
        """All tables, with their columns. One whose files are gone is not among them; a query would say why."""
        found: list[Table] = []
        with self._planning:
            self._register()
            for name in self._session.tables():
                catalog, schema, table = name.split(".", 2)
                quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (catalog, schema, table))
                with suppress(Refused):
                    found.append(Table(catalog, schema, table, self._session.table(quoted).schema))
        return found

    def close(self) -> None:
        """Hang up."""
        self._session.close()

    def _frame(self, sql: str, params: Sequence[Any]) -> DataFrame:
        """A statement, planned. A table that was not there at first may be there now."""
        try:
            return self._session.sql(sql, params)
        except Refused as refused:
            if refused.code != "query.table" or not self._missing:
                raise
            troubles = self._register()
            name = refused.reason.removeprefix(_NO_TABLE)
            if name in troubles:
                raise troubles[name] from None
            return self._session.sql(sql, params)

    def _register(self) -> dict[str, Refused]:
        """Make what is missing known; what stands against that, by table."""
        before = len(self._missing)
        troubles: dict[str, Refused] = {}
        for name, path in list(self._missing.items()):
            try:
                self._session.register_path(name, path)
                del self._missing[name]
            except Refused as refused:
                troubles[name] = _of_setting(name, refused)
        if len(self._missing) < before or not self._is_described:
            describe_tables(self._session.engine)
            self._is_described = True
        return troubles
