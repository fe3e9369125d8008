"""Workflows of a coordinator: deploying, listing, pausing them, taking them away, and making up for the past."""

import secrets
import time
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from msgspec import Struct, structs

from rota.client.given import backfill_id
from rota.client.operating import Operating
from rota.core.bounds import BACKFILL_ACTIVE_RUNS
from rota.core.calendar import count_slots, slots_between
from rota.core.commands import (
    CancelBackfill,
    ClientCommand,
    DeployWorkflow,
    DropWorkflow,
    PauseWorkflow,
    StartBackfill,
)
from rota.core.decide.workflows import backfill_spec
from rota.core.errors import Refused
from rota.core.history import GetGraph
from rota.core.ids import BlobRef, CommandId, Millis, ScheduleId
from rota.core.model import Graph
from rota.core.questions import BackfillView, GetWorkflow, ListBackfills, ListWorkflows, WorkflowView
from rota.core.tags import tag_of
from rota.wire.deployments import Broken, Compiled, check_workflow_name
from rota.wire.given import packed
from rota.wire.instants import When, check_instants, end_of, instant
from rota.wire.requests import FindBundle, PutBundle

SLOTS_SHOWN_MAX = 1_000
_NAMED_MAX = 5


class Deployed(Struct, frozen=True, kw_only=True):
    """A workflow that was deployed. `is_new`: this content is a version that was not there before."""

    name: str
    version: int
    is_new: bool
    tasks: int
    source: str
    # The digest of its bundle; empty if workers have its code by other means.
    bundle: str


class DeployFailed(Refused):
    """Some of what was to be deployed cannot be. `deployed` are the others; none, if all or nothing was asked for."""

    def __init__(self, deployed: list[Deployed], broken: Iterable[Broken]) -> None:
        self.deployed = deployed
        self.broken = tuple(broken)
        told = "; ".join(f"{each.place}: {each.error}" for each in self.broken[:_NAMED_MAX])
        more = f"; and {len(self.broken) - _NAMED_MAX} more" if len(self.broken) > _NAMED_MAX else ""
        hint = f"{len(deployed)} others were deployed." if deployed else "Nothing was deployed."
        super().__init__("deploy.broken", f"{told}{more}", hint)


class Slots(Struct, frozen=True, kw_only=True):
    """The instants that a backfill is about: how many there are, and the first of them."""

    count: int
    first: tuple[Millis, ...]
    zone: str


