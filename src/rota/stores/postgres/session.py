"""A session that is opened when it is needed, and again after it was lost."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.stores.postgres.address import Address
from rota.stores.postgres.trouble import not_connected
from rota.stores.postgres.wire import Bound, Lost, Wire

# How long all hosts of an address have to be connected to, in turn.
CONNECT_S = 5.0
# Before the limit of whoever waits for the answer, so that there is one: nothing that was given up on goes on.
ANSWER_S = 1.0
# A line that has gone dead is noticed, from either end, within half a minute also if nobody says anything.
_KEEPALIVES = {"keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3"}
# `idle_session_timeout`, which frees the lock of a coordinator that has vanished, came with this one.
VERSION_MIN = 14

Greeting = Callable[[Wire], Awaitable[None]]
# How a connection is had, of which name and within how many seconds.
Dial = Callable[[Address, str, float], Awaitable[Wire]]


async def no_greeting(wire: Wire) -> None:
    """Nothing to settle when the session is opened."""


def bounded(call_s: float) -> Greeting:
    """Let the server end what takes longer than anybody waits for it, and look after the line.

    Behind a pooler, which shows in the number of the process, the session is not ours to settle anything in.
    """
    settings = {"statement_timeout": f"{statement_ms(call_s)}"}
    settings |= {f"tcp_{name}": value for name, value in _KEEPALIVES.items()}
    settled = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())

    async def greet(wire: Wire) -> None:
        await wire.script(f"SELECT {settled} WHERE pg_backend_pid() = {wire.pid}")

    return greet


def statement_ms(call_s: float) -> Millis:
    """How long a statement may take the server, if its answer is awaited for so long."""
    return round(max(call_s - ANSWER_S, call_s / 2) * 1_000)


async def connect(address: Address, name: str, connect_s: float = CONNECT_S) -> Wire:
    """Open a connection, and look at who answers. Raises `Refused` or `Unavailable`.

    The hosts are tried in turn. Each has its share of the time that is left, so a silent one leaves some to the next;
    libpq would give it two seconds at least.
    """
    give_up_at = asyncio.get_running_loop().time() + connect_s
    said: list[str] = []
    for number, host in enumerate(address.hosts):
        left_s = give_up_at - asyncio.get_running_loop().time()
        share_s = max(left_s, 0) / (len(address.hosts) - number)
        params = {**_KEEPALIVES, **host, "application_name": name, "client_encoding": "UTF8"}
        try:
            async with asyncio.timeout(share_s):
                connection = await psycopg.AsyncConnection.connect(make_conninfo(**params), autocommit=True)
        except TimeoutError:
            said.append(f"{host.get('host', 'it')} did not answer within {share_s:.2g} s")
        except (psycopg.Error, OSError) as error:
            said.append(str(error))
        else:
            return _checked(connection, address)
    raise not_connected("; ".join(said), address)


def _checked(connection: psycopg.AsyncConnection[TupleRow], address: Address) -> Wire:
    wire = Wire(connection)
    try:
        check_server(wire.server_version, wire.encoding, address)
    except BaseException:
        wire.drop()
        raise
    return wire


def check_server(version: int, encoding: str, address: Address) -> None:
    """Refuse a server that is too old (150004 is 15.4), and a database that cannot hold every text."""
    if version // 10_000 < VERSION_MIN:
        text = f"{address} is PostgreSQL {version // 10_000}, and Rota needs {VERSION_MIN} or newer."
        raise Refused("store.engine", text, "Upgrade the server, or name another.")
    if encoding != "UTF8":
        text = f"{address} stores text as {encoding}, which cannot hold every name."
        raise Refused("store.engine", text, "Create a database with ENCODING 'UTF8' and name that.")


class Session:
    """One connection at a time, and one user of it at a time. Every use has a bound, and so has connecting."""

    def __init__(
        self,
        address: Address,
        name: str,
        call_s: float,
        greet: Greeting = no_greeting,
        connect_s: float = CONNECT_S,
        dial: Dial = connect,
    ) -> None:
        self.address = address
        self._name = name
        self.call_s = call_s
        self._connect_s = connect_s
        self._dial = dial
        self._greet = greet
        self._free = asyncio.Lock()
        self.is_closed = False
        self.wire: Wire | None = None

    @asynccontextmanager
    async def turn(self, call_s: float = 0.0) -> AsyncGenerator[Wire]:
        """The connection for oneself, open, for so long; what it takes to connect is not counted.

        It is dropped if what is done with it fails and leaves a transaction open or a statement unanswered. Raises
        `Said` or `Lost` of what is done, `Refused` or `Unavailable` if there is no connection to be had.
        """
        wire: Wire | None = None
        limit_s = call_s or self.call_s
        try:
            async with asyncio.timeout(limit_s) as limit, self._free:
                wire = await self._open(limit)
                try:
                    yield wire
                except BaseException:
                    if not wire.is_idle:
                        self.drop()
                    raise
        except TimeoutError:
            was_sent = wire is not None and wire.was_sent
            raise Lost(f"{self.address} did not answer within {limit_s:g} s", was_sent) from None

    async def run(self, text: str, values: tuple[Bound, ...] = (), call_s: float = 0.0) -> list[tuple[Any, ...]]:
        """One statement in a turn of its own; its rows."""
        async with self.turn(call_s) as wire:
            return await wire.run(text, values)

    def drop(self) -> None:
        """End the connection, if there is one. The next turn opens another."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.drop()

    def close(self) -> None:
        """End the connection for good."""
        self.is_closed = True
        self.drop()

    async def _open(self, limit: asyncio.Timeout) -> Wire:
        if self.is_closed:
            raise Unavailable("store.unavailable", "this store is closed.")
        if self.wire is not None and self.wire.is_idle:
            return self.wire
        self.drop()
        loop, when = asyncio.get_running_loop(), limit.when()
        assert when is not None, "every use has a bound"
        left_s = when - loop.time()
        limit.reschedule(None)
        wire = await self._dial(self.address, self._name, self._connect_s)
        limit.reschedule(loop.time() + left_s)
        try:
            await self._greet(wire)
        except BaseException:
            wire.drop()
            raise
        self.wire = wire
        return wire
