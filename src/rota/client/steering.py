"""What a person does about a run: stop it, hold it, run tasks again, say what they came to, move it."""

import secrets
from collections.abc import Callable
from typing import Any

from rota.client.operating import Operating
from rota.core.commands import (
    CancelRun,
    ClearTasks,
    ClientCommand,
    Exit,
    Mark,
    MarkTasks,
    MoveRun,
    NoteTask,
    PauseRun,
    ResolveTask,
    RetryTasks,
)
from rota.core.errors import Refused
from rota.core.ids import RunId, TaskId
from rota.core.questions import PreviewClear


class Steering:
    """The half of a run that changes something about it. One that is in history is taken out of it for that."""

    def __init__(self, client: Operating, id: str) -> None:
        self._operating = client
        self.id = id

    async def cancel(self, reason: str = "cancelled on request") -> None:
        """End the run and everything in it."""
        await self._do(CancelRun, reason=reason)

    async def pause(self, *, paused: bool = True) -> None:
        """Hold the run's waiting tasks back, or let them go on."""
        await self._do(PauseRun, paused=paused)

    async def clear(self, *tasks: str, downstream: bool = True, only_failed: bool = False) -> None:
        """Run ended tasks again, with a fresh budget; all of them if none are named."""
        await self._do(ClearTasks, tasks=tasks, downstream=downstream, only_failed=only_failed)

    async def would_clear(self, *tasks: str, downstream: bool = True, only_failed: bool = False) -> tuple[str, ...]:
        """Which tasks `clear` with the same words would run again."""
        question = PreviewClear(
            tenant=self._operating.line.tenant,
            run=RunId(self.id),
            tasks=tuple(map(TaskId, tasks)),
            downstream=downstream,
            only_failed=only_failed,
        )
        return await self._operating.ask(question)

    async def mark(self, *tasks: str, to: str) -> None:
        """Say what tasks came to, whatever they are doing: success, failed or skipped."""
        if to not in list(Mark):
            hint = f"Use one of {', '.join(Mark)}."
            raise Refused("field.value", f"a task cannot be marked as {to!r}", hint, path="to")
        await self._do(MarkTasks, tasks=tasks, to=Mark(to))

    async def retry(self, *tasks: str) -> None:
        """Try tasks now that wait for another try, and run those again that failed for good or were cancelled.

        With what failed because of them; all of both sorts if none are named.
        """
        await self._do(RetryTasks, tasks=tasks)

    async def note(self, task: str, note: str) -> None:
        """Say something about a task, for whoever looks at it next; about the run if the task is ""."""
        await self._do(NoteTask, task=task, note=note)

    async def move(self, version: int = 0) -> None:
        """Give the run another version of its workflow; 0 is the present one. What it has done is kept."""
        await self._do(MoveRun, version=version)

    async def resolve(self, task: str, way_out: str = "requeue") -> None:
        """Take a parked task out of needs_attention: requeue, fail or cancel it."""
        if way_out not in list(Exit):
            hint = f"Use one of {', '.join(Exit)}."
            raise Refused("field.value", f"{way_out!r} is no way out of needs_attention", hint, path="way_out")
        await self._do(ResolveTask, task=task, exit=Exit(way_out))

    async def _do(self, kind: Callable[..., ClientCommand], **fields: Any) -> None:
        command_id = f"{self.id}-{secrets.token_hex(8)}"
        tenant = self._operating.line.tenant
        await self._operating.ask(kind(tenant=tenant, command_id=command_id, run=self.id, **fields))
