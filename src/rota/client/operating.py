"""What an operator asks of a coordinator: workers, queues, pools, tenants, and who asked for what."""

import asyncio
import secrets
from typing import Any

from rota.client.line import Line
from rota.core.commands import (
    ClientCommand,
    DrainWorker,
    DropPool,
    EndQuarantine,
    ForgetWorker,
    PutPool,
    PutQueue,
    PutTenant,
    SteerStream,
)
from rota.core.door import check_shape
from rota.core.errors import Unavailable
from rota.core.history import AuditsPage, ListAudits
from rota.core.ids import CommandId, WorkerId
from rota.core.model import Pool, Queue, Tenant
from rota.core.overview import GetOverview, Overview
from rota.core.questions import ListPools, ListQueues, ListTenants, ListWorkers, PoolView, Question, WorkerView
from rota.core.records import Audit
from rota.wire.requests import InspectService, ServiceInside
from rota.wire.standings import GetStream, ListStreams, StreamsView, StreamView
from rota.wire.wishes import Verb

# How long a command is repeated while nobody can answer it.
PATIENCE_S = 30.0


class Operating:
    """The operator's half of a client; `patience_s` is how long it repeats what nobody can answer."""

    def __init__(self, line: Line, patience_s: float | None = None) -> None:
        self.line = line
        self._patience_s = PATIENCE_S if patience_s is None else patience_s

    async def ask(self, request: ClientCommand | Question) -> Any:
        """Send a command or a question. One that nobody can answer just now is repeated under the same id."""
        give_up_at = asyncio.get_running_loop().time() + self._patience_s
        while True:
            try:
                return await self.line.ask(request)
            except Unavailable as unavailable:
                wait_s = unavailable.retry_after_ms / 1000
                if asyncio.get_running_loop().time() + wait_s > give_up_at:
                    raise
                await asyncio.sleep(wait_s)

    async def overview(self) -> Overview:
        """How everything of the tenant stands at once: runs, what waits and why, queues, workers."""
        return await self.ask(GetOverview(tenant=self.line.tenant))

    async def inspect(self) -> ServiceInside:
        """What goes on inside the coordinator's process."""
        return await self.ask(InspectService(tenant=self.line.tenant))

    async def workers(self) -> tuple[WorkerView, ...]:
        """Who is registered, and how each stands."""
        return await self.ask(ListWorkers(tenant=self.line.tenant))

    async def drain_worker(self, worker: str, *, draining: bool = True) -> None:
        """Give a worker no new work, or give it work again. What it runs goes on."""
        await self.ask(
            DrainWorker(
                tenant=self.line.tenant, command_id=CommandId(_new("drain")), worker=WorkerId(worker), draining=draining
            )
        )

    async def end_quarantine(self, worker: str) -> None:
        """Give a worker work again that rests because too much failed on it."""
        await self.ask(
            EndQuarantine(tenant=self.line.tenant, command_id=CommandId(_new("quarantine")), worker=WorkerId(worker))
        )

    async def forget_worker(self, worker: str) -> None:
        """Strike a worker off the register; what it holds is returned unspent."""
        await self.ask(
            ForgetWorker(tenant=self.line.tenant, command_id=CommandId(_new("forget")), worker=WorkerId(worker))
        )

    async def streams(self, run: str = "") -> StreamsView:
        """The streams that the coordinator knows of; `run`: those that a task of that run runs."""
        return await self.ask(ListStreams(tenant=self.line.tenant, run=run))

    async def stream(self, name: str) -> StreamView:
        """One of them."""
        return await self.ask(GetStream(tenant=self.line.tenant, stream=name))

    async def steer_stream(self, name: str, verb: Verb, which: str = "", *, stop: bool = False) -> StreamView:
        """Ask something of one. Whoever runs it heeds that between two rounds."""
        tenant, id = self.line.tenant, _new("stream")
        return await self.ask(
            SteerStream(tenant=tenant, command_id=CommandId(id), stream=name, verb=verb, which=which, stop=stop)
        )

    async def pools(self) -> tuple[PoolView, ...]:
        """The pools there are, and what is taken from each."""
        return await self.ask(ListPools(tenant=self.line.tenant))

    async def put_pool(
        self, name: str, slots: int = 0, *, slots_per_key: int = 0, starts_per_minute: int = 0, burst: int = 1
    ) -> None:
        """Define a pool, or change it: how many tasks that name it may run at once, and how many may start."""
        pool = Pool(
            tenant=self.line.tenant,
            name=name,
            slots=slots,
            slots_per_key=slots_per_key,
            starts_per_minute=starts_per_minute,
            burst=burst,
        )
        await self.ask(PutPool(tenant=self.line.tenant, command_id=CommandId(_new("pool")), pool=pool))

    async def drop_pool(self, name: str) -> None:
        """Remove a pool."""
        await self.ask(DropPool(tenant=self.line.tenant, command_id=CommandId(_new("pool")), name=name))

    async def queues(self) -> tuple[Queue, ...]:
        """The queues that were defined; the one called `default` exists without."""
        return await self.ask(ListQueues(tenant=self.line.tenant))

    async def put_queue(self, name: str, properties: dict[str, str] | None = None, **policy: Any) -> None:
        """Define a queue, or change it: how each property is compared (`minimum`, `exact`, `priority`, `ignore`)."""
        fields = {**policy, "tenant": self.line.tenant, "name": name, "properties": list((properties or {}).items())}
        queue: Queue = check_shape(fields, Queue)
        await self.ask(PutQueue(tenant=queue.tenant, command_id=CommandId(_new("queue")), queue=queue))

    async def tenants(self) -> tuple[Tenant, ...]:
        """Tenants that have a weight or live runs."""
        return await self.ask(ListTenants(tenant=self.line.tenant))

    async def put_tenant(self, tenant: str, weight: int) -> None:
        """Give a tenant its share: under load, tenants are served in proportion to their weights."""
        await self.ask(PutTenant(tenant=tenant, command_id=CommandId(_new("tenant")), weight=weight))

    async def audits(self, limit: int = 100) -> list[Audit]:
        """Who asked for what, the newest first."""
        found: list[Audit] = []
        before = 0
        while len(found) < limit:
            page: AuditsPage = await self.ask(
                ListAudits(tenant=self.line.tenant, before=before, limit=limit - len(found))
            )
            found += page.audits
            before = page.next
            if not before:
                break
        return found


def _new(what: str) -> str:
    return f"{what}-{secrets.token_hex(8)}"
