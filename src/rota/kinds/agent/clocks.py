"""The clock of the mechanical scheduler, where nobody brings another one."""

import asyncio
import time

from rota.core.ids import Millis


class SteadyClock:
    """Wall time at the start, steady from there: it never runs back, whatever the day is set to."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def now(self) -> Millis:
        """Milliseconds, UTC."""
        return (time.monotonic_ns() + self._offset) // 1_000_000

    async def wait(self, ms: Millis) -> None:
        """Return after so long."""
        await asyncio.sleep(ms / 1000)
