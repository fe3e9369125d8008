"""Runs in history about which somebody wants to do something: they are taken out of it first."""

from typing import Any, Protocol

from rota.core.commands import ClearTasks, ClientCommand, MarkTasks, MoveRun, NoteTask, RetryTasks, ReviveRun
from rota.core.errors import Refused
from rota.core.history import Ended
from rota.core.ids import RunId
from rota.core.model import Graph
from rota.core.questions import PreviewClear, preview_clear
from rota.ports import StoreReader

# What may be done about a run that has ended, however long ago.
Remedy = ClearTasks | MarkTasks | MoveRun | NoteTask | RetryTasks


class Coordinator(Protocol):
    """Whoever decides."""

    @property
    def store(self) -> StoreReader:
        """Where history and stories are read."""
        ...

    async def ask(self, request: Any) -> tuple[object, object]:
        """Carry out a command or answer a question."""
        ...


async def carry_out(coordinator: Coordinator, command: ClientCommand) -> Any:
    """Have a command carried out; a remedy for a run in history brings that run back."""
    try:
        return (await coordinator.ask(command))[0]
    except Refused as refused:
        if refused.code != "run.unknown" or not isinstance(command, Remedy):
            raise
        found = await _look_up(coordinator.store, command.tenant, command.run)
        if found is None:
            raise
    ended, graph = found
    revive = ReviveRun(tenant=command.tenant, row=ended.run, tasks=ended.tasks, growths=ended.growths, graph=graph)
    await coordinator.ask(revive)
    return (await coordinator.ask(command))[0]


async def preview(coordinator: Coordinator, question: PreviewClear) -> Any:
    """Which tasks would be run again. Asking moves nothing out of history."""
    try:
        return (await coordinator.ask(question))[0]
    except Refused as refused:
        if refused.code != "run.unknown":
            raise
        found = await _look_up(coordinator.store, question.tenant, question.run)
        if found is None:
            raise
    ended, graph = found
    return preview_clear(ended.run, ended.tasks, ended.growths, graph, question)


async def _look_up(store: StoreReader, tenant: str, run: RunId) -> tuple[Ended, Graph] | None:
    ended = await store.ended(tenant, run)
    graph = await store.graph(tenant, ended.run.graph) if ended is not None else None
    return None if ended is None or graph is None else (ended, graph)
