"""The lock that makes one coordinator the writer: an advisory lock, and at the same time a lease.

PostgreSQL gives it to a session and takes it back when the session ends, whatever it ends of. The session is told to
end itself when its holder has said nothing for a term (`idle_session_timeout`). So a coordinator that was stopped,
cut off or lost with its host loses the lock by the server's clock, and one that asks whether it holds it every quarter
of a term keeps it. The lock says nothing about who may write: the epoch does.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.stores.postgres.address import OURS, Address, session_name
from rota.stores.postgres.session import Dial, Session, connect
from rota.stores.postgres.trouble import read_only
from rota.stores.postgres.wire import Lost, Wire

# How long a statement of the lock's session waits for somebody else's lock.
LOCK_TIMEOUT_MS: Millis = 300

# An advisory lock as `pg_locks` shows it: the number's upper half, its lower half, and 1 for "one number of 64 bits".
LOCK_SHOWN = (
    "l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.classid = (($1::bigint >> 32) & 4294967295)::oid AND l.objid = ($1::bigint & 4294967295)::oid"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_TAKE = "SELECT pg_try_advisory_lock($1)"
_IS_OURS = f"SELECT count(*) FROM pg_locks l WHERE {LOCK_SHOWN} AND l.pid = pg_backend_pid()"
_FREE = "SELECT pg_advisory_unlock($1), pg_notify($2, '')"
# A session that is in the first and not in the second has just ended.
_HOLDER = (
    "SELECT l.pid, a.application_name, a.usename::text"
    f" FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE {LOCK_SHOWN}"
)
_SETTLE = (
    "SELECT pg_backend_pid(), pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean,"
    " set_config('idle_session_timeout', $1, false), set_config('idle_in_transaction_session_timeout', $1, false),"
    " set_config('lock_timeout', $2, false), set_config('synchronous_commit', 'on', false)"
)


class AdvisoryLock:
    """One coordinator's side of the lock, on a session that is used for nothing else but elections."""

    def __init__(
        self, address: Address, schema: str, lock_id: int, term_ms: Millis = 5_000, dial: Dial = connect
    ) -> None:
        self.lock_id = _signed(lock_id)
        self._schema = schema
        self._term_ms = term_ms
        # An election is waited for as long as a term: half of it is for connecting, and half for being answered.
        half_s = term_ms / 2_000
        self.session = Session(address, session_name("lock", schema), half_s, self._settle, half_s, dial)
        self._held_by: Wire | None = None

    async def try_acquire(self) -> bool:
        """Take the lock if it is free. A lock that is held is held against everybody, its holder included.

        Raises `store.lock_taken` if it is another program that holds it.
        """
        async with self.session.turn() as wire:
            if self._held_by is wire and await self._is_ours(wire):
                return False
            self._held_by = None
            ((taken,),) = await wire.run(_TAKE, (self.lock_id,))
            if taken:
                if not await self._is_ours(wire):
                    raise _pooled(self.session.address)
                self._held_by = wire
                return True
            self._check_holders(await wire.run(_HOLDER, (self.lock_id,)))
        return False

    async def holds_lock(self) -> bool:
        """Whether this very session still holds the lock. An error says so too, and is raised.

        The answer counts for a term from the question, and is waited for as long: whoever gave up sooner would end
        the session, and with it a lock that a slow server still keeps for it.
        """
        wire = self._held_by
        if wire is None or wire is not self.session.wire:
            return False
        async with self.session.turn(self._term_ms / 1_000) as current:
            # A session that was opened anew holds nothing.
            if current is wire and await self._is_ours(wire):
                return True
        self._held_by = None
        return False

    async def release(self) -> None:
        """Give the lock back, if it is held, and say so to those who wait for it.

        If that takes long, the session ends, and a question that is still open on it with it.
        """
        wire, self._held_by = self._held_by, None
        if wire is None or wire is not self.session.wire:
            return
        try:
            async with self.session.turn(self._term_ms / 4_000) as current:
                if current is wire:
                    await wire.run(_FREE, (self.lock_id, channel(self._schema)))
        except BaseException:
            # It ends with the session, if it is still there.
            self.session.drop()
            raise

    @asynccontextmanager
    async def held(self, call_s: float) -> AsyncGenerator[Wire]:
        """The session that holds the lock, for what only its holder does. Raises `Lost` if that has ended."""
        async with self.session.turn(call_s) as wire:
            if wire is not self._held_by:
                raise Lost(f"{self.session.address}: the session that held the lock has ended", was_sent=False)
            yield wire

    @property
    def pid(self) -> int:
        """The server's process that holds the lock for this coordinator, as far as it knows; 0 for none."""
        return self._held_by.pid if self._held_by is not None else 0

    async def _is_ours(self, wire: Wire) -> bool:
        return await wire.run(_IS_OURS, (self.lock_id,)) == [(1,)]

    async def _settle(self, wire: Wire) -> None:
        ((pid, is_read_only, *_),) = await wire.run(_SETTLE, (str(self._term_ms), str(LOCK_TIMEOUT_MS)))
        if pid != wire.pid:
            raise _pooled(self.session.address)
        if is_read_only:
            raise read_only(self.session.address)

    def _check_holders(self, holders: list[tuple[int, str, str]]) -> None:
        own = session_name("lock", self._schema)
        for pid, name, user in holders:
            if name == own:
                continue
            whose = "of another Rota" if name.startswith(OURS) else "of another program"
            raise Refused(
                "store.lock_taken",
                f"the lock {self.lock_id:#x} on {self.session.address} belongs to a session {whose}:"
                f" {name or 'unnamed'!r}, pid {pid}, user {user!r}.",
                "Stop that program, or choose another number with server.lock_id, the same for every coordinator.",
            )


def channel(schema: str) -> str:
    """Where a coordinator that gives up the lock says so."""
    return f"rota_vacancy_{schema}"


def _signed(number: int) -> int:
    """A 64-bit number as PostgreSQL counts."""
    if not -(1 << 63) <= number < 1 << 64:
        raise Refused("config.value", f"{number} does not fit 64 bits.", "Choose a smaller number.", path="lock_id")
    return number - (1 << 64) if number >= 1 << 63 else number


def _pooled(address: Address) -> Refused:
    return Refused(
        "config.value",
        f"{address} is a pooler, or behind one: the lock needs a session of its own, from beginning to end.",
        "Name the server itself with server.lock_url; everything else may go on through the pooler.",
        path="server.lock_url",
    )
