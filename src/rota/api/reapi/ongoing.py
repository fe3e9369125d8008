"""One run of an action as those see it who wait for it: how far it is, who waits, and how it ended."""

import asyncio
from collections.abc import Callable
from enum import IntEnum

from msgspec import Struct

from rota.core import changes as ch
from rota.core.ids import Fence, Millis
from rota.core.questions import RunView, TaskView
from rota.core.states import NEEDS_ATTENTION, RUN_TERMINAL, RUNNING, SUCCESS, TERMINAL, RunState
from rota.core.story import RunChange
from rota.kinds.build.naming import OperationName
from rota.kinds.build.scheduling import Asked
from rota.wire.builds import BuildWork

# How often it is looked whether what has ended can be told; nobody depends on it, since everybody is told.
SETTLE_S = 30.0


class Stage(IntEnum):
    """How far an action is, in the numbers of the API."""

    QUEUED = 2
    EXECUTING = 3
    COMPLETED = 4


class Conclusion(Struct, frozen=True):
    """How a run ended. `result` is what its worker reported, under which fence; `error` why there is none.

    `reason` is what was said by whoever ended it before its time.
    """

    state: RunState
    result: bytes | None = None
    fence: Fence = 0
    error: str = ""
    reason: str = ""


class Operation:
    """One client's wait for it."""

    __slots__ = ("asked_at", "is_cancelled", "name", "streams")

    def __init__(self, name: OperationName) -> None:
        self.name = name
        # When its client was here last.
        self.asked_at: Millis = 0
        self.streams = 0
        self.is_cancelled = False


class Ongoing:
    """One run; `now` is the time of whoever looks after it."""

    def __init__(self, run: str, work: BuildWork, now: Millis, asked: Asked | None = None) -> None:
        """`asked` is None of a run that another process has submitted."""
        self.run = run
        self.asked = asked
        self.work = work
        # Its inputs are in use since then.
        self.accepted_at = now if asked is None else asked.since
        # The coordinator knows it.
        self.is_submitted = True
        # It had ended before it was looked at here.
        self.is_past = False
        # When its run was made: that may have been long before somebody joined it.
        self.queued_at = now
        # When somebody last asked for it, if nobody is listening.
        self.asked_at = now
        self.stage = Stage.QUEUED
        self.worker = ""
        self.conclusion: Conclusion | None = None
        self.operations: dict[str, Operation] = {}
        # It is known how it ended, or that another has to take its place.
        self.is_over = False
        self.successor: Ongoing | None = None
        # Why it will not go on by itself, if it was parked.
        self.parked = ""
        self._result: bytes | None = None
        self._fence: Fence = 0
        self._error = ""
        # How often there was something new, and who waits for the next time.
        self.changes = 0
        self._waiting: dict[asyncio.Future[bool], None] = {}

    @property
    def is_listened_to(self) -> bool:
        """Whether any client is there that wants to hear of it."""
        return any(each.streams for each in self.operations.values())

    def operation(self, name: OperationName) -> Operation:
        """One client's wait, by its name; also of one that another process has begun."""
        found = self.operations.get(name.number)
        if found is None:
            found = self.operations[name.number] = Operation(name)
        return found

    async def has_changed(self, seen: int, within_s: float) -> bool:
        """Wait for something new since `changes` were seen; no if there was nothing for so long.

        Every action is waited for twice or more, so this is a future and a timer, and not a task.
        """
        if self.changes != seen:
            return True
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[bool] = loop.create_future()
        self._waiting[waiting] = None
        timer = loop.call_later(within_s, _answer, waiting, False)
        try:
            return await waiting
        finally:
            timer.cancel()
            self._waiting.pop(waiting, None)

    async def settled(self) -> None:
        """Wait until what is known to have ended can be told, too."""
        while self.is_over and self.conclusion is None and self.successor is None:
            await self.has_changed(self.changes, SETTLE_S)

    def tell(self) -> None:
        """There is something new."""
        self.changes += 1
        for waiting in self._waiting:
            _answer(waiting, True)

    def hear(self, change: RunChange, conclude: Callable[[Conclusion], None]) -> None:
        """Something became durable; `conclude` is given the end."""
        match change:
            case ch.LeaseGranted():
                self.worker = change.worker
            case ch.AttemptStarted():
                self._move(Stage.EXECUTING)
            case ch.LeaseReturned():
                if change.state is NEEDS_ATTENTION:
                    self.parked = change.cause
                self._move(Stage.QUEUED)
            case ch.AttemptEnded():
                self._result = change.result if change.state is SUCCESS else None
                self._fence, self._error = change.fence, change.error
                if change.state not in TERMINAL:
                    self._move(Stage.QUEUED)
            case ch.TaskEnded():
                self._error = change.error
                if change.state is NEEDS_ATTENTION:
                    self.parked = change.error
            case ch.RunEnded():
                conclude(self._concluded(change.state, change.reason))
            case _:
                pass

    def read(self, run: RunView, task: TaskView | None, conclude: Callable[[Conclusion], None]) -> None:
        """How it stands, for whoever has not heard everything."""
        self.queued_at = run.created_at
        if task is not None:
            self.worker = task.worker
            self._result, self._fence, self._error = task.result, task.fence, task.error
            self.parked = task.error if task.state is NEEDS_ATTENTION else ""
        if run.state in RUN_TERMINAL:
            conclude(self._concluded(run.state, run.reason))
        else:
            self._move(Stage.EXECUTING if task is not None and task.state is RUNNING else Stage.QUEUED)

    def end(self, conclusion: Conclusion) -> None:
        """It is over, and everybody is told."""
        self.conclusion = conclusion
        self.stage = Stage.COMPLETED
        self.tell()

    def _concluded(self, state: RunState, reason: str) -> Conclusion:
        if self.parked:
            return Conclusion(RunState.FAILED, error=self.parked, reason=reason)
        return Conclusion(state, self._result, self._fence, self._error or reason, reason)

    def _move(self, stage: Stage) -> None:
        if not self.is_over and stage is not self.stage:
            self.stage = stage
            self.tell()


def _answer(waiting: "asyncio.Future[bool]", is_new: bool) -> None:
    if not waiting.done():
        waiting.set_result(is_new)
