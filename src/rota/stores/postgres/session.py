"""A session that is opened when it is needed, and again after it was lost."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from rota.core.errors import Refused, Unavailable
from rota.stores.postgres.address import Address
from rota.stores.postgres.trouble import not_connected
from rota.stores.postgres.wire import Bound, Lost, Said, Wire

CONNECT_S = 5.0
# `idle_session_timeout`, which frees the lock of a coordinator that has vanished, came with this one.
VERSION_MIN = 14

Greeting = Callable[[Wire], Awaitable[None]]


async def no_greeting(wire: Wire) -> None:
    """Nothing to settle when the session is opened."""


class Session:
    """One connection at a time, and one user of it at a time. Every use has a bound."""

    def __init__(self, address: Address, name: str, call_s: float, greet: Greeting = no_greeting) -> None:
        self.address = address
        self._name = name
        self.call_s = call_s
        self._greet = greet
        self._free = asyncio.Lock()
        self.is_closed = False
        self.wire: Wire | None = None

    @asynccontextmanager
    async def turn(self, call_s: float = 0.0) -> AsyncGenerator[Wire]:
        """The connection for oneself, open, for so long.

        It is dropped if what is done with it fails in any way but an orderly refusal outside a transaction. Raises
        `Said` or `Lost` of what is done, `Refused` or `Unavailable` if there is no connection to be had.
        """
        wire: Wire | None = None
        limit_s = call_s or self.call_s
        try:
            async with asyncio.timeout(limit_s), self._free:
                wire = await self._open()
                try:
                    yield wire
                except BaseException as error:
                    if not (isinstance(error, Said) and not error.is_fatal and wire.is_idle):
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

    async def _open(self) -> Wire:
        if self.is_closed:
            raise Unavailable("store.unavailable", "this store is closed.")
        if self.wire is not None and self.wire.is_idle:
            return self.wire
        self.drop()
        wire = await connect(self.address, self._name)
        try:
            await self._greet(wire)
        except BaseException:
            wire.drop()
            raise
        self.wire = wire
        return wire


async def connect(address: Address, name: str) -> Wire:
    """Open a connection, and look at who answers. Raises `Refused` or `Unavailable`."""
    params = {"connect_timeout": f"{CONNECT_S:g}", **address.params}
    params |= {"application_name": name, "client_encoding": "UTF8"}
    try:
        connection = await psycopg.AsyncConnection.connect(make_conninfo(**params), autocommit=True)
    except (psycopg.Error, OSError) as error:
        raise not_connected(str(error), address) from None
    wire = Wire(connection)
    try:
        _check(wire, address)
    except BaseException:
        wire.drop()
        raise
    return wire


def _check(wire: Wire, address: Address) -> None:
    version = wire.server_version // 10_000
    if version < VERSION_MIN:
        text = f"{address} is PostgreSQL {version}, and Rota needs {VERSION_MIN} or newer."
        raise Refused("store.engine", text, "Upgrade the server, or name another.")
    if wire.encoding != "UTF8":
        text = f"{address} stores text as {wire.encoding}, which cannot hold every name."
        raise Refused("store.engine", text, "Create a database with ENCODING 'UTF8' and name that.")
