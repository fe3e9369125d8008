"""Who may ask for what: roles, tenants, and what each request takes. Every call on every surface is judged here.

Tokens, which say who is calling, are read in `rota.api.tokens`.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from rota.core import backlog as bl
from rota.core import commands as cm
from rota.core import history as hs
from rota.core import questions as qu
from rota.core.errors import Refused
from rota.core.ids import DEFAULT_TENANT
from rota.core.tags import tag_of
from rota.wire import sessions as ss
from rota.wire.items import ResolveWork, SubmitWork
from rota.wire.queries import QUERY
from rota.wire.requests import (
    AwaitRun,
    FindBundle,
    GetService,
    InspectService,
    PutBundle,
    ReadBlob,
    ReadLog,
    ReadLogLines,
    SearchLog,
)
from rota.wire.standings import GetStream, ListStreams

ANY_TENANT = "*"
# Instead of capabilities: all of them.
EVERYTHING = "*"


class Role(StrEnum):
    """What a token is for. A reader's rights are a writer's too, and a writer's an admin's; a worker's are its own."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    WORKER = "worker"
    # Asks queries, which run no code of its own (`rota.api.analysts`).
    ANALYST = "analyst"
    # Sessions that claim work. They may read, too: whoever does work should know why some of it waits.
    AGENT = "agent"
    # Whoever reaches a coordinator that asks for no token; no token has this role.
    OWNER = "owner"

    def covers(self, need: "Role") -> bool:
        """Whether this role may do what `need` may."""
        return need in _COVERS[self]


_COVERS: dict[Role, tuple[Role, ...]] = {
    Role.READER: (Role.READER,),
    Role.WRITER: (Role.READER, Role.WRITER),
    Role.ADMIN: (Role.READER, Role.WRITER, Role.ADMIN),
    Role.WORKER: (Role.WORKER,),
    Role.ANALYST: (Role.READER, Role.ANALYST),
    Role.AGENT: (Role.READER, Role.AGENT),
    Role.OWNER: tuple(Role),
}
TOKEN_ROLES = (Role.READER, Role.WRITER, Role.ADMIN, Role.WORKER, Role.AGENT, Role.ANALYST)

# What each request takes. What is not here is never taken from outside.
NEEDS: dict[type, Role] = {
    qu.GetRun: Role.READER,
    qu.ListRuns: Role.READER,
    qu.ListTasks: Role.READER,
    qu.ListWorkers: Role.READER,
    qu.ListQueues: Role.READER,
    qu.ListPools: Role.READER,
    qu.ExplainTask: Role.READER,
    qu.GetOverview: Role.READER,
    qu.SumTasks: Role.READER,
    hs.HistoryQuery: Role.READER,
    hs.GetEnded: Role.READER,
    hs.GetGraph: Role.READER,
    hs.GetStories: Role.READER,
    ReadLog: Role.READER,
    ReadLogLines: Role.READER,
    SearchLog: Role.READER,
    ReadBlob: Role.READER,
    GetService: Role.READER,
    AwaitRun: Role.READER,
    qu.GetWorkflow: Role.READER,
    qu.ListWorkflows: Role.READER,
    qu.ListBackfills: Role.READER,
    qu.PreviewClear: Role.READER,
    FindBundle: Role.WRITER,
    PutBundle: Role.WRITER,
    qu.ListTenants: Role.ADMIN,
    hs.ListAudits: Role.ADMIN,
    InspectService: Role.ADMIN,
    cm.SubmitRun: Role.WRITER,
    cm.CancelRun: Role.WRITER,
    cm.PauseRun: Role.WRITER,
    cm.ClearTasks: Role.WRITER,
    cm.GrowRun: Role.WRITER,
    cm.ResolveTask: Role.WRITER,
    cm.LoseOutputs: Role.WRITER,
    cm.PutSchedule: Role.WRITER,
    cm.DropSchedule: Role.WRITER,
    cm.MarkTasks: Role.WRITER,
    cm.RetryTasks: Role.WRITER,
    cm.NoteTask: Role.WRITER,
    cm.MoveRun: Role.WRITER,
    cm.DeployWorkflow: Role.WRITER,
    cm.PauseWorkflow: Role.WRITER,
    cm.DropWorkflow: Role.WRITER,
    cm.StartBackfill: Role.WRITER,
    cm.CancelBackfill: Role.WRITER,
    cm.PutQueue: Role.ADMIN,
    cm.PutPool: Role.ADMIN,
    cm.DropPool: Role.ADMIN,
    cm.PutTenant: Role.ADMIN,
    cm.DrainWorker: Role.ADMIN,
    cm.EndQuarantine: Role.ADMIN,
    cm.ForgetWorker: Role.ADMIN,
    cm.RegisterWorker: Role.WORKER,
    cm.ClaimTask: Role.WORKER,
    cm.RenewLease: Role.WORKER,
    cm.Report: Role.WORKER,
    cm.ApproveRun: Role.WRITER,
    cm.ReleaseTasks: Role.WRITER,
    cm.PauseScheduler: Role.ADMIN,
    cm.SteerStream: Role.WRITER,
    ListStreams: Role.READER,
    GetStream: Role.READER,
    bl.GetScheduler: Role.READER,
    bl.ListBacklog: Role.READER,
    SubmitWork: Role.WRITER,
    ResolveWork: Role.WRITER,
    ss.RegisterSession: Role.AGENT,
    ss.BeatSession: Role.AGENT,
    ss.EndSession: Role.AGENT,
    ss.AwaitWake: Role.AGENT,
    ss.ClaimWork: Role.AGENT,
    ss.RenewWork: Role.AGENT,
    ss.FinishWork: Role.AGENT,
}
# What analysts may ask for too, about queries; the desk looks whether it is about one.
OF_ANALYSTS = (cm.SubmitRun, cm.CancelRun)
# Shares concern all tenants: nobody sets their own.
OF_ALL_TENANTS = (qu.ListTenants, cm.PutTenant, InspectService)


