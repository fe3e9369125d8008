"""The clock of a process."""

import time

from rota.core.ids import Millis


class SystemClock:
    """Wall time at the start, monotonic from there: it never runs back and never jumps."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> Millis:
        return (time.monotonic_ns() + self._offset) // 1_000_000


def wall_clock() -> Millis:
    """The time of day."""
    return time.time_ns() // 1_000_000
