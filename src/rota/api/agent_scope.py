"""Agent tokens that are bound to workspaces and agent names: which requests they may make, and which answers they see.

Everything that is not listed here is refused, so a new request is closed to bound tokens until someone opens it.
"""

from typing import Any, Protocol

from msgspec import structs

from rota.api.auth import Principal
from rota.core import backlog as bl
from rota.core import history as hs
from rota.core import questions as qu
from rota.core.errors import Refused
from rota.core.ids import RunId
from rota.core.model import AGENTS_QUEUE, Graph, Pairs
from rota.core.pauses import scope_of
from rota.core.questions import WorkerView
from rota.core.tags import tag_of
from rota.ports import StoreReader
from rota.wire import sessions as ss
from rota.wire.requests import AwaitRun, GetService

# About one item, which is the run that they name.
_OF_ITEM = (qu.GetRun, qu.ListTasks, qu.ExplainTask, hs.GetEnded, hs.GetStories, AwaitRun)
# Checked by the session that they name, with `Sessions`.
_OF_SESSION = (
    ss.RegisterSession,
    ss.BeatSession,
    ss.EndSession,
    ss.AwaitWake,
    ss.ClaimWork,
    ss.RenewWork,
    ss.FinishWork,
)


class Coordinator(Protocol):
    """Answers questions about live runs, and reads history."""

    @property
    def store(self) -> StoreReader:
        """Where graphs and ended runs are read."""
        ...

    async def ask(self, request: Any) -> tuple[object, object]:
        """Answer a question."""
        ...


def _values_of(properties: Pairs) -> tuple[str, str]:
    found = dict(properties)
    return found.get("workspace", ""), found.get("agent", "")


def is_visible(who: Principal, requires: Pairs) -> bool:
    """Whether an item with these requirements is in the scope of a token. An item of no agent is for all of them."""
    workspace, agent = _values_of(requires)
    return who.has_workspace(workspace) and (not agent or who.has_agent(agent))


def check_session(who: Principal, view: WorkerView) -> None:
    """Refuse a session that was registered outside the scope of its token, before the token was bound."""
    who.may_work_as(*_values_of(view.capacity.properties))


async def check_request(coordinator: Coordinator, who: Principal, request: Any) -> None:
    """Refuse a request that reaches beyond the scope of a bound token. Answers are narrowed by `narrow`."""
    if isinstance(request, (GetService, qu.ListWorkers, bl.ListBacklog, hs.GetGraph, *_OF_SESSION)):
        return
    if isinstance(request, _OF_ITEM):
        requires = await _requires_of(coordinator, request.tenant, request.run)
        if requires is not None and is_visible(who, requires):
            return
        raise _beyond(who, f"item {request.run[:100]!r}", "run")
    raise _beyond(who, tag_of(request), "")


def check_unbound(who: Principal, what: str) -> None:
    """Refuse a bound token something that is not sorted by workspace, such as the events of all runs."""
    if who.is_bound:
        raise _beyond(who, what, "")


def narrow(who: Principal, request: Any, answer: Any) -> Any:
    """The part of an answer that is in the scope of a bound token."""
    if isinstance(request, qu.ListWorkers):
        return tuple(view for view in answer if _is_own_kind(who, view))
    if isinstance(request, hs.GetGraph):
        graph: Graph = answer
        if any(task.queue != AGENTS_QUEUE or not is_visible(who, task.requires) for task in graph.tasks):
            raise _beyond(who, f"graph {request.digest[:12]!r}", "digest")
    return answer


async def list_backlog(coordinator: Coordinator, who: Principal, request: bl.ListBacklog) -> tuple[bl.BacklogLine, ...]:
    """The backlog of all workspaces of a bound token, or of the one that is asked for."""
    scopes = [scope_of("workspace", name) for name in who.workspaces] or [request.scope]
    if request.scope and request.scope not in scopes:
        raise _beyond(who, f"the backlog of {request.scope[:100]!r}", "scope")
    found: list[bl.BacklogLine] = []
    for scope in [request.scope] if request.scope else scopes:
        lines: Any = (await coordinator.ask(structs.replace(request, scope=scope)))[0]
        found += await _of_own_agents(coordinator, who, request.tenant, lines)
    return tuple(found[: request.limit])


async def _of_own_agents(
    coordinator: Coordinator, who: Principal, tenant: str, lines: tuple[bl.BacklogLine, ...]
) -> tuple[bl.BacklogLine, ...]:
    """Without items that are reserved for other agents."""
    if not who.agents:
        return lines
    wanted = [await _requires_of(coordinator, tenant, line.run) for line in lines]
    return tuple(
        line for line, requires in zip(lines, wanted, strict=True) if requires is not None and is_visible(who, requires)
    )


def _is_own_kind(who: Principal, view: WorkerView) -> bool:
    workspace, agent = _values_of(view.capacity.properties)
    return view.capacity.pull and who.has_workspace(workspace) and who.has_agent(agent)


async def _requires_of(coordinator: Coordinator, tenant: str, run: str) -> Pairs | None:
    """What an item requires of a session, live or ended; None if there is no such item."""
    try:
        view: Any = (await coordinator.ask(qu.GetRun(tenant=tenant, run=RunId(run))))[0]
        page: Any = (await coordinator.ask(qu.ListTasks(tenant=tenant, run=RunId(run), limit=1)))[0]
        amended: Pairs | None = page.tasks[0].requires if page.tasks else None
        digest = view.graph
    except Refused as refused:
        if refused.code != "run.unknown":
            raise
        ended = await coordinator.store.ended(tenant, RunId(run))
        if ended is None:
            return None
        digest, amended = ended.run.graph, None
    graph = await coordinator.store.graph(tenant, digest)
    if graph is None or len(graph.tasks) != 1 or graph.tasks[0].queue != AGENTS_QUEUE:
        return None
    return graph.tasks[0].requires if amended is None else amended


def _beyond(who: Principal, what: str, path: str) -> Refused:
    return Refused("auth.scope", f"{who.name} is bound to {who.scope}; {what} is outside", path=path)