class Principal(Struct, frozen=True):
    """Who is calling. `name` is what logs show: role, tenant, and the fingerprint of the token."""

    name: str
    role: Role
    tenant: str
    # What its sessions may say that they are capable of; one `*` is everything.
    capabilities: tuple[str, ...] = ()
    # The workspaces and the names of agents that its sessions are bound to; nothing: any.
    workspaces: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    @property
    def is_bound(self) -> bool:
        """Whether this token is bound to workspaces or agents (`rota.api.agent_scope`)."""
        return bool(self.workspaces or self.agents)

    @property
    def scope(self) -> str:
        """What it is bound to, for people."""
        bindings = (("workspaces", self.workspaces), ("agents", self.agents))
        return ", ".join(f"{name} {' '.join(bound)}" for name, bound in bindings if bound)

    def has_workspace(self, workspace: str) -> bool:
        """Whether a workspace is in its scope; `-` or nothing is none."""
        return not self.workspaces or (workspace or "-") in self.workspaces

    def has_agent(self, agent: str) -> bool:
        """Whether sessions of this agent are in its scope."""
        return not self.agents or agent in self.agents

    def may_work_as(self, workspace: str, agent: str) -> None:
        """Refuse a session outside its scope."""
        for path, value, is_inside in (
            ("workspace", workspace, self.has_workspace(workspace)),
            ("agent", agent, self.has_agent(agent)),
        ):
            if not is_inside:
                text = f"{self.name} is bound to {self.scope}; a session of {path} {value[:100] or '-'!r} is outside"
                raise Refused("auth.scope", text, "Register a session inside it.", path=path)

    @property
    def has_token(self) -> bool:
        """Whether a token says who is calling. The role owner is for callers that need no token."""
        return self.role is not Role.OWNER

    def may_offer(self, capabilities: Iterable[str]) -> None:
        """Refuse a session that says it is capable of more than its token allows."""
        allowed = (EVERYTHING,) if self.role is Role.OWNER else self.capabilities
        beyond = [] if EVERYTHING in allowed else [name for name in capabilities if name not in allowed]
        if beyond:
            have = ", ".join(allowed) or "none"
            hint = f"It allows {have}. Whoever runs the service can add to that: agent+{beyond[0][:100]}:…"
            raise Refused("auth.capability", f"{self.name} may not offer {', '.join(beyond)[:200]}", hint)

    @property
    def acting_tenant(self) -> str:
        """The tenant that is meant when a call names none."""
        return DEFAULT_TENANT if self.tenant == ANY_TENANT else self.tenant

    def may(self, need: Role, tenant: str) -> None:
        """Refuse what this caller may not do, or not there."""
        if tenant == ANY_TENANT and self.tenant != ANY_TENANT:
            text = f"{self.name} is of one tenant, and this concerns all of them"
            raise Refused("auth.tenant", text, f"Use a token of all tenants ({self.role}@*).")
        if self.tenant not in (ANY_TENANT, tenant):
            hint = "Use a token of that tenant."
            raise Refused("auth.tenant", f"{self.name} may not act for tenant {tenant!r}", hint)
        if not self.role.covers(need):
            hint = f"Use a token with the role {need}."
            raise Refused("auth.role", f"{self.name} has the role {self.role}, and this takes {need}", hint)

    def may_do(self, kind: type, about: str = "", /) -> bool:
        """Whether a command of this type is this caller's to ask, for their own tenant; `about` runs of which kind."""
        if self.role is Role.ANALYST and about == QUERY and kind in OF_ANALYSTS:
            return True
        need = NEEDS.get(kind)
        return need is not None and self.role.covers(need)

    def may_ask(self, request: cm.Command | qu.Question) -> None:
        """Refuse a command or question that is not this caller's to ask."""
        if isinstance(request, GetService):
            # Also a worker's: it is how one begins.
            return
        need = NEEDS.get(type(request))
        if need is None:
            raise Refused("field.type", f"{tag_of(request)} is not asked from outside")
        if self.role is Role.ANALYST and isinstance(request, OF_ANALYSTS):
            need = Role.ANALYST
        self.may(need, ANY_TENANT if isinstance(request, OF_ALL_TENANTS) else request.tenant)


ANYONE = Principal("anyone", Role.OWNER, ANY_TENANT)
