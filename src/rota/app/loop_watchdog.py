"""Reports pauses of the event loop, with the line of code that caused each.

A thread asks the loop for a sign of life every few milliseconds. When none comes in time, the thread reads the stack of
the loop's thread. A call into C that holds the interpreter lock delays the thread too, but the lock is passed on
right where that call returns, so the stack still shows it.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from msgspec import Struct

from rota.control.events import Level, Tell

# A turn that lasts longer is reported.
TURN_MS_MAX = 100
# How often the loop is asked. A pause is measured from the first question it does not answer, so this much of it is
# not seen, and is left off the bound.
ASK_EVERY_MS = 20
# A stall that repeats is one line in this time.
TELL_EVERY_S = 1.0
_PACKAGE = f"{Path(__file__).parents[1]}/"
_FRAMES_MAX = 4


class Pause(Struct, frozen=True, kw_only=True):
    """One pause: how long nothing was answered, how much of it the loop's thread computed, and where."""

    pause_ms: int
    cpu_ms: int
    task: str
    cause: str


class LoopWatchdog:
    """Watches one loop, from `start` to `stop`."""

    def __init__(self, report: Callable[[Pause], None], *, turn_ms_max: int = TURN_MS_MAX) -> None:
        """`report` is called in the watchdog's thread."""
        self.longest_ms = 0
        self._report = report
        self._patience_s = (turn_ms_max - ASK_EVERY_MS) / 1000
        self._stopping = threading.Event()
        self._answered = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; call it on the loop that is to be watched."""
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, args=(loop, ident), name="rota-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End. The thread is not waited for: it may be waiting for the caller."""
        self._stopping.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        clock = time.pthread_getcpuclockid(ident)
        while not self._stopping.wait(ASK_EVERY_MS / 1000):
            self._answered.clear()
            began, computed = time.monotonic(), time.clock_gettime(clock)
            try:
                loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:
                # The loop is closed.
                return
            if self._answered.wait(self._patience_s):
                continue
            frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage] - public by its documentation
            task = asyncio.current_task(loop)
            cause, name = describe(frame), task.get_name() if task is not None else ""
            del frame, task
            while not self._answered.wait(ASK_EVERY_MS / 1000):
                if self._stopping.is_set() or loop.is_closed():
                    return
            pause_ms = round((time.monotonic() - began) * 1000)
            cpu_ms = round((time.clock_gettime(clock) - computed) * 1000)
            self.longest_ms = max(self.longest_ms, pause_ms)
            self._report(Pause(pause_ms=pause_ms, cpu_ms=cpu_ms, task=name, cause=cause))


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

    def __init__(self, tell: Callable[[Tell], None], loop: asyncio.AbstractEventLoop) -> None:
        self._tell = tell
        self._loop = loop
        self._told_at = 0.0
        self._left_out = 0

    def __call__(self, pause: Pause) -> None:
        """Called in the watchdog's thread; the line is written on the loop."""
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
        try:
            self._loop.call_soon_threadsafe(self._tell, Tell("loop.paused", about, Level.WARNING))
        except RuntimeError:
            # The loop is closed.
            return
