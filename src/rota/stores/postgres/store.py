"""The store that machines share: a schema in a PostgreSQL database, and sessions of its own for each kind of work.

One session holds the lock, one writes, one reads, one asks who reigns; each load and each sweep has its own, and a
coordinator that follows has one that waits to hear of a vacancy. All of them are opened when they are needed and again
after they were lost.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from rota.core.bounds import ROWS_PER_TIDY
from rota.core.errors import Refused, Unavailable
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Epoch, GraphDigest, Millis, RunId
from rota.core.model import Graph
from rota.core.records import Batch, Record, Story
from rota.ports import Candidate, CommitUnknown, Fenced, Kept, Look, StoreRefused
from rota.stores.postgres.address import Address, check_schema, session_name
from rota.stores.postgres.lock import LOCK_SHOWN, AdvisoryLock, channel
from rota.stores.postgres.reading import Tables
from rota.stores.postgres.reign import MIGRATE_S, Election, Schema
from rota.stores.postgres.routines import write_statement
from rota.stores.postgres.rows import documents
from rota.stores.postgres.schema import STEPS, Step
from rota.stores.postgres.session import CONNECT_S, Dial, Session, bounded, connect
from rota.stores.postgres.trouble import (
    CHANGED,
    UNREADABLE,
    UNSTORABLE,
    as_unavailable,
    not_written,
    refusal,
    unreadable,
)
from rota.stores.postgres.wire import Lost, Said, Wire

T = TypeVar("T")

# Longer than a database is slow for, and short enough to notice a line that has gone dead.
CALL_S = 15.0
# An election, with everybody who has to be moved out of its way.
ELECT_S = 8.0
# Looking through all of history.
SWEEP_S = 300.0
# How long a commit whose session was ended waits to learn who has taken over, and how often it looks.
_OVERTAKEN_S = 3.0
_LOOK_S = 0.02
# How long to wait before trying again to listen for a vacancy.
_LISTEN_AGAIN_S = 1.0


class PostgresStore:
    """A store in schema `schema` of the database at `url`. Nothing is opened before it is needed.

    `lock_url` leads to the same database without a pooler, if `url` goes through one. `term_ms` is how long a
    coordinator that is not heard of keeps the lock. `dial` opens connections.
    """

    def __init__(
        self,
        url: str,
        *,
        lock_url: str = "",
        lock_id: int,
        schema: str = "rota",
        term_ms: Millis = 5_000,
        steps: Sequence[Step] = STEPS,
        dial: Dial = connect,
    ) -> None:
        self.address = Address(url, "server.store")
        direct = Address(lock_url, "server.lock_url") if lock_url else self.address
        self.schema = check_schema(schema)
        self._place = Schema(schema, self.address, steps)
        self._tables = Tables(schema)
        self._dial = dial
        self.lock = AdvisoryLock(direct, schema, lock_id, term_ms, dial)
        self.writer = Session(self.address, session_name("writer", schema), CALL_S, bounded(CALL_S), dial=dial)
        self.reader = Session(self.address, session_name("reader", schema), CALL_S, dial=dial)
        # Apart from the reader: whether a commit was overtaken must not wait for a page of history.
        half_s = term_ms / 2_000
        self.watcher = Session(self.address, session_name("watcher", schema), half_s, connect_s=half_s, dial=dial)
        self.listener = Session(direct, session_name("listener", schema), CALL_S, dial=dial)
        self._write = write_statement(schema)
        self._tidy = f"SELECT {schema}.tidy($1, $2, $3)"
        self._leader = (
            f"SELECT r.name, r.grpc, r.http FROM {schema}.reign r"
            f" WHERE EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = r.pid AND {LOCK_SHOWN})"
        )
        self._rival = (
            f"SELECT r.epoch, EXISTS (SELECT 1 FROM pg_locks l WHERE {LOCK_SHOWN} AND l.pid <> $2)"
            f" FROM {schema}.reign r"
        )
        self._held = Epoch(0)
        self._election: Election | None = None
        self._identity = ""
        self._listening = asyncio.Lock()
        self._listens_on: Wire | None = None

    def __repr__(self) -> str:
        return f"PostgresStore({self.address}, schema={self.schema!r})"

    async def close(self) -> None:
        """See the port."""
        # If it cannot be given back, the lock ends with its session.
        with suppress(Refused, Unavailable):
            await self.release(self._held)
        self.drop()

    def drop(self) -> None:
        """End every session at once, as the end of the process does. What was under way fails."""
        self._held = Epoch(0)
        if self._election is not None:
            self._election.task.cancel()
            self._election = None
        for session in (self.lock.session, self.writer, self.reader, self.watcher, self.listener):
            session.close()

    # Who may write.

    async def elect(self, who: Candidate) -> Epoch | None:
        """See the port. A commit that is under way elsewhere and does not end is ended.

        An election that changes tables goes on by itself: until it is over this is `Unavailable` and says so, and
        whoever asks next has its result.
        """
        with self._plainly():
            if self._election is None:
                if not await self.lock.try_acquire():
                    return None
                self._election = Election(lambda election: self._begin_reign(who, election))
            election = self._election
            is_ours = False
            try:
                await election.settled(self.lock.session.call_s)
            finally:
                if not election.goes_on:
                    # Somebody who asked before may have had its result.
                    is_ours, self._election = self._election is election, None
            if not is_ours:
                return None
            epoch = election.task.result()
            if election.changing and not await self.lock.holds_lock():
                raise Lost("the lock was lost after the tables were changed", was_sent=False)
        self._held = epoch
        return epoch

    async def _begin_reign(self, who: Candidate, election: Election) -> Epoch:
        epoch = Epoch(0)
        try:
            epoch = await self._raise_epoch(who, election)
        finally:
            if not epoch:
                await self._give_up()
        return epoch

    async def _raise_epoch(self, who: Candidate, election: Election) -> Epoch:
        if self.lock.session.address is not self.address:
            await self.identity()
        async with self.lock.held(MIGRATE_S) as wire, election.limited(ELECT_S):
            if not self._identity:
                self._identity = await self._meet(wire)
            elif await self._place.identity(wire) != self._identity:
                raise self._elsewhere()
            return await self._place.begin_reign(wire, who, self.lock.lock_id, election)

    async def _meet(self, wire: Wire) -> str:
        await self._place.prepare(wire)
        return await self._place.identity(wire)

    async def _give_up(self) -> None:
        # If it cannot be given back, it has ended with its session.
        with suppress(Said, Lost, Refused, Unavailable):
            await self.lock.release()

    def _elsewhere(self) -> Refused:
        text = f"what is kept at {self.lock.session.address} is not what this coordinator met at {self.address} before."
        hint = "Let server.lock_url lead to the database of server.store; if that was replaced, start anew."
        return Refused("store.missing", text, hint)

    async def holds(self, epoch: Epoch) -> bool:
        """See the port."""
        if epoch <= 0 or self._held != epoch:
            return False
        with self._plainly():
            return await self.lock.holds_lock()

    async def release(self, epoch: Epoch) -> None:
        """See the port. Does not wait for a commit that is under way: only the epoch decides what becomes of it."""
        if epoch > 0 and self._held == epoch:
            self._held = Epoch(0)
            with self._plainly():
                await self.lock.release()

    async def look(self) -> Look:
        """See the port."""
        with self._plainly():
            async with self.watcher.turn(CALL_S) as wire:
                identity, epoch = await self._place.look(wire)
                ((version,),) = await wire.run("SHOW server_version")
        # Debian adds its own version in parentheses.
        server = f"PostgreSQL {version.partition(' ')[0]}"
        leader = await self.leader() if identity else None
        return Look(server=server, identity=identity, epoch=epoch, leader=leader)

    async def identity(self) -> str:
        """See the port."""
        if not self._identity:
            with self._plainly():
                async with self.watcher.turn(CALL_S) as wire:
                    self._identity = await self._meet(wire)
        return self._identity

    async def leader(self) -> Candidate | None:
        """See the port."""
        await self.identity()
        with self._plainly():
            for name, grpc, http in await self.watcher.run(self._leader, (self.lock.lock_id,)):
                return Candidate(name, grpc, http)
        return None

    async def vacancy(self) -> None:
        """See the port. Trouble is waited out: a hint that does not come is no error.

        The session stays for the next call, and ends if this one is cancelled: whoever leads waits for no vacancy.
        """
        async with self._listening:
            while True:
                try:
                    wire = self._listens_on
                    if wire is None or wire is not self.listener.wire:
                        async with self.listener.turn() as wire:
                            await wire.run(f"LISTEN {channel(self.schema)}")
                        self._listens_on = wire
                    await wire.notified()
                    return
                except (Said, Lost, Refused, Unavailable):
                    self.listener.drop()
                    if self.listener.is_closed:
                        raise
                except BaseException:
                    self.listener.drop()
                    raise
                await asyncio.sleep(_LISTEN_AGAIN_S)

    # Writing.

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        """See the port."""
        try:
            given = documents(batch)
        except UNSTORABLE as error:
            raise StoreRefused(f"{type(error).__name__}: {error}") from error
        try:
            await self.identity()
            async with self.writer.turn() as wire:
                await wire.run(self._write, (epoch, *given))
        except Refused as error:
            raise as_unavailable(error) from error
        except Unavailable:
            await self._check_overtaken(epoch)
            raise
        except Said as error:
            # With an error nothing was written, also if it was the session's last word.
            if error.is_fatal or error.sqlstate in CHANGED:
                await self._check_overtaken(epoch)
            raise not_written(error, self.address) from error
        except Lost as error:
            if error.was_sent:
                raise CommitUnknown(str(error)) from error
            await self._check_overtaken(epoch)
            raise refusal(error, self.address) from error

    async def _check_overtaken(self, epoch: Epoch) -> None:
        """Raise `Fenced` if another coordinator has taken over, or is about to: it ends sessions that are in its way.

        Waits for the epoch to say so as long as another one holds the lock.
        """
        give_up_at = asyncio.get_running_loop().time() + _OVERTAKEN_S
        try:
            while True:
                rows = await self.watcher.run(self._rival, (self.lock.lock_id, self.lock.pid))
                ((reigns, has_rival),) = rows
                if reigns != epoch:
                    raise Fenced(f"epoch {epoch} has passed; {reigns} reigns")
                if not has_rival or asyncio.get_running_loop().time() > give_up_at:
                    return
                await asyncio.sleep(_LOOK_S)
        except (Said, Lost, Refused, Unavailable):
            return

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """See the port."""
        await self.identity()
        with self._plainly():
            ((rows,),) = await self.writer.run(self._tidy, (epoch, now - keep_ms, ROWS_PER_TIDY))
        return int(rows)

    # Reading.

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        """See the port."""
        await self.identity()
        with self._plainly():
            wire = await self._within(self._dial(self.address, session_name("loader", self.schema), CONNECT_S))
        try:
            with self._plainly():
                await self._within(self._tables.begin(wire, CALL_S))
            chunks = self._tables.live(wire, epoch)
            while (records := await self._some(chunks)) is not None:
                for record in records:
                    yield record
        finally:
            wire.drop()

    async def _some(self, chunks: AsyncIterator[list[Record]]) -> list[Record] | None:
        with self._plainly():
            try:
                return await self._within(anext(chunks, None))
            except UNREADABLE as error:
                raise unreadable(error, self.address) from error

    async def _within(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(CALL_S):
                return await work
        except TimeoutError:
            raise Lost(f"no answer within {CALL_S:g} s", was_sent=False) from None

    async def history(self, query: HistoryQuery) -> Page:
        """See the port."""
        return await self._read(lambda wire: self._tables.page(wire, query))

    async def ended(self, tenant: str, run: RunId, created_at: Millis = 0) -> Ended | None:
        """See the port."""
        return await self._read(lambda wire: self._tables.ended(wire, tenant, run, created_at))

    async def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """See the port."""
        return await self._read(lambda wire: self._tables.graph(wire, tenant, digest))

    async def stories(self, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """See the port."""
        return await self._read(lambda wire: self._tables.stories(wire, tenant, run, created_at))

    async def audits(self, query: ListAudits) -> AuditsPage:
        """See the port."""
        return await self._read(lambda wire: self._tables.audits(wire, query))

    async def kept(self) -> Kept:
        """See the port. Nobody else's reading waits for it."""
        session = Session(self.address, session_name("sweeper", self.schema), SWEEP_S, dial=self._dial)
        try:
            return await self._read(self._tables.kept, session)
        finally:
            session.close()

    async def _read(self, work: Callable[[Wire], Awaitable[T]], session: Session | None = None) -> T:
        await self.identity()
        with self._plainly():
            session = session or self.reader
            async with session.turn() as wire:
                await self._tables.begin(wire, session.call_s)
                try:
                    return await work(wire)
                except UNREADABLE as error:
                    raise unreadable(error, self.address) from error
                finally:
                    if wire.is_in_transaction:
                        await self._tables.end(wire)

    @contextmanager
    def _plainly(self) -> Generator[None, None, None]:
        """What the database or the line to it says, in our words. Nothing was written."""
        try:
            yield
        except (Said, Lost) as error:
            raise refusal(error, self.address) from error
