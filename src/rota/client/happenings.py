"""From durable changes to what people watch: which task went where, and when."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs

from rota.core import changes as ch
from rota.core.graph import LiveGraph
from rota.core.ids import Millis
from rota.core.records import Growth, Story
from rota.core.states import ASSIGNED, NONE, QUEUED, RUNNING
from rota.core.story import Namer, RunChange, is_told, read_story, tell
from rota.core.tags import tag_of


class Happening(Struct, frozen=True, kw_only=True):
    """One thing that happened to a run, or to one of its tasks.

    `task` is the task's id, and `idx` its number; None if it happened to the run. `state` is where the task or run is
    afterwards; empty if it did not move. `what` is the name of the change, and `text` tells the rest of it.
    """

    at: Millis
    what: str
    task: str | None = None
    idx: int | None = None
    state: str = ""
    text: str
    worker: str = ""
    attempt: int = 0
    error: str = ""


def happenings(at: Millis, change: RunChange, namer: Namer = str) -> Iterator[Happening]:
    """What a change means for each task it is about; `namer` gives tasks their ids."""
    what = tag_of(change)
    text = "" if isinstance(change, ch.TasksScheduled | ch.TasksReset | ch.TasksSettled) else tell(change, namer)

    def of_task(
        idx: int, state: str, error: str = "", worker: str = "", attempt: int = 0, text: str = text
    ) -> Happening:
        return Happening(
            at=at,
            what=what,
            task=namer(idx),
            idx=idx,
            state=state,
            text=text,
            worker=worker,
            attempt=attempt,
            error=error,
        )

    def of_run(state: str, error: str = "") -> Happening:
        return Happening(at=at, what=what, state=state, text=text, error=error)

    match change:
        case ch.TasksScheduled() | ch.TasksReset() | ch.TasksSettled():
            for idx in change.tasks:
                # Each told alone: a thousand tasks that all name a thousand are a million names.
                alone = tell(structs.replace(change, tasks=(idx,)), namer)
                yield of_task(idx, _gone_to(change), text=alone)
        case ch.LeaseGranted():
            yield of_task(change.task, ASSIGNED, worker=change.worker, attempt=change.attempt)
        case ch.AttemptStarted():
            yield of_task(change.task, RUNNING)
        case ch.AttemptEnded() | ch.TaskEnded():
            yield of_task(change.task, change.state, change.error)
        case ch.TaskMarked():
            yield of_task(change.task, change.state)
        case ch.LeaseReturned():
            yield of_task(change.task, change.state, change.cause)
        case ch.TaskRequeued():
            yield of_task(change.task, QUEUED)
        case ch.RunEnded():
            yield of_run(change.state, change.reason)
        case ch.RunSubmitted():
            yield of_run(change.row.state)
        case ch.RunStarted():
            yield of_run("running")
        case ch.RunReopened():
            yield of_run("queued")
        case (
            ch.TaskAmended()
            | ch.TaskNoted()
            | ch.TaskStarved()
            | ch.ReportRefused()
            | ch.RevokedLeaseEnded()
            | ch.TokenReplaced()
        ):
            yield of_task(change.task, "")
        case _:
            yield of_run("")


def _gone_to(change: ch.TasksScheduled | ch.TasksReset | ch.TasksSettled) -> str:
    match change:
        case ch.TasksScheduled():
            return QUEUED
        case ch.TasksReset():
            return NONE
        case ch.TasksSettled():
            return change.state


_MOVED = tag_of(ch.RunMoved).encode()


def moves_of(parts: Iterable[Story]) -> list[str]:
    """The graphs that a run was of, the first and each that it was moved to; none if it was never moved."""
    told = list(parts)
    # As it is written in a story. Other words may contain it: then it is looked for in vain.
    if not any(_MOVED in part.changes for part in told):
        return []
    found: list[str] = []
    for part in told:
        for change in read_story(part):
            if isinstance(change, ch.RunSubmitted):
                found.append(change.row.graph)
            elif isinstance(change, ch.RunMoved):
                found.append(change.graph)
    return found


class Names:
    """Reads stories with the names of their tasks, also of those that came later; each has to pass here.

    `graphs` are those that the run was moved to, by digest: a task has another number there. One that is gone, as may
    be the one that a run was of before it was moved, is None: then numbers have to do.
    """

    def __init__(self, graph: LiveGraph | None, graphs: Mapping[str, LiveGraph | None] | None = None) -> None:
        self._graph = graph
        self._graphs = dict(graphs or {})

    def know(self, digest: str, graph: LiveGraph | None) -> None:
        """One more graph that the run may be moved to."""
        self._graphs[digest] = graph

    def learn(self, story: Story) -> None:
        """Only the names."""
        for change in read_story(story):
            self.heard(change)

    def read(self, story: Story) -> Iterator[Happening]:
        """What one commit changed."""
        for change in read_story(story):
            self.heard(change)
            if is_told(change):
                yield from happenings(story.at, change, self.name)

    def heard(self, change: RunChange) -> None:
        """A change whose tasks have their names from here on."""
        if isinstance(change, ch.RunGrew):
            self._grow(change.growth)
        elif isinstance(change, ch.RunMoved):
            self._graph = self._graphs.get(change.graph)
            for growth in change.growths:
                self._grow(growth)

    def _grow(self, growth: Growth) -> None:
        if self._graph is not None:
            self._graph = self._graph.grown(growth)

    def is_about(self, change: RunChange, task: str) -> bool:
        """Whether a change concerns the task of that name."""
        if isinstance(change, ch.RunMoved):
            return False
        one: int | None = getattr(change, "task", None)
        several: tuple[int, ...] = getattr(change, "tasks", ())
        return any(self.name(idx) == task for idx in (several if one is None else (one,)))

    def name(self, idx: int) -> str:
        """A task's id."""
        graph = self._graph
        return graph.task_id(idx) if graph is not None and 0 <= idx < graph.total else str(idx)
