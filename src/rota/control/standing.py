"""How a coordinator stands as a leader, for those who look at it: is it alive, is it going, how often and how long was
it away.

Only a leader is expected to turn. A follower is idle because it should be, and is healthy. Nothing is decided here; the
epoch and the term decide (docs/protocol.md, P-PROOF).
"""

from enum import StrEnum

from msgspec import Struct

from rota.control.events import Level
from rota.core.ids import Millis

# How many turns may be late, and how late they may be in all, before a leader counts as stalled.
LATE_TURNS = 3
GRACE_MS: Millis = 1_000
# Of cycles that nobody has asked for yet.
REACQUIRES_KEPT = 100


class Cause(StrEnum):
    """Why a reign, or a campaign for one, was given up."""

    NOT_PROVEN = "not_proven"
    LOCK_LOST = "lock_lost"
    STORE_SILENT = "store_silent"
    LOAD_FAILED = "load_failed"
    COMMIT_FENCED = "commit_fenced"
    COMMIT_UNKNOWN = "commit_unknown"
    STORE_REFUSED = "store_refused"


class Heartbeat(Struct, frozen=True):
    """Whether the loop is alive, and when it turned last; 0 if it has not in this reign."""

    is_healthy: bool
    turned_at: Millis


class Standing:
    """One coordinator's standing. `interval_ms` is how often a leader turns even if nothing happens."""

    def __init__(self, interval_ms: Millis) -> None:
        self.interval_ms = interval_ms
        # How often it stepped down, by cause: the rate is what an operator watches.
        self.step_downs: dict[Cause, int] = {}
        self.is_leading = False
        self._led_from: Millis = 0
        self._turned_at: Millis = 0
        self._stepping_down = False
        self._stepped_down_at: Millis = 0
        self._reacquires: list[Millis] = []

    def set_leading(self, on: bool, now: Millis) -> None:
        """It leads from now on, or does no longer. A new reign begins with a clock that has not run out."""
        if on:
            # Whatever was cancelled before has had its time.
            self._stepping_down = False
            self.record_reacquire_since(self._stepped_down_at, now)
            self._stepped_down_at = 0
            self._led_from, self._turned_at = now, 0
        elif self.is_leading:
            self._stepped_down_at = now
        self.is_leading = on

    def turned(self, now: Millis) -> None:
        """The loop begins a turn. Its beginning counts, so that a turn that hangs is seen."""
        self._turned_at = now

    def heartbeat(self, now: Millis) -> Heartbeat:
        """Whether the loop is alive: while it does not lead, for a while after it began to, and while it turns."""
        late_ms = now - max(self._led_from, self._turned_at)
        is_healthy = not self.is_leading or late_ms <= LATE_TURNS * self.interval_ms + GRACE_MS
        return Heartbeat(is_healthy, self._turned_at if self.is_leading else 0)

    def mark_stepping_down(self, cause: Cause) -> None:
        """A reign is being given up: what is cancelled from now on is cancelled on purpose."""
        self.step_downs[cause] = self.step_downs.get(cause, 0) + 1
        self._stepping_down = True

    def begin_anew(self) -> None:
        """The reign goes on, and everything in memory is read again: there is no loop to turn until then.

        What belonged to the old one is cancelled on purpose, and nobody stepped down.
        """
        self.is_leading = False
        self._stepping_down = True

    def clear_stepping_down(self) -> None:
        """Everything that belonged to the reign has ended."""
        self._stepping_down = False

    @property
    def stepping_down(self) -> bool:
        """Whether a reign is being given up at this moment."""
        return self._stepping_down

    def level_of(self, *, cancelled: bool) -> Level:
        """How loud to be about a piece of work that did not come to its end.

        Cancelled while stepping down is expected. Cancelled at any other time is not, and neither is a deadline.
        """
        return Level.WARNING if self._stepping_down and cancelled else Level.ERROR

    def record_reacquire_since(self, stepped_down_at: Millis, now: Millis) -> None:
        """It leads again after having stepped down then; 0 is a first election, which is no return."""
        if stepped_down_at and len(self._reacquires) < REACQUIRES_KEPT:
            self._reacquires.append(now - stepped_down_at)

    def take_reacquires(self) -> list[Millis]:
        """How long it was away each time, since this was asked last."""
        taken, self._reacquires = self._reacquires, []
        return taken
