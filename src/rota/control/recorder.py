"""What a recorder of metrics is told of a coordinator: every decision, move, step-down and return to leadership.

Nothing is decided here. The driver calls `RecorderFeed` after each turn; it compares the coordinator's own counts with
those of the turn before, so that a recorder is told exactly what the coordinator's metrics show.
"""

from collections.abc import Mapping
from typing import Protocol

from rota.control.coordinator import Coordinator
from rota.control.loop import Loop


class Recorder(Protocol):
    """Records metrics of a coordinator. Called in its event loop, once for each event: it has to return at once."""

    def record_scheduler_decision(self, decision: str) -> None:
        """The scheduler decided something; the values are those of `rota_scheduler_decisions_total`."""
        ...

    def record_task_transition(self, here: str, there: str, graph: str) -> None:
        """A task of a run of `graph` moved from one state to another."""
        ...

    def record_undispatchable(self, reason: str) -> None:
        """A task was queued that no registered worker could run; `reason` is the code that `rota why` gives."""
        ...

    def record_scheduler_step_down(self, reason: str) -> None:
        """The coordinator gave up its leadership, or its attempt to get it."""
        ...

    def observe_scheduler_reacquire(self, seconds: float) -> None:
        """The coordinator leads again, so long after it stepped down."""
        ...


class RecorderFeed:
    """Tells one recorder what has been counted since it was attached."""

    def __init__(self, recorder: Recorder, machine: Coordinator) -> None:
        self.recorder = recorder
        self._machine = machine
        self._loop = machine.loop
        self._step_downs = self._count_step_downs()
        self._decisions = _decisions(self._loop)
        self._undispatchable = _undispatchable(self._loop)

    def turned(self) -> None:
        """The coordinator took a turn."""
        loop, recorder = self._machine.loop, self.recorder
        if loop is not self._loop:
            # The counts of a state begin at zero.
            self._loop, self._decisions, self._undispatchable = loop, {}, {}
        if loop is not None:
            for (graph, here, there), count in loop.tally.moved.items():
                for _ in range(count):
                    recorder.record_task_transition(here, there, graph)
        decisions, undispatchable = _decisions(loop), _undispatchable(loop)
        for decision in _news(self._decisions, decisions):
            recorder.record_scheduler_decision(decision)
        for reason in _news(self._undispatchable, undispatchable):
            recorder.record_undispatchable(reason)
        step_downs = self._count_step_downs()
        for cause in _news(self._step_downs, step_downs):
            recorder.record_scheduler_step_down(cause)
        self._decisions, self._undispatchable, self._step_downs = decisions, undispatchable, step_downs

    def reacquired(self, seconds: float) -> None:
        """The coordinator leads again after having stepped down so long ago."""
        self.recorder.observe_scheduler_reacquire(seconds)

    def _count_step_downs(self) -> dict[str, int]:
        return {cause.value: count for cause, count in self._machine.leadership.standing.step_downs.items()}


def _decisions(loop: Loop | None) -> dict[str, int]:
    return {} if loop is None else loop.tally.decisions(loop.state)


def _undispatchable(loop: Loop | None) -> dict[str, int]:
    return {} if loop is None else dict(loop.state.undispatchable)


def _news(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Each key as often as its count has grown."""
    return [key for key, count in after.items() for _ in range(count - before.get(key, 0))]
