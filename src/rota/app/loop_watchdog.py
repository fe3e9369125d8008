"""Reports pauses of the event loop, with the line of code that caused each.

The loop stamps a heartbeat every few milliseconds and measures the gaps between them itself, so no pause is missed,
also if a call into C, here or in another thread, keeps the interpreter lock all the while. A thread reads the stack of
the loop's thread when a heartbeat is overdue; behind such a call it runs as soon as that returns.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from msgspec import Struct
from msgspec.structs import replace

from rota.control.events import Level, Tell

# A turn that lasts longer is reported.
TURN_MS_MAX = 100
# How often the loop stamps. Up to this much of a gap is the time in which it had nothing to do.
BEAT_EVERY_MS = 20
# A stall that repeats is one line in this time.
TELL_EVERY_S = 1.0
_PACKAGE = f"{Path(__file__).parents[1]}/"
_FRAMES_MAX = 4


class Pause(Struct, frozen=True, kw_only=True):
    """One pause: the gap between two heartbeats, how much of it the loop's thread computed, and where."""

    pause_ms: int
    cpu_ms: int
    # Both are empty if the pause was over before the stack could be read.
    task: str = ""
    cause: str = ""


class _Sample(Struct, frozen=True):
    """What the loop's thread did when the heartbeat after the one of `beat_at` was overdue."""

    beat_at: float
    task: str
    cause: str


class LoopWatchdog:
    """Watches one loop, from `start` to `stop`."""

    def __init__(self, report: Callable[[Pause], None], *, turn_ms_max: int = TURN_MS_MAX) -> None:
        """`report` is called on the loop."""
        self.longest_ms = 0
        self._report = report
        self._turn_s_max = turn_ms_max / 1000
        self._stopping = threading.Event()
        self._beat_at = self._computed_s = 0.0
        self._sample: _Sample | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; call it on the loop that is to be watched."""
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        self._beat_at, self._computed_s = time.monotonic(), time.thread_time()
        loop.call_later(BEAT_EVERY_MS / 1000, self._beat, loop)
        self._thread = threading.Thread(target=self._watch, args=(loop, ident), name="rota-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End. The thread is not waited for: it may be waiting for the caller."""
        self._stopping.set()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._stopping.is_set():
            return
        now, computed_s = time.monotonic(), time.thread_time()
        beat_at, sample = self._beat_at, self._sample
        gap_s, cpu_s = now - beat_at, computed_s - self._computed_s
        self._beat_at, self._computed_s, self._sample = now, computed_s, None
        loop.call_later(BEAT_EVERY_MS / 1000, self._beat, loop)
        if gap_s < self._turn_s_max:
            return
        pause = Pause(pause_ms=round(gap_s * 1000), cpu_ms=round(cpu_s * 1000))
        if sample is not None and sample.beat_at == beat_at:
            pause = replace(pause, task=sample.task, cause=sample.cause)
        self.longest_ms = max(self.longest_ms, pause.pause_ms)
        self._report(pause)

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        wait_s = self._turn_s_max
        while not self._stopping.wait(wait_s) and not loop.is_closed():
            beat_at = self._beat_at
            overdue_s = time.monotonic() - beat_at - self._turn_s_max
            if overdue_s < 0:
                wait_s = -overdue_s
                continue
            wait_s = self._turn_s_max
            if self._sample is None or self._sample.beat_at != beat_at:
                frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage] - public by its documentation
                task = asyncio.current_task(loop)
                self._sample = _Sample(beat_at, task.get_name() if task is not None else "", describe(frame))
                del frame, task


def describe(frame: FrameType | None) -> str:
    """The innermost functions of a stack, the innermost first; those of this package if there are any."""
    lines: list[str] = []
    ours: list[str] = []
    while frame is not None:
        code = frame.f_code
        line = f"{code.co_filename.removeprefix(_PACKAGE)}:{frame.f_lineno} {code.co_qualname}"
        lines.append(line)
        if code.co_filename.startswith(_PACKAGE):
            ours.append(line)
        frame = frame.f_back
    return " < ".join((ours or lines)[:_FRAMES_MAX])


class PauseLog:
    """Tells of pauses as journal lines, at most one a second; a line says how many were left out before it."""

    def __init__(self, tell: Callable[[Tell], None]) -> None:
        self._tell = tell
        self._told_at = 0.0
        self._left_out = 0

    def __call__(self, pause: Pause) -> None:
        """Called on the loop."""
        now = time.monotonic()
        if self._told_at and now - self._told_at < TELL_EVERY_S:
            self._left_out += 1
            return
        about = (
            ("pause_ms", str(pause.pause_ms)),
            ("cpu_ms", str(pause.cpu_ms)),
            ("task", pause.task[:100]),
            ("cause", pause.cause[:500]),
            *((("left_out", str(self._left_out)),) if self._left_out else ()),
        )
        self._told_at, self._left_out = now, 0
        self._tell(Tell("loop.paused", about, Level.WARNING))
