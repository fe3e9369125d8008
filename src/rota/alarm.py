"""An alarm clock for drivers: calls at the time a machine asked for, or a little before."""

import asyncio
from collections.abc import Callable

from rota.core.ids import Millis


class Alarm:
    """One call that is due; a machine that is woken early says again when it wants to be."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at: Millis = 0

    def set(self, at: Millis, now: Millis) -> None:
        """Ring at `at` at the latest. An early one does no harm, and moving it with every event would cost more."""
        if self._timer is not None:
            if self._at <= at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().call_later((at - now) / 1000, self._time_came)

    def _time_came(self) -> None:
        self._timer = None
        self._ring()

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
