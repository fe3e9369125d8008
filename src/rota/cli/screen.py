"""A terminal that a command has to itself: drawn over, asked for keys, and given back as it was whatever happens."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"


def size() -> tuple[int, int]:
    """Columns and rows; some terminals do not say."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        columns, rows = 0, 0
    return columns or 80, rows or 24


class Screen:
    """What is drawn on, and the keys that are pressed meanwhile."""

    def __init__(self) -> None:
        self.quit = asyncio.Event()
        self.is_terminated = False
        # Set when it should be drawn anew: the terminal has another size, or somebody wants to see it now.
        self.stale = asyncio.Event()

    def draw(self, lines: Sequence[str]) -> None:
        """Draw over what was there. The last line has no end: a full screen must not scroll."""
        sys.stdout.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
        sys.stdout.flush()

    def take(self, keys: bytes) -> None:
        """Keys were pressed; none at all: whoever pressed them is gone."""
        if not keys or any(key in b"qQ\x04" for key in keys):
            self.quit.set()
        self.stale.set()

    def terminate(self) -> None:
        """The process is asked to end."""
        self.is_terminated = True
        self.quit.set()
        self.stale.set()


@contextmanager
def taken() -> Generator[Screen]:
    """The terminal, until the end of this."""
    screen = Screen()
    loop = asyncio.get_running_loop()
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    undo: list[Callable[[], object]] = []
    try:
        # Keys come one by one and are not shown; Ctrl-C is still a signal.
        tty.setcbreak(fd)
        sys.stdout.write(_ENTER)
        loop.add_reader(fd, lambda: screen.take(os.read(fd, 100)))
        undo.append(lambda: loop.remove_reader(fd))
        for number, heard in ((signal.SIGWINCH, screen.stale.set), (signal.SIGTERM, screen.terminate)):
            loop.add_signal_handler(number, heard)
            undo.append(lambda number=number: loop.remove_signal_handler(number))
        yield screen
    finally:
        for each in undo:
            each()
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
