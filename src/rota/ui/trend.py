"""How things went in the last hour: a few numbers every ten seconds, kept in this process.

They are what the coordinator has counted anyway. A reign begins counting anew, and so does whoever starts again.
"""

import asyncio
from collections import deque
from contextlib import suppress

from msgspec import Struct

from rota.client.runs import Client
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.core.overview import GetOverview, Overview
from rota.core.states import FAILED, NEEDS_ATTENTION, SUCCESS, UPSTREAM_FAILED

STEP_MS = 10_000
STEPS_KEPT = 360

_WELL = (SUCCESS,)
_BADLY = (FAILED, UPSTREAM_FAILED, NEEDS_ATTENTION)


class Step(Struct, frozen=True):
    """What happened until `at`, since the step before, and how long the oldest task had waited then."""

    at: Millis
    well: int
    badly: int
    queued: int
    waited_ms: int


class Trend:
    """The last steps, the newest at the end."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque(maxlen=STEPS_KEPT)
        self._before: Overview | None = None

    def hear(self, now: Overview) -> None:
        """How things stand; too soon after the last time it is not counted yet."""
        before = self._before
        if before is not None and now.epoch == before.epoch and now.as_of - before.as_of < STEP_MS:
            return
        self._before = now
        if before is None or now.epoch != before.epoch:
            # What ended before is not known to have ended lately.
            before = now
        oldest = [line.oldest_at for line in now.queues if line.oldest_at]
        self.steps.append(
            Step(
                now.as_of,
                _ended(now, before, _WELL),
                _ended(now, before, _BADLY),
                sum(line.tasks for line in now.queues),
                max(0, now.as_of - min(oldest)) if oldest else 0,
            )
        )


def _ended(now: Overview, before: Overview, states: tuple[str, ...]) -> int:
    return sum(now.ended.get(state, 0) - before.ended.get(state, 0) for state in states)


async def keep_trend(client: Client, trend: Trend) -> None:
    """Go on hearing how things stand."""
    while True:
        # Who cannot answer just now is asked again.
        with suppress(Refused, Unavailable):
            trend.hear(await client.ask(GetOverview(tenant=client.line.tenant)))
        await asyncio.sleep(STEP_MS / 1000)
