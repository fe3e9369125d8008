"""Making the schema, and beginning a reign in it.

A schema that is empty is made by whoever comes first. One that is there is changed only by who holds the lock, in the
very transaction that raises the epoch: a coordinator that led before works with the tables it knows until then, and
cannot write from then on.
"""

import asyncio
from collections.abc import Sequence

from rota.core.errors import Refused, Unavailable
from rota.core.ids import EPOCH_MAX, Epoch
from rota.ports import Candidate
from rota.stores.postgres.address import OURS, Address
from rota.stores.postgres.routines import digest_of, routines
from rota.stores.postgres.schema import STEPS, Step
from rota.stores.postgres.trouble import LOCK_NOT_AVAILABLE
from rota.stores.postgres.wire import Said, Wire

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
        await wire.run("BEGIN")
        # Several machines are started together. Not the lock of elections: nobody reigns by making tables.
        await wire.run("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", (f"rota:make:{self.name}",))
        if not await self._version(wire):
            if not await wire.run("SELECT 1 FROM pg_namespace WHERE nspname = $1", (self.name,)):
                await wire.run(f"CREATE SCHEMA {self.name}")
                await wire.run(f"COMMENT ON SCHEMA {self.name} IS '{_COMMENT}'")
            await self._migrate(wire, 0)
        await wire.run("COMMIT")

    async def identity(self, wire: Wire) -> str:
        """The name that the schema was given when it was made."""
        ((identity,),) = await wire.run(f"SELECT value FROM {self.name}.meta WHERE name = 'identity'")
        return identity

    async def _version(self, wire: Wire) -> int:
        """The version of what is there, 0 if nothing is."""
        if not await wire.run(_IS_THERE, (self.name,)):
            return 0
        ((text,),) = await wire.run(f"SELECT value FROM {self.name}.meta WHERE name = 'version'")
        version = int(text)
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

    async def begin_reign(self, wire: Wire, who: Candidate, limit: asyncio.Timeout) -> Epoch:
        """Raise the epoch, in the session that holds the lock. Raises `Unavailable` if somebody is in the way.

        The limit is put off if there are tables to change.

        A commit of a coordinator that led before may be under way, and stopped anywhere. It holds the row, neither
        time limit of the server's ends it (nobody is idle, no statement is running), and whoever holds the lock may
        end it: it is told, and learns that it was overtaken.
        """
        strangers = ""
        for _ in range(_TRIES):
            try:
                return await self._raise_epoch(wire, who, limit)
            except Said as error:
                if error.sqlstate != LOCK_NOT_AVAILABLE:
                    raise
                await wire.run("ROLLBACK")
            strangers = await self._clear_the_way(wire)
        text = f"{self._address}: the epoch is held by {strangers or 'sessions that do not end'}."
        raise Unavailable("store.unavailable", text)

    async def _raise_epoch(self, wire: Wire, who: Candidate, limit: asyncio.Timeout) -> Epoch:
        await wire.run("BEGIN")
        ((epoch,),) = await wire.run(
            f"UPDATE {self.name}.reign SET epoch = epoch + 1, pid = pg_backend_pid(), name = $1, grpc = $2,"
            " http = $3, since = now() RETURNING epoch",
            (who.name, who.grpc, who.http),
        )
        assert epoch <= EPOCH_MAX, "eight million elections"
        version = await self._version(wire)
        ((digest,),) = await wire.run(f"SELECT value FROM {self.name}.meta WHERE name = 'routines'")
        if version < self._latest or digest != self._digest:
            limit.reschedule(asyncio.get_running_loop().time() + MIGRATE_S)
            await wire.run("SELECT set_config('lock_timeout', $1, true)", (str(_MIGRATION_LOCK_MS),))
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
