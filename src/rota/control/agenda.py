"""The safety net in slices: what one pass over everything still has to ask, a few questions in each turn.

So a pass cannot hold up the loop however much there is to look at. One that takes longer than its period is not
overtaken by the next, and a phase that fails is over while the others still run.
"""

from collections import deque
from collections.abc import Iterator

from rota.core.commands import Command
from rota.core.ids import Millis
from rota.core.state import State
from rota.core.step import PHASES, look_again

DONE = "done"
FAILED = "failed"
LATE = "late"


class Agenda:
    """The questions of one pass, and how the passes went."""

    def __init__(self) -> None:
        self.phases: deque[Iterator[Command]] = deque()
        # Passes that came to their end, without and with an error, and periods that began before that.
        self.passes: dict[str, int] = dict.fromkeys((DONE, FAILED, LATE), 0)
        self.took_ms: Millis = 0
        self._begun_at: Millis = 0
        self._outcome = DONE

    def __bool__(self) -> bool:
        return bool(self.phases)

    def begin(self, state: State, now: Millis) -> None:
        """A period is over: the next pass begins, unless the last one is still under way."""
        if self.phases:
            self.passes[LATE] += 1
            return
        self._begun_at, self._outcome = now, DONE
        self.phases.extend(phase(state, now) for phase in PHASES)
        look_again(state)

    def take(self, now: Millis) -> Command | Exception | None:
        """The next question, or what a phase met, or nothing at the end of a phase."""
        try:
            command = next(self.phases[0], None)
        except Exception as error:
            self._outcome = FAILED
            self._leave(now)
            return error
        if command is None:
            self._leave(now)
        return command

    def _leave(self, now: Millis) -> None:
        self.phases.popleft()
        if not self.phases:
            self.passes[self._outcome] += 1
            self.took_ms = now - self._begun_at
