"""The end of a story: what happened last to a run, or all that happened to one of its tasks, and no more than fits."""

import asyncio
import re
from collections import deque
from collections.abc import Iterable

from msgspec import Struct, structs

from rota.client.happenings import Names
from rota.core.changes import AttemptEnded, LeaseGranted
from rota.core.history import GetStories
from rota.core.ids import Millis
from rota.core.questions import RunView
from rota.core.records import Story
from rota.core.spans import show_span
from rota.core.story import RunChange, is_told, read_story, tell
from rota.core.tags import tag_of
from rota.ui.reading import Reader

LINES_KEPT_MAX = 100
# Of a run that does not grow so many commits are enough for that many lines, as a rule.
PARTS_READ_MAX = 200
LINE_CHARS_MAX = 400
NAMED_MAX = 5
# After so many commits others have their turn.
PARTS_AT_ONCE = 20

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Line(Struct, frozen=True):
    """One thing that happened."""

    at: Millis
    what: str
    text: str


class Tale:
    """Lines of a story, the last ones; of one task if it is named."""

    def __init__(self, names: Names, task: str = "") -> None:
        self.lines: deque[Line] = deque(maxlen=LINES_KEPT_MAX)
        self.is_cut = False
        # Who had the task last, and as which attempt; a task that has ended does not say, or does not count it.
        self.worker = ""
        self.attempt = 0
        self.names = names
        self._heard = -1
        self._task = task

    def hear(self, part: Story) -> None:
        """One commit more; one that was told already is not told again."""
        if part.number <= self._heard:
            return
        self._heard = part.number
        for change in read_story(part):
            self.names.heard(change)
            if is_told(change) and (not self._task or self.names.is_about(change, self._task)):
                self.is_cut = self.is_cut or len(self.lines) == LINES_KEPT_MAX
                if isinstance(change, LeaseGranted):
                    self.worker, self.attempt = change.worker, change.attempt
                self.lines.append(Line(part.at, _name(change), self._tell(change, part.at)))

    async def hear_all(self, parts: Iterable[Story]) -> None:
        """Many, without keeping others waiting."""
        for number, part in enumerate(parts, 1):
            self.hear(part)
            if number % PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _tell(self, change: RunChange, at: Millis) -> str:
        change, more = _shorten(change, at)
        tasks: tuple[int, ...] = getattr(change, "tasks", ())
        if self._task and len(tasks) > 1:
            change = structs.replace(change, tasks=tasks[:1])  # pyright: ignore[reportCallIssue] - it has tasks
        elif len(tasks) > NAMED_MAX:
            change = structs.replace(change, tasks=tasks[:NAMED_MAX])  # pyright: ignore[reportCallIssue] - likewise
            more += f" and {len(tasks) - NAMED_MAX:,} more"
        # On the page of a task its name need not be said again.
        namer = _unsaid if self._task else self.names.name
        text = tell(change, namer).strip()
        return (text if len(text) <= LINE_CHARS_MAX else f"{text[:LINE_CHARS_MAX]}…") + more


async def read_tale(reader: Reader, view: RunView, task: str = "") -> Tale:
    """What is told of a run so far."""
    graph = await reader.graph(view.graph)
    # Names of tasks that came later are told where the run grew, which may be long ago.
    is_all = bool(task) or graph.unknown > 0 or view.total > graph.total
    first = 0 if is_all else max(0, view.story - PARTS_READ_MAX)
    question = GetStories(tenant=view.tenant, run=view.id, created_at=view.created_at, first=first)
    parts: list[Story] = await reader.ask(question)
    tale = Tale(await reader.names(view, parts), task)
    await tale.hear_all(parts)
    tale.is_cut = tale.is_cut or first > 0
    return tale


async def go_on(reader: Reader, tale: Tale, parts: list[Story]) -> None:
    """Tell what came since."""
    await reader.learn_moves(tale.names, parts)
    await tale.hear_all(parts)


def _shorten(change: RunChange, at: Millis) -> tuple[RunChange, str]:
    """Of an instant to come, how far it is away."""
    if not isinstance(change, AttemptEnded):
        return change, ""
    more = f"  again in {show_span(change.due_at - at)}" if change.due_at > at else ""
    return structs.replace(change, due_at=0), more


def _unsaid(_: int) -> str:
    return ""


def _name(change: RunChange) -> str:
    """`LeaseGranted` is read as `lease granted`."""
    return _WORDS.sub(" ", tag_of(change)).lower()
