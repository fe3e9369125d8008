"""The clock of a process."""

import time

from rota.core.ids import Millis

# The one that also counts while the machine is suspended, where there is one: leases elsewhere end meanwhile.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Wall time at the start, steady from there: it never runs back and never jumps, whatever the day is set to."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.clock_gettime_ns(_STEADY)

    def __call__(self) -> Millis:
        return (time.clock_gettime_ns(_STEADY) + self._offset) // 1_000_000


def wall_clock() -> Millis:
    """The time of day."""
    return time.time_ns() // 1_000_000
