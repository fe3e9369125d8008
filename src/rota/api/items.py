"""Work items at the desk: their words become a run here, and what they wait for may have ended long ago."""

from collections.abc import Callable
from typing import Any, Protocol, cast

from msgspec import structs

from rota.api.auth import Principal
from rota.core.commands import CancelRun, Exit, ResolveTask, SubmitRun
from rota.core.errors import Refused
from rota.core.graph import check_id
from rota.core.ids import CommandId, Millis, RunId, TaskId
from rota.core.model import Graph, Pairs
from rota.core.questions import GetRun, ListTasks, RunView, TasksPage
from rota.core.states import NEEDS_ATTENTION, RunState
from rota.kinds.agent.items import amended, compile_item
from rota.ports import StoreReader
from rota.wire.items import WORK, ResolveWork, SubmitWork

# How often what an item waits for may move to history while we look for it.
LOOKS_MAX = 3


class Coordinator(Protocol):
    """Whoever decides."""

    @property
    def store(self) -> StoreReader:
        """Where history and stories are read."""
        ...

    @property
    def clock(self) -> Callable[[], Millis]:
        """What time it is."""
        ...

    async def ask(self, request: Any) -> tuple[object, object]:
        """Carry out a command or answer a question."""
        ...


async def submit_work(coordinator: Coordinator, who: Principal, request: SubmitWork) -> str:
    """Make an item. What it waits for and has succeeded, however long ago, is not waited for."""
    command = structs.replace(compile_item(request), actor=who.name)
    for look in range(LOOKS_MAX):
        try:
            return str((await coordinator.ask(command))[0])
        except Refused as refused:
            if refused.code != "run.unknown" or not refused.path.startswith("after") or look == LOOKS_MAX - 1:
                raise
        command = structs.replace(command, after=await _still_ahead(coordinator, command))
    raise AssertionError("the last look answers or raises")


async def _still_ahead(coordinator: Coordinator, command: SubmitRun) -> tuple[str, ...]:
    """What an item waits for, without what has succeeded and is in history. What has failed there is refused."""
    left: list[str] = []
    for place, name in enumerate(command.after):
        path = f"depends_on[{place}]"
        check_id(name, path)
        if await _lives(coordinator, command.tenant, name):
            left.append(name)
            continue
        ended = await coordinator.store.ended(command.tenant, name)
        if ended is None:
            hint = "Name one that has not ended, or has succeeded."
            raise Refused("run.unknown", f"there is no item {name[:100]!r} to wait for", hint, path=path)
        if ended.run.state is not RunState.SUCCESS:
            text = f"{name!r} has ended as {ended.run.state}, so what waits for it would wait for ever"
            raise Refused("run.ended", text, f"Try it again first: rota work retry {name}", path=path)
    return tuple(left)


async def _lives(coordinator: Coordinator, tenant: str, name: str) -> bool:
    try:
        await coordinator.ask(GetRun(tenant=tenant, run=RunId(name)))
    except Refused as refused:
        if refused.code != "run.unknown":
            raise
        return False
    return True


async def resolve_work(coordinator: Coordinator, who: Principal, request: ResolveWork) -> str:
    """Take a parked item out of needs_attention; what it asks of a session may be changed on the way."""
    given = (request.requires, request.prefers, request.channel, request.owner)
    requires: Pairs | None = None
    if any(each is not None for each in given):
        if request.exit is not Exit.REQUEUE:
            text = f"an item that is to {request.exit} asks nothing of a session any more"
            raise Refused("field.value", text, "Leave out what it should ask for.", path="exit")
        requires = amended(await _requires(coordinator, request), request)
    if request.exit is Exit.CANCEL:
        return await _cancel(coordinator, who, request)
    command = ResolveTask(
        tenant=request.tenant,
        command_id=CommandId(request.command_id),
        run=RunId(request.item),
        task=TaskId(WORK),
        exit=request.exit,
        requires=requires,
        actor=who.name,
    )
    return str((await coordinator.ask(command))[0])


async def _cancel(coordinator: Coordinator, who: Principal, request: ResolveWork) -> str:
    """End a parked item as cancelled. Its task alone would make the run a failed one."""
    tenant, item = request.tenant, request.item
    page = cast(
        TasksPage,
        (await coordinator.ask(ListTasks(tenant=tenant, run=RunId(item), names=(TaskId(WORK),))))[0],
    )
    if not page.tasks or page.tasks[0].state is not NEEDS_ATTENTION:
        here = page.tasks[0].state if page.tasks else "not there"
        raise Refused("task.not_parked", f"item {item!r} is {here}, not parked", path="item")
    command = CancelRun(tenant=tenant, command_id=CommandId(request.command_id), run=RunId(item), actor=who.name)
    return str((await coordinator.ask(command))[0])


async def _requires(coordinator: Coordinator, request: ResolveWork) -> Pairs:
    """What an item asks for now."""
    tenant, item = request.tenant, request.item
    view = cast(RunView, (await coordinator.ask(GetRun(tenant=tenant, run=RunId(item))))[0])
    page = cast(
        TasksPage,
        (await coordinator.ask(ListTasks(tenant=tenant, run=RunId(item), names=(TaskId(WORK),))))[0],
    )
    if page.tasks and page.tasks[0].requires is not None:
        return page.tasks[0].requires
    graph: Graph | None = await coordinator.store.graph(request.tenant, view.graph)
    assert graph is not None, "the graph of a live run is kept"
    return graph.tasks[0].requires
