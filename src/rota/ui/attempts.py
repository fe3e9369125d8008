"""Attempts that a task had, one after another, as the story of its run tells them."""

from collections.abc import Iterable

from msgspec import Struct

from rota.core.changes import AttemptEnded, AttemptStarted, LeaseGranted, LeaseReturned, RunMoved
from rota.core.history import GetStories
from rota.core.ids import Fence, Millis, TaskId
from rota.core.questions import RunView
from rota.core.records import Story
from rota.core.states import FAILED
from rota.core.story import RunChange, read_story
from rota.ui.reading import Reader

# Of a longer story the end is read: what was tried long ago is not shown.
PARTS_READ_MAX = 400
SHOWN_MAX = 20


# An attempt that was handed back is in no state of a task.
INTERRUPTED = "interrupted"


class Past(Struct, frozen=True):
    """One attempt that ended, and as what: interrupted if it was handed back."""

    number: int
    start_at: Millis
    end_at: Millis
    state: str


async def read_attempts(reader: Reader, view: RunView, tasks: dict[int, TaskId]) -> dict[TaskId, list[Past]]:
    """The attempts of these tasks that are over, by name."""
    first = max(0, view.story - PARTS_READ_MAX)
    question = GetStories(tenant=view.tenant, run=view.id, created_at=view.created_at, first=first)
    parts: list[Story] = await reader.ask(question)
    return attempts_in((change for part in parts for change in read_story(part)), tasks)


def attempts_in(changes: Iterable[RunChange], tasks: dict[int, TaskId]) -> dict[TaskId, list[Past]]:
    """The same from what happened."""
    found: dict[TaskId, list[Past]] = {}
    held: dict[Fence, tuple[int, Millis]] = {}
    for change in changes:
        match change:
            case RunMoved():
                # Numbers are those of another definition from here on.
                found.clear()
                held.clear()
            case LeaseGranted() if change.task in tasks:
                held[change.fence] = (change.attempt, change.at)
            case AttemptStarted() if change.fence in held:
                held[change.fence] = (held[change.fence][0], change.at)
            case AttemptEnded() | LeaseReturned() if change.fence in held:
                number, start_at = held.pop(change.fence)
                state = INTERRUPTED
                if isinstance(change, AttemptEnded):
                    # One that is tried again failed, whatever its task is now.
                    state = str(FAILED) if change.failure is not None else str(change.state)
                found.setdefault(tasks[change.task], []).append(Past(number, start_at, change.at, state))
            case _:
                pass
    return {name: past[-SHOWN_MAX:] for name, past in found.items()}
