"""One run of an action as those see it who wait for it: how far it is, who waits, and how it ended."""

from enum import IntEnum

from msgspec import Struct

from rota.core import changes as ch
from rota.core.ids import NO_FENCE, Fence, Millis
from rota.core.questions import RunView, TaskView
from rota.core.states import NEEDS_ATTENTION, RUN_TERMINAL, RUNNING, TERMINAL, RunState
from rota.core.story import RunChange
from rota.kinds.build.naming import OperationName
from rota.kinds.build.scheduling import Asked
from rota.wire.builds import BuildWork


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
    fence: Fence = NO_FENCE
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
        self._fence: Fence = NO_FENCE
        self._error = ""

    @property
    def is_listened_to(self) -> bool:
        """Whether any client is there that wants to hear of it."""
        return any(each.streams for each in self.operations.values())

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing known of it that cannot be told yet."""
        return not self.is_over or self.conclusion is not None or self.successor is not None

    def operation(self, name: OperationName) -> Operation:
        """One client's wait, by its name; also of one that another process has begun."""
        found = self.operations.get(name.number)
        if found is None:
            found = self.operations[name.number] = Operation(name)
        return found

    def listed(self) -> list[Operation]:
        """Its operations; of a run that another process has submitted, one that stands for the clients there.

        A run that was submitted here and has no operation yet gets its client's in a moment. Until then it is not
        listed: cancelling a stand-in would leave that client waiting.
        """
        if self.operations or self.asked is not None:
            return list(self.operations.values())
        return [Operation(OperationName(self.work.instance, self.run, "0"))]

    def hear(self, change: RunChange) -> Conclusion | None:
        """Something became durable; the answer is the end, if that is it."""
        match change:
            case ch.LeaseGranted():
                self.worker = change.worker
            case ch.AttemptStarted():
                self.stage = Stage.EXECUTING
            case ch.LeaseReturned():
                if change.state is NEEDS_ATTENTION:
                    self.parked = change.cause
                self.stage = Stage.QUEUED
            case ch.AttemptEnded():
                # A failed action has one, too.
                self._result = change.result if change.state in TERMINAL else None
                self._fence, self._error = change.fence, change.error
                if change.state not in TERMINAL:
                    self.stage = Stage.QUEUED
            case ch.TaskEnded():
                self._error = change.error
                if change.state is NEEDS_ATTENTION:
                    self.parked = change.error
            case ch.RunEnded():
                return self._concluded(change.state, change.reason)
            case _:
                pass
        return None

    def read(self, run: RunView, task: TaskView | None) -> Conclusion | None:
        """How it stands, for whoever has not heard everything."""
        self.queued_at = run.created_at
        if task is not None:
            self.worker = task.worker
            self._result, self._fence, self._error = task.result, task.fence, task.error
            self.parked = task.error if task.state is NEEDS_ATTENTION else ""
        if run.state in RUN_TERMINAL:
            return self._concluded(run.state, run.reason)
        self.stage = Stage.EXECUTING if task is not None and task.state is RUNNING else Stage.QUEUED
        return None

    def end(self, conclusion: Conclusion) -> None:
        """It is over, and can be told."""
        self.is_over = True
        self.conclusion = conclusion
        self.stage = Stage.COMPLETED

    def _concluded(self, state: RunState, reason: str) -> Conclusion:
        if self.parked:
            return Conclusion(RunState.FAILED, error=self.parked, reason=reason)
        return Conclusion(state, self._result, self._fence, self._error or reason, reason)
