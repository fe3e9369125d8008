"""A front end for queries: Flight SQL in a process of its own, for a coordinator elsewhere."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

import pyarrow as pa
from msgspec import Struct

from rota import __version__
from rota.api.auth import Gate, check_exposure
from rota.api.flight.desk import Table
from rota.api.flight.server import FlightSqlServer
from rota.app.clocks import SystemClock, wall_clock
from rota.app.embedded import Rota
from rota.app.journal import Journal
from rota.app.sql.cluster import Choices
from rota.app.sql.handles import QueryHandle
from rota.app.sql.runtimes import ClusterRuntime
from rota.app.sql.session import Session
from rota.config import Config, read_address, read_server_tls
from rota.control.events import Tell
from rota.core.errors import Refused
from rota.kinds.query.parameters import names_in, numbered

LISTEN = "127.0.0.1:8982"
SESSIONS_MAX = 100


class FlightEnd(Struct, frozen=True):
    """Where it is reached."""

    url: str


def start_flight(parts: ExitStack, config: Config) -> FlightEnd:
    """Start a front end as the settings say; `parts` stops it."""
    listen = read_address(config.queries.listen or LISTEN, "queries.listen")
    tls = read_server_tls(config.tls, wall_clock())
    clock = SystemClock()
    journal = Journal(clock)
    parts.callback(journal.close)
    journal.start()
    gate = Gate(config.auth, clock, tell=journal)
    for warning in check_exposure([listen], is_open=gate.is_open, has_tls=tls is not None):
        journal(Tell("exposed", (("warning", warning),)))
    desk = CallersDesk(lambda token: _open(config, token))
    parts.callback(desk.close)
    scheme = "grpc" if tls is None else "grpc+tls"
    certificates = {} if tls is None else {"tls_certificates": [(tls.cert, tls.key.reveal())]}
    server = FlightSqlServer(desk, f"{scheme}://{listen}", __version__, **certificates)
    parts.callback(server.stop)
    return FlightEnd(f"{scheme}://{listen.host}:{server.port}")


def _open(config: Config, token: str) -> Session:
    """A session for a caller, with the tables of the settings."""
    rota = Rota.connect(config.client.coordinator or None, token=token)
    session = Session(reads_only=True, runtime=ClusterRuntime(rota, Choices(), owns=True))
    try:
        for name, path in config.queries.tables.items():
            session.register_path(name, path)
    except BaseException:
        session.close()
        raise
    return session


class CallersDesk:
    """A session for each token, made when it is first presented. The one that was used least recently makes room."""

    def __init__(self, make: Callable[[str], Session]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, OneCaller] = OrderedDict()

    def session(self, token: str) -> "OneCaller":
        """The session of a caller."""
        key = sha256(token.encode()).digest()
        with self._lock:
            found = self._sessions.get(key)
            if found is not None:
                self._sessions.move_to_end(key)
                return found
        # Outside the lock: it asks the coordinator.
        made = OneCaller(self._make(token))
        with self._lock:
            kept = self._sessions.setdefault(key, made)
            left = self._sessions.popitem(last=False)[1] if len(self._sessions) > SESSIONS_MAX else None
        if kept is not made:
            made.close()
        if left is not None:
            left.close()
        return kept

    def close(self) -> None:
        """Hang up everywhere."""
        with self._lock:
            left = list(self._sessions.values())
            self._sessions.clear()
        for each in left:
            each.close()


class OneCaller:
    """A session that several calls use at once: planning is one at a time, running is not."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._planning = threading.Lock()

    def begin(self, sql: str, params: Sequence[Any]) -> QueryHandle:
        """Begin to run a statement that only reads."""
        with self._planning:
            return self._session.submit(sql, params)

    def schema_of(self, sql: str) -> pa.Schema | None:
        """What a statement would give; None if that depends on its parameters."""
        with self._planning:
            if self.parameters_of(sql):
                return None
            return self._session.sql(sql).schema

    def parameters_of(self, sql: str) -> Sequence[str]:
        """The parameters of a statement."""
        return names_in(numbered(sql))

    def tables(self) -> list[Table]:
        """All tables, with their columns."""
        found: list[Table] = []
        with self._planning:
            for name in self._session.tables():
                catalog, schema, table = name.split(".", 2)
                try:
                    columns = self._session.table(f'"{catalog}"."{schema}"."{table}"').schema
                except Refused:
                    # Its files are gone since it was registered; a query would say so.
                    columns = pa.schema([])
                found.append(Table(catalog, schema, table, columns))
        return found

    def close(self) -> None:
        """Hang up."""
        self._session.close()
