"""The Store port on etcd: a log of commits there, snapshots and history in the blobs.

Docs: decisions/0011-etcd-store.md. What is live is small and must be agreed on, so it goes through etcd; what has ended
is large and never changes, so it does not.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TypeVar

import msgspec

from rota.config import ClientTls
from rota.core.errors import Refused, Unavailable
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Epoch, GraphDigest, Millis, RunId
from rota.core.model import Graph
from rota.core.records import Batch, Record, Story
from rota.ports import BlobLost, Blobs, Candidate, Fenced, Kept, Look
from rota.stores.etcd.address import read_url
from rota.stores.etcd.client import Client
from rota.stores.etcd.election import Election
from rota.stores.etcd.entries import Revived, entry_of
from rota.stores.etcd.failures import corrupt
from rota.stores.etcd.history import History
from rota.stores.etcd.keys import Keys
from rota.stores.etcd.log import Log, Reign
from rota.stores.etcd.mirror import Mirror, StoryKey
from rota.stores.etcd.opening import look, open_store
from rota.stores.etcd.replica import Replica
from rota.stores.etcd.rows import read_row
from rota.stores.etcd.tidying import Bounds, Tidier

T = TypeVar("T")

TERM_MS = 5_000
# How often a reader begins again because a checkpoint has removed what it was about to read.
_TRIES = 5


class EtcdStore:
    """The store of many machines, on an etcd and a place for blobs that all of them reach.

    Raises `Refused` if the address cannot be meant. Nothing is asked before the first call.
    """

    def __init__(
        self,
        url: str,
        blobs: Blobs,
        *,
        term_ms: Millis = TERM_MS,
        tls: ClientTls | None = None,
        bounds: Bounds | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """`warn` is told what an administrator of etcd should look after, before it becomes trouble."""
        address = read_url(url, tls)
        keys = Keys(address.prefix)
        self.client = Client(address, timeout_s=term_ms / 1_000)
        self.blobs = blobs
        self._keys = keys
        self._log = Log(self.client, keys, timeout_s=term_ms / 1_000)
        self._election = Election(self.client, keys, term_ms)
        self._replica = Replica(self.client, keys, blobs)
        self._history = History(blobs)
        self._tidier = Tidier(
            self.client, keys, blobs, self._log, self._replica, self._history, bounds or Bounds(), warn
        )
        self._identity = ""
        self._opening = asyncio.Lock()
        self._reign: Reign | None = None
        self._writing = asyncio.Lock()
        self._tidying = asyncio.Lock()

    # What machines share.

    async def look(self) -> Look:
        """See the port."""
        found = await look(self.client, self._keys)
        server = f"etcd {(await self.client.status()).version}"
        if found is None:
            return Look(server=server)
        return Look(server=server, identity=found.identity, epoch=found.epoch, leader=await self.leader())

    async def identity(self) -> str:
        """See the port."""
        async with self._opening:
            if not self._identity:
                self._identity = await open_store(self.client, self._keys, self.blobs)
        return self._identity

    async def leader(self) -> Candidate | None:
        """See the port."""
        return await self._election.leader()

    async def vacancy(self) -> None:
        """See the port."""
        await self._election.vacancy()

    async def close(self) -> None:
        """See the port."""
        reign, self._reign = self._reign, None
        try:
            if reign is not None:
                # If nobody can be told, the lease ends by itself.
                with suppress(Refused, Unavailable):
                    await self._election.release(reign)
        finally:
            await self.client.close()

    # Who may write.

    async def elect(self, who: Candidate) -> Epoch | None:
        """See the port."""
        reign = await self._election.stand(who, await self.identity())
        if reign is None:
            return None
        self._reign = reign
        self._replica.forget()
        return reign.epoch

    async def holds(self, epoch: Epoch) -> bool:
        """See the port."""
        reign = self._reign
        return reign is not None and reign.epoch == epoch and await self._election.holds(reign)

    async def release(self, epoch: Epoch) -> None:
        """See the port. The epoch stands until another is elected: only it decides what becomes of a commit."""
        if self._reign is not None and self._reign.epoch == epoch:
            await self._election.release(self._reign)

    def _reign_of(self, epoch: Epoch) -> Reign:
        if self._reign is None or self._reign.epoch != epoch:
            raise Fenced(f"epoch {epoch} was not given to this coordinator, or has passed")
        return self._reign

    # Live records.

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        """See the port."""
        reign = self._reign_of(epoch)
        async with self._writing:
            if not reign.head.is_certain:
                await self._log.renew(reign, reign.head)
            self._replica.forget()
            standing, mirror = await self._replica.current()
            if standing.epoch != epoch:
                raise Fenced(f"epoch {epoch} has passed; {standing.epoch} reigns")
            rows = mirror.rows()
        for row in rows:
            try:
                yield read_row(row)
            except (msgspec.MsgspecError, ValueError) as error:
                raise corrupt(f"a record of the snapshot is damaged: {error}") from error

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        """See the port."""
        entry = entry_of(batch)
        reign = self._reign_of(epoch)
        async with self._writing:
            if batch.revives:
                entry.revives = await self._leave_history(batch.revives)
            number, size = await self._log.append(reign, entry)
            self._replica.mirror.apply(number, entry, size)

    async def _leave_history(self, runs: Sequence[StoryKey]) -> list[Revived]:
        try:
            return await self._ask(lambda mirror: self._history.leave(mirror, runs))
        except Refused as refused:
            # Whatever keeps us from reading is no fault of the batch.
            raise Unavailable(refused.code, f"{refused.reason}. {refused.hint}") from refused

    # The past.

    async def history(self, query: HistoryQuery) -> Page:
        """See the port."""
        return await self._ask(lambda mirror: self._history.page(mirror, query))

    async def ended(self, tenant: str, run: RunId, created_at: Millis = 0) -> Ended | None:
        """See the port."""
        return await self._ask(lambda mirror: self._history.ended(mirror, tenant, run, created_at))

    async def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """See the port."""
        return await self._ask(lambda mirror: self._history.graph(mirror, tenant, digest))

    async def stories(self, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """See the port."""
        return await self._ask(lambda mirror: self._history.stories(mirror, tenant, run, created_at))

    async def audits(self, query: ListAudits) -> AuditsPage:
        """See the port."""
        return await self._ask(lambda mirror: self._history.audits(mirror, query))

    async def kept(self) -> Kept:
        """See the port."""
        return await self._ask(self._history.kept)

    async def _ask(self, answer: Callable[[Mirror], Awaitable[T]]) -> T:
        await self.identity()
        for turn in count(1):
            standing, mirror = await self._replica.current()
            try:
                return await answer(mirror)
            except BlobLost as lost:
                # A checkpoint came in between, ours or another writer's: then there is another place to look.
                if turn == _TRIES:
                    raise corrupt(f"history has a gap: {lost}") from lost
                if standing.pointer is not None and standing.pointer.number != mirror.based_on:
                    self._replica.forget()
        raise AssertionError("the last turn raises")

    # Housekeeping.

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """See the port."""
        reign = self._reign_of(epoch)
        async with self._tidying:
            return await self._tidier.tidy(reign, self._writing, now - keep_ms)