class Deploying(Operating):
    """The half of a client that is about workflows."""

    async def put_bundle(self, content: bytes) -> BlobRef:
        """Have a bundle kept, and say how a graph refers to it. One that is there already does not travel again."""
        digest = sha256(content).hexdigest()
        tenant = self.line.tenant
        found: BlobRef | None = await self.ask(FindBundle(tenant=tenant, sha256=digest, size=len(content)))
        return found or await self.ask(PutBundle(tenant=tenant, sha256=digest, content=content))

    async def deploy_workflow(self, workflow: Compiled, bundle: BlobRef | None = None) -> Deployed:
        """Make a compiled workflow the present version of its name. The same again changes nothing."""
        check_workflow_name(workflow.graph.name)
        graph = structs.replace(workflow.graph, bundle=bundle)
        known = await self._versions(graph.name)
        command = DeployWorkflow(
            tenant=self.line.tenant,
            command_id=CommandId(f"deploy-{secrets.token_hex(8)}"),
            graph=graph,
            params=workflow.params,
            schedule=workflow.schedule,
            priority=workflow.priority,
            paused=workflow.paused,
            source=workflow.source,
            doc=workflow.doc,
            zone=workflow.zone,
            code=workflow.code,
        )
        version = int(await self.ask(command))
        kept = bundle if version not in known else await self._bundle_of(graph.name, version)
        return Deployed(
            name=graph.name,
            version=version,
            is_new=version not in known,
            # As many as a run begins with; of those whose number it will tell, one.
            tasks=sum(spec.width or 1 for spec in graph.tasks),
            source=workflow.source,
            bundle=kept.sha256 if kept is not None else "",
        )

    async def _bundle_of(self, name: str, version: int) -> BlobRef | None:
        """The bundle of a version: of one that is unchanged, that of its first deployment."""
        found = (await self.workflow(name)).workflow.kept_version(version)
        if found is None:
            return None
        graph: Graph = await self.ask(GetGraph(tenant=self.line.tenant, digest=found.graph))
        return graph.bundle

    async def deploy_all(
        self, workflows: Iterable[Compiled], broken: Iterable[Broken], bundle: bytes, *, strict: bool = False
    ) -> list[Deployed]:
        """Deploy what can be, each by itself. Raises DeployFailed for the rest; with `strict` before anything is."""
        wrong = list(broken)
        if strict and wrong:
            raise DeployFailed([], wrong)
        ref = await self.put_bundle(bundle)
        done: list[Deployed] = []
        for workflow in workflows:
            try:
                done.append(await self.deploy_workflow(workflow, ref))
            except Refused as refused:
                file, _, line = workflow.source.rpartition(":")
                name = workflow.graph.name
                wrong.append(Broken(file=file, line=int(line or 0), workflow=name, error=str(refused)))
        if wrong:
            raise DeployFailed(done, wrong)
        return done

    async def _versions(self, name: str) -> list[int]:
        try:
            view = await self.workflow(name)
        except Refused as refused:
            if refused.code != "workflow.unknown":
                raise
            return []
        return [version.number for version in view.workflow.versions]

    async def workflows(self) -> tuple[WorkflowView, ...]:
        """The workflows there are, by name."""
        return await self.ask(ListWorkflows(tenant=self.line.tenant))

    async def workflow(self, name: str) -> WorkflowView:
        """One workflow, with its versions, its parameters and its schedule."""
        return await self.ask(GetWorkflow(tenant=self.line.tenant, workflow=name))

    async def zone_of(self, name: str) -> str:
        """The time zone that a workflow's dates are read in."""
        return (await self.workflow(name)).zone

    async def check_instants(self, name: str, params: dict[str, Any], version: int = 0) -> None:
        """Refuse an instant among a run's parameters that there is not in the workflow's time zone."""
        view = await self.workflow(name)
        if version in (0, view.workflow.version):
            check_instants(view.workflow.params, params, view.zone)

    async def pause_workflow(self, name: str, *, paused: bool = True) -> None:
        """Start no runs of a workflow and give no worker their tasks. What runs goes on."""
        await self._change(PauseWorkflow, workflow=name, paused=paused)

    async def resume_workflow(self, name: str) -> None:
        """Let a paused workflow go on."""
        await self.pause_workflow(name, paused=False)

    async def drop_workflow(self, name: str) -> None:
        """Take a workflow away with its schedule; its runs go on."""
        await self._change(DropWorkflow, workflow=name)

    async def backfill(
        self,
        name: str,
        start: When,
        end: When,
        *,
        max_active_runs: int = BACKFILL_ACTIVE_RUNS,
        params: dict[str, Any] | None = None,
        backfill: str = "",
    ) -> str:
        """Make runs for the slots of a workflow's schedule between two instants; the id under which it is known.

        Instants without a zone are in the workflow's; a date alone at the end means all of that day.
        """
        zone = await self.zone_of(name)
        id = backfill or backfill_id(name)
        await self._change(
            StartBackfill,
            backfill=id,
            workflow=name,
            start_at=instant(start, zone, "start"),
            end_at=end_of(end, zone, "end"),
            max_active_runs=max_active_runs,
            params=packed(params or {}),
        )
        return id

    async def backfill_slots(self, name: str, start: When, end: When, *, limit: int = SLOTS_SHOWN_MAX) -> Slots:
        """The slots that a backfill with the same words is about; nothing is made, and the same is refused."""
        view = await self.workflow(name)
        zone = view.zone
        command = StartBackfill(
            tenant=self.line.tenant,
            command_id=CommandId(""),
            backfill=ScheduleId(""),
            workflow=name,
            start_at=instant(start, zone, "start"),
            end_at=end_of(end, zone, "end"),
        )
        spec = backfill_spec(view.schedule, name, command, time.time_ns() // 1_000_000)
        assert spec.start_at is not None and spec.end_at is not None, "a backfill has a beginning and an end"
        # Its first slot is at its beginning.
        first, last = spec.start_at - 1, spec.end_at
        return Slots(count=count_slots(spec, first, last), first=slots_between(spec, first, last, limit), zone=zone)

    async def backfills(self) -> tuple[BackfillView, ...]:
        """Backfills that are not over."""
        return await self.ask(ListBackfills(tenant=self.line.tenant))

    async def cancel_backfill(self, backfill: str) -> None:
        """Make no more runs of a backfill, and cancel those that have not ended."""
        await self._change(CancelBackfill, backfill=backfill)

    async def _change(self, kind: type[ClientCommand], **fields: Any) -> None:
        command_id = CommandId(f"{tag_of(kind)}-{secrets.token_hex(8)}")
        await self.ask(kind(tenant=self.line.tenant, command_id=command_id, **fields))
