"""Making the schema, and beginning a reign in it.

A schema that is empty is made by whoever comes first. One that is there is changed only by who holds the lock, in the
very transaction that raises the epoch: a coordinator that led before works with the tables it knows until then, and
cannot write from then on.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rota.core.errors import Refused, Unavailable
from rota.core.ids import EPOCH_MAX, Epoch
from rota.ports import Candidate
from rota.stores.postgres.address import OURS, Address, session_name
from rota.stores.postgres.routines import digest_of, routines
from rota.stores.postgres.schema import STEPS, Step
from rota.stores.postgres.trouble import LOCK_NOT_AVAILABLE, UNDEFINED_COLUMN
from rota.stores.postgres.wire import Lost, Said, Wire

# How often an election asks sessions that are in its way to end, and tries again.
_TRIES = 5
_MIGRATION_LOCK_MS = 5_000
MIGRATE_S = 600.0
_COMMENT = "Rota: runs, tasks and their history. For people: the views runs, tasks and failures."
# Asked of the catalogue: a name that was looked up before may still be remembered as unknown.
_IS_THERE = (
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'meta'"
)
# Only a commit or housekeeping of ours holds this lock, until its transaction ends.
_IN_THE_WAY = (
    "SELECT DISTINCT a.pid, a.application_name, a.usename::text,"
    " a.usename = current_user AND starts_with(a.application_name, $2)"
    " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'relation' AND l.relation = $1::regclass AND l.granted AND l.pid <> pg_backend_pid()"
    " AND l.mode <> 'AccessShareLock' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
# By which number the session of a leader holds a lock, if it is not this one: two halves, as `LOCK_SHOWN` has them.
_OTHER_LOCK = (
    "SELECT l.classid::bigint << 32 | l.objid::bigint FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.pid = $1 AND a.application_name = $2 AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND (l.classid::bigint << 32 | l.objid::bigint) <> $3"
)


class Election:
    """The beginning of a reign. It goes on by itself if it has tables to change, which may take longer than a term."""

    def __init__(self, begin: Callable[["Election"], Coroutine[Any, Any, Epoch]]) -> None:
        self.task = asyncio.get_running_loop().create_task(begin(self))
        self.changing = ""
        self._changes = asyncio.Event()
        self._limit: asyncio.Timeout | None = None
        self._began_at = asyncio.get_running_loop().time()

    @property
    def goes_on(self) -> bool:
        """Whether it is changing tables, and has not come to its end."""
        return bool(self.changing) and not self.task.done()

    @asynccontextmanager
    async def limited(self, limit_s: float) -> AsyncGenerator[None]:
        """For so long, or as long as a change of the tables may take. Raises `Lost`."""
        try:
            async with asyncio.timeout(limit_s) as self._limit:
                yield
        except TimeoutError:
            raise Lost("the election took too long", was_sent=False) from None

    def change(self, text: str) -> None:
        """There are tables to change; `text` says which, and to what."""
        assert self._limit is not None, "an election is limited"
        self._limit.reschedule(asyncio.get_running_loop().time() + MIGRATE_S)
        self.changing = text
        self._changes.set()

    async def settled(self, patience_s: float) -> None:
        """Wait until it is over; if it changes tables, only for so long.

        Raises `Unavailable` if that was too short. Whoever is cancelled ends an election that changes nothing.
        """
        changes = asyncio.ensure_future(self._changes.wait())
        try:
            await asyncio.wait([self.task, changes], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([self.task], timeout=patience_s)
        except asyncio.CancelledError:
            if not self.changing:
                self.task.cancel()
                await asyncio.gather(self.task, return_exceptions=True)
            raise
        finally:
            changes.cancel()
        if not self.task.done():
            so_far_s = asyncio.get_running_loop().time() - self._began_at
            raise Unavailable("store.unavailable", f"{self.changing}, for {so_far_s:.0f} s by now; nobody leads yet.")


class Schema:
    """Rota's schema in a database."""

    def __init__(self, name: str, address: Address, steps: Sequence[Step] = STEPS) -> None:
        self.name = name
        self._address = address
        self._steps = steps
        self._routines = routines(name)
        self._digest = digest_of(self._routines)

    @property
    def _latest(self) -> int:
        return self._steps[-1].number

    # Making it.

    async def prepare(self, wire: Wire) -> None:
        """Make the schema if it is not there, or refuse one that this program does not know."""
        if await self._version(wire):
            return
        await wire.script(f"BEGIN; SET LOCAL lock_timeout = {_MIGRATION_LOCK_MS}")
        # Several machines are started together. Not the lock of elections: nobody reigns by making tables.
        await wire.run("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"rota:make:{self.name}",))
        if not await self._version(wire):
            if not await wire.run("SELECT 1 FROM pg_namespace WHERE nspname = $1", (self.name,)):
                await wire.run(f"CREATE SCHEMA {self.name}")
                await wire.run(f"COMMENT ON SCHEMA {self.name} IS '{_COMMENT}'")
            await self._migrate(wire, 0)
        await wire.run("COMMIT")

    async def look(self, wire: Wire) -> tuple[str, Epoch]:
        """The schema's name and epoch; empty if there is none."""
        if not await self._version(wire):
            return "", Epoch(0)
        rows = await wire.run(f"SELECT epoch FROM {self.name}.reign")
        return await self.identity(wire), Epoch(rows[0][0] if rows else 0)

    async def identity(self, wire: Wire) -> str:
        """The name that the schema was given when it was made."""
        ((identity,),) = await wire.run(f"SELECT value FROM {self.name}.meta WHERE name = 'identity'")
        return identity

    async def _version(self, wire: Wire) -> int:
        """The version of what is there, 0 if nothing is."""
        if not await wire.run(_IS_THERE, (self.name,)):
            return 0
        try:
            rows = await wire.run(f"SELECT value FROM {self.name}.meta WHERE name = 'version'")
        except Said as error:
            if error.sqlstate != UNDEFINED_COLUMN:
                raise
            rows = []
        if len(rows) != 1 or not str(rows[0][0]).isdigit() or not (version := int(rows[0][0])):
            text = f"the table {self.name}.meta at {self._address} is not Rota's, or was damaged."
            raise Refused("store.foreign", text, "Name another database, or restore a backup.")
        if version > self._latest:
            raise Refused(
                "store.newer",
                f"schema {self.name} of {self._address} has version {version}, and this Rota knows up to"
                f" {self._latest}.",
                "Use the newer Rota, or restore a backup that this one made.",
            )
        return version

    async def _migrate(self, wire: Wire, version: int) -> None:
        """Take the tables to the latest version, and make the routines those of this program."""
        drops = [text for text in self._routines if text.startswith("DROP")]
        makes = [text for text in self._routines if not text.startswith("DROP")]
        steps = [text for step in self._steps if step.number > version for text in step.statements]
        # Routines and views may depend on what a step changes.
        await wire.script(";\n".join([f"SET LOCAL search_path = {self.name}", *drops, *steps, *makes]))
        for name, value in (("version", str(self._latest)), ("routines", self._digest)):
            await wire.run("UPDATE meta SET value = $2 WHERE name = $1", (name, value))

    # Reigning in it.

    async def begin_reign(self, wire: Wire, who: Candidate, lock_id: int, election: Election) -> Epoch:
        """Raise the epoch, in the session that holds the lock. Raises `Unavailable` if somebody is in the way.

        It says so to `election` if there are tables to change. Whoever reigns by a lock of another number is
        not overthrown: the two would depose each other without end.

        A commit of a coordinator that led before may be under way, and stopped anywhere. It holds the row, neither
        time limit of the server's ends it (nobody is idle, no statement is running), and whoever holds the lock may
        end it: it is told, and learns that it was overtaken.
        """
        await self._version(wire)
        strangers = ""
        for _ in range(_TRIES):
            try:
                return await self._raise_epoch(wire, who, lock_id, election)
            except Said as error:
                if error.sqlstate != LOCK_NOT_AVAILABLE:
                    raise
                await wire.run("ROLLBACK")
            strangers = await self._clear_the_way(wire)
        text = f"{self._address}: the epoch is held by {strangers or 'sessions that do not end'}."
        raise Unavailable("store.unavailable", text)

    async def _raise_epoch(self, wire: Wire, who: Candidate, lock_id: int, election: Election) -> Epoch:
        await wire.run("BEGIN")
        rows = await wire.run(f"SELECT pid FROM {self.name}.reign FOR UPDATE")
        if not rows:
            await wire.run("ROLLBACK")
            text = f"the table {self.name}.reign at {self._address} is empty, and with it the epoch is lost."
            raise Refused("store.corrupt", text, "Restore a backup.")
        ((pid,),) = rows
        for (other,) in await wire.run(_OTHER_LOCK, (pid, session_name("lock", self.name), lock_id)):
            await wire.run("ROLLBACK")
            raise Refused(
                "config.value",
                f"whoever leads at {self._address} (pid {pid}) holds the lock {other:#x}, and this coordinator is set"
                f" to {lock_id:#x}.",
                "Give all coordinators of a database the same server.lock_id.",
                path="server.lock_id",
            )
        ((epoch,),) = await wire.run(
            f"UPDATE {self.name}.reign SET epoch = epoch + 1, pid = pg_backend_pid(), name = $1, grpc = $2,"
            " http = $3, since = now() RETURNING epoch",
            (who.name, who.grpc, who.http),
        )
        assert epoch <= EPOCH_MAX, "eight million elections"
        version = await self._version(wire)
        ((digest,),) = await wire.run(f"SELECT value FROM {self.name}.meta WHERE name = 'routines'")
        if version < self._latest or digest != self._digest:
            election.change(f"the tables of {self._address} are being brought to version {self._latest}")
            await wire.script(f"SET LOCAL lock_timeout = {_MIGRATION_LOCK_MS}")
            await self._migrate(wire, version)
        await wire.run("COMMIT")
        return epoch

    async def _clear_the_way(self, wire: Wire) -> str:
        """End our own sessions that hold the epoch's row; who else holds it, in words."""
        strangers: list[str] = []
        for pid, name, user, is_ours in await wire.run(_IN_THE_WAY, (f"{self.name}.reign", OURS)):
            if is_ours:
                await wire.run("SELECT pg_terminate_backend($1)", (pid,))
            else:
                strangers.append(f"{name or 'a session'!r} (pid {pid}, user {user!r})")
        return ", ".join(strangers)
