"""Connections to the shared server that are used again, by whoever asks for one of the same name.

A connection that is dropped is put aside, as new as it can be made: outside a transaction and without locks. One on
which something is under way, or that leads elsewhere, is closed as ever.
"""

import atexit

from psycopg import pq

from rota.stores.postgres.address import Address
from rota.stores.postgres.session import connect
from rota.stores.postgres.wire import Wire
from tests.servers.postgres import shared_server

_ASIDE: dict[str, list["KeptWire"]] = {}
_AS_NEW = b"ROLLBACK; SELECT pg_advisory_unlock_all(); UNLISTEN *"


class KeptWire(Wire):
    """A connection that is put aside instead of being closed."""

    name = ""

    def drop(self) -> None:
        """Put it aside, if nothing is under way on it."""
        if not self.name or self._end is not None or not self._is_as_new():
            self.end()
        else:
            _ASIDE.setdefault(self.name, []).append(self)
            self.name = ""

    def _is_as_new(self) -> bool:
        if self._is_readable or self._pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            return False
        done = self._pgconn.exec_(_AS_NEW)
        return done.status == pq.ExecStatus.COMMAND_OK and self.is_idle

    def end(self) -> None:
        """Close it."""
        super().drop()


async def dial(address: Address, name: str, connect_s: float) -> Wire:
    """A connection that was put aside, or a new one."""
    if str(address) != str(Address(shared_server().url(), "the shared server")):
        return await connect(address, name, connect_s)
    aside = _ASIDE.setdefault(name, [])
    while aside:
        wire = aside.pop()
        if wire.is_idle:
            wire.name = name
            return wire
        wire.end()
    wire = KeptWire((await connect(address, name, connect_s))._connection)
    wire.name = name
    return wire


@atexit.register
def _end_all() -> None:
    for wires in _ASIDE.values():
        for wire in wires:
            wire.end()
