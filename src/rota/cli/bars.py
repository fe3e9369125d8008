"""Bars and colours on a terminal: how far something is, while somebody watches; no colour where none is wanted."""

import os
import sys
import time
from typing import TextIO

BAR_CHARS = 30
REDRAW_S = 0.1


def bar(done: float, total: float, width: int = BAR_CHARS) -> str:
    """How much of something is done."""
    full = min(width, int(width * done / total)) if total > 0 else 0
    return "█" * full + "·" * (width - full)


def has_colour(out: TextIO) -> bool:
    """Whether colours are wanted there: on a terminal that has some, unless `NO_COLOR` says otherwise."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Bar:
    """One line on a terminal that says how far something is, and is gone when it is done."""

    def __init__(self, what: str, out: TextIO | None = None) -> None:
        self._what = what
        self._out = sys.stderr if out is None else out
        self._live = self._out.isatty()
        self._drawn_at = 0.0

    def show(self, done: int, total: int) -> None:
        """So much is done; drawn a few times a second at most."""
        now = time.monotonic()
        if self._live and (now - self._drawn_at >= REDRAW_S or done >= total):
            self._drawn_at = now
            self._out.write(f"\r[{bar(done, total)}] {done:,} of {total:,} {self._what}\x1b[K")
            self._out.flush()

    def clear(self) -> None:
        """Take the line away, for something else to be said."""
        if self._live and self._drawn_at:
            self._drawn_at = 0.0
            self._out.write("\r\x1b[K")
            self._out.flush()
