"""From durable changes to what people watch: which task went where, and when."""

from collections.abc import Iterator

from msgspec import Struct

from rota.core import changes as ch
from rota.core.ids import Millis
from rota.core.states import ASSIGNED, NONE, QUEUED, RUNNING
from rota.core.story import RunChange, describe


class Happening(Struct, frozen=True, kw_only=True):
    """One thing that happened to a run, or to one of its tasks.

    `state` is where the task or run is afterwards; empty if it did not move. `what` is the name of the change, and
    `text` tells it.
    """

    at: Millis
    what: str
    task: int | None
    state: str
    text: str
    worker: str = ""
    attempt: int = 0
    error: str = ""


def happenings(at: Millis, change: RunChange) -> Iterator[Happening]:
    """What a change means for each task it is about."""
    what = type(change).__name__
    text = describe(change)
    match change:
        case ch.TasksScheduled() | ch.TasksSettled() | ch.TasksReset():
            state = {"TasksScheduled": QUEUED, "TasksReset": NONE}.get(what) or getattr(change, "state", NONE)
            for task in change.tasks:
                yield Happening(at=at, what=what, task=task, state=state, text=text)
        case ch.LeaseGranted():
            yield Happening(
                at=at,
                what=what,
                task=change.task,
                state=ASSIGNED,
                text=text,
                worker=change.worker,
                attempt=change.attempt,
            )
        case ch.AttemptStarted():
            yield Happening(at=at, what=what, task=change.task, state=RUNNING, text=text)
        case ch.AttemptEnded():
            yield Happening(at=at, what=what, task=change.task, state=change.state, text=text, error=change.error)
        case ch.LeaseReturned():
            yield Happening(at=at, what=what, task=change.task, state=change.state, text=text, error=change.cause)
        case ch.TaskEnded():
            yield Happening(at=at, what=what, task=change.task, state=change.state, text=text, error=change.error)
        case ch.TaskRequeued():
            yield Happening(at=at, what=what, task=change.task, state=QUEUED, text=text)
        case ch.RunEnded():
            yield Happening(at=at, what=what, task=None, state=change.state, text=text, error=change.reason)
        case ch.RunSubmitted():
            yield Happening(at=at, what=what, task=None, state=change.row.state, text=text)
        case ch.RunStarted():
            yield Happening(at=at, what=what, task=None, state="running", text=text)
        case ch.RunReopened():
            yield Happening(at=at, what=what, task=None, state="queued", text=text)
        case _:
            yield Happening(at=at, what=what, task=getattr(change, "task", None), state="", text=text)
