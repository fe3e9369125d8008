"""A run's progress on a terminal: a line for each task while there are few, counts when there are many.

Where nobody watches, each end of an attempt is one line.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from rota.cli.bars import REDRAW_S, bar, has_colour
from rota.cli.showing import one_line
from rota.core.errors import headline
from rota.core.states import TERMINAL, TaskState

if TYPE_CHECKING:
    from rota.client.happenings import Happening
    from rota.core.questions import TaskView


LINES_MAX = 20
_COLOURS = {"success": "32", "failed": "31", "up_for_retry": "33", "running": "36", "upstream_failed": "31"}
_SIGNS = {"success": "✓", "failed": "✗", "running": "▶", "up_for_retry": "↻", "skipped": "–", "upstream_failed": "✗"}
_ENDS = ("AttemptEnded", "TasksSettled", "TaskEnded", "LeaseReturned")


class Progress:
    """Draws what happens to one run."""

    def __init__(
        self, tasks: "list[TaskView]", began_at: int, explain: Callable[[str], str], out: TextIO | None = None
    ) -> None:
        """`explain` says why a task waits; it is asked about tasks that are tried again."""
        self.names: dict[int, str] = {view.idx: view.id for view in tasks}
        self.states: dict[int, str] = {view.idx: view.state for view in tasks}
        self.notes: dict[int, str] = {}
        self.began_at = began_at
        self._out = sys.stderr if out is None else out
        self._live = self._out.isatty()
        self._has_colour = has_colour(self._out)
        self._drawn = 0
        self._drawn_at = 0.0
        self._attempts: dict[int, int] = {}
        self._explain = explain

    def take(self, happening: "Happening") -> None:
        """Something happened."""
        if happening.what == "RunFaulted":
            self._say(happening, f"the run is held: {happening.text}")
        idx = happening.idx
        if idx is None or not happening.state:
            return
        self.names[idx] = happening.task or str(idx)
        self.states[idx] = happening.state
        if happening.attempt:
            self._attempts[idx] = happening.attempt
        self.notes[idx] = self._note(idx, happening)
        if self._live:
            # A few lines are drawn with each change; the next one may be long in coming.
            if len(self.states) <= LINES_MAX or time.monotonic() - self._drawn_at > REDRAW_S:
                self.draw()
        elif happening.what in _ENDS:
            self._say(happening, f"{self.names[idx]}: {happening.state}{self.notes[idx]}")
            if happening.state == "up_for_retry":
                self._out.write(f"{'':10}  why it waits: {self._explain(self.names[idx])}\n")

    def _say(self, happening: "Happening", text: str) -> None:
        self._out.write(f"{(happening.at - self.began_at) / 1000:8.3f} s  {one_line(text)}\n")
        self._drawn = 0

    def _note(self, idx: int, happening: "Happening") -> str:
        attempt = self._attempts.get(idx, 0)
        note = f" (attempt {attempt})" if attempt > 1 or happening.state == "up_for_retry" else ""
        error = headline(happening.error)
        if self._live and happening.state == "up_for_retry":
            return f"{note}: {self._explain(self.names[idx])}"
        return f"{note}: {error}" if error else note

    def draw(self) -> None:
        """Draw the whole picture over the last one."""
        if not self._live:
            return
        self._drawn_at = time.monotonic()
        columns, rows = self._size()
        lines = self._few(columns) if len(self.states) < min(LINES_MAX + 1, rows) else self._many()
        if self._drawn:
            # Whatever is left of a taller picture goes too.
            self._out.write(f"\x1b[{self._drawn}F\x1b[J")
        for line in lines:
            self._out.write(f"\x1b[2K{line}\n")
        self._drawn = len(lines)
        self._out.flush()

    def _size(self) -> tuple[int, int]:
        try:
            columns, rows = os.get_terminal_size(self._out.fileno())
        except (OSError, ValueError):
            columns, rows = 0, 0
        # Some do not say.
        return columns or 80, rows or 24

    def _few(self, columns: int) -> list[str]:
        """A line for each task. None is wider than the terminal: a line that wraps would not be drawn over."""
        width = min(max((len(name) for name in self.names.values()), default=0), columns // 2)
        lines: list[str] = []
        for idx, state in self.states.items():
            name = one_line(self.names[idx])[:width]
            room = columns - 1 - len(f"  . {name:<{width}}  {state}")
            note = one_line(self.notes.get(idx, ""))
            note = note if len(note) <= room else note[: max(0, room - 1)] + "…"
            lines.append(f"  {_SIGNS.get(state, '·')} {name:<{width}}  {self._paint(state)}{note}")
        return lines

    def _many(self) -> list[str]:
        counts: dict[str, int] = {}
        for state in self.states.values():
            counts[state] = counts.get(state, 0) + 1
        ended = sum(count for state, count in counts.items() if TaskState(state) in TERMINAL)
        shown = ", ".join(f"{count} {self._paint(state)}" for state, count in sorted(counts.items()))
        return [f"  [{bar(ended, len(self.states))}] {ended} of {len(self.states)}", f"  {shown}"]

    def _paint(self, state: str) -> str:
        return f"\x1b[{_COLOURS[state]}m{state}\x1b[0m" if self._has_colour and state in _COLOURS else state
