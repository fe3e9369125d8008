"""A run's progress on a terminal: a line for each task while there are few, counts when there are many.

Where nobody watches, each end of an attempt is one line.
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from rota.client.happenings import Happening
from rota.core.questions import TaskView
from rota.core.states import TERMINAL, TaskState

LINES_MAX = 20
REDRAW_S = 0.1
_BAR_CHARS = 30
_COLOURS = {"success": "32", "failed": "31", "up_for_retry": "33", "running": "36", "upstream_failed": "31"}
_SIGNS = {"success": "✓", "failed": "✗", "running": "▶", "up_for_retry": "↻", "skipped": "–", "upstream_failed": "✗"}


class Progress:
    """Draws what happens to one run."""

    def __init__(
        self, tasks: list[TaskView], began_at: int, explain: Callable[[str], str], out: TextIO = sys.stderr
    ) -> None:
        """`explain` says why a task waits; it is asked about tasks that are tried again."""
        self.names = {view.idx: view.id for view in tasks}
        self.states: dict[int, str] = {view.idx: view.state for view in tasks}
        self.notes: dict[int, str] = {}
        self.began_at = began_at
        self._out = out
        self._live = out.isatty()
        self._drawn = 0
        self._drawn_at = 0.0
        self._attempts: dict[int, int] = {}
        self._explain = explain

    def take(self, happening: Happening) -> None:
        """Something happened."""
        task = happening.task
        if task is None or not happening.state:
            return
        self.states[task] = happening.state
        if happening.attempt:
            self._attempts[task] = happening.attempt
        self.notes[task] = self._note(task, happening)
        if self._live:
            # A few lines are drawn with each change; the next one may be long in coming.
            if len(self.states) <= LINES_MAX or time.monotonic() - self._drawn_at > REDRAW_S:
                self.draw()
        elif happening.what in ("AttemptEnded", "TasksSettled", "TaskEnded", "LeaseReturned"):
            seconds = (happening.at - self.began_at) / 1000
            self._out.write(f"{seconds:8.3f} s  {self._name(task)}: {happening.state}{self.notes[task]}\n")
            if happening.state == "up_for_retry":
                self._out.write(f"{'':10}  why it waits: {self._explain(self._name(task))}\n")

    def _name(self, task: int) -> str:
        return self.names.get(task, f"task {task}")

    def _note(self, task: int, happening: Happening) -> str:
        attempt = self._attempts.get(task, 0)
        note = f" (attempt {attempt})" if attempt > 1 or happening.state == "up_for_retry" else ""
        lines = happening.error.strip().splitlines()
        if self._live and happening.state == "up_for_retry":
            return f"{note}: {self._explain(self._name(task))}"
        return f"{note}: {lines[-1]}" if lines else note

    def draw(self) -> None:
        """Draw the whole picture over the last one."""
        if not self._live:
            return
        self._drawn_at = time.monotonic()
        lines = self._few() if len(self.states) <= LINES_MAX else self._many()
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}F")
        for line in lines:
            self._out.write(f"\x1b[2K{line}\n")
        self._drawn = len(lines)
        self._out.flush()

    def _few(self) -> list[str]:
        width = max((len(name) for name in self.names.values()), default=0)
        return [
            f"  {_SIGNS.get(state, '·')} {self._name(task):<{width}}  {_paint(state)}{self.notes.get(task, '')}"
            for task, state in self.states.items()
        ]

    def _many(self) -> list[str]:
        counts: dict[str, int] = {}
        for state in self.states.values():
            counts[state] = counts.get(state, 0) + 1
        ended = sum(count for state, count in counts.items() if TaskState(state) in TERMINAL)
        full = _BAR_CHARS * ended // max(1, len(self.states))
        shown = ", ".join(f"{count} {_paint(state)}" for state, count in sorted(counts.items()))
        return [f"  [{'█' * full}{'·' * (_BAR_CHARS - full)}] {ended} of {len(self.states)}", f"  {shown}"]


def _paint(state: str) -> str:
    return f"\x1b[{_COLOURS[state]}m{state}\x1b[0m" if state in _COLOURS else state
