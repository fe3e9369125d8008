"""Leadership: who may write, for how long it may believe so, and what happens in between.

A leader trusts itself for one term after the last proof that it holds the lock: a `holds` answered yes, or a commit
that went through. The proof counts from when it was asked for, not from when it was answered. Without a proof it says
nothing to workers, and after a term it steps down. It never needs to be right about time for safety: the store
compares the epoch inside every commit.
"""

from enum import StrEnum

from rota.control.events import AskHolds, Elect, Elected, HoldsSaid, Intent, Level, Load, Loaded, Release, Tell
from rota.control.standing import Cause, Standing
from rota.core.bounds import TimeLimits
from rota.core.ids import Epoch, Millis

LOAD_MS_MAX = 600_000


class Role(StrEnum):
    """What a coordinator is at the moment."""

    FOLLOWER = "follower"
    ELECTING = "electing"
    LOADING = "loading"
    LEADER = "leader"


class Leadership:
    """The machine of one coordinator's claim to lead."""

    def __init__(self, limits: TimeLimits, campaign_ms: Millis, now: Millis) -> None:
        self.limits = limits
        self.campaign_ms = campaign_ms
        self.role = Role.FOLLOWER
        self.epoch = Epoch(0)
        self.proven_until: Millis = 0
        self.next_at: Millis = now
        self._ticket = 0
        self._waiting_for = 0
        self._loading = 0
        self._load_by: Millis = 0
        self._resting_until: Millis = 0
        self._asked_at: Millis = 0
        self._is_asking = False
        self.standing = Standing(limits.stall_ms)

    def ticket(self) -> int:
        """A number for the next request; answers to older ones are ignored."""
        self._ticket += 1
        return self._ticket

    def woke(self, now: Millis) -> list[Intent]:
        """Campaign, or prove that the lock is still held: while leading, and already while loading."""
        if self.role is Role.LEADER and now > self.proven_until:
            return self.step_down(Cause.NOT_PROVEN, "leadership could not be proven within a term", now)
        if now < self.next_at:
            return []
        if self.role is Role.FOLLOWER:
            self.role = Role.ELECTING
            self._asked_at = now
            self.next_at = now + self.limits.term_ms
            self._waiting_for = self.ticket()
            return [Elect(self._waiting_for)]
        if self.role is Role.ELECTING or (self.role is Role.LOADING and now >= self._load_by):
            return self.step_down(Cause.STORE_SILENT, "the store did not answer in time", now)
        self.next_at = now + self.limits.term_ms // 4
        if self._is_asking:
            return []
        self._is_asking = True
        self._asked_at = now
        self._waiting_for = self.ticket()
        return [AskHolds(self._waiting_for, self.epoch)]

    def vacated(self, now: Millis) -> None:
        """The lock may be free: a follower need not wait until it looks again by itself.

        Whoever has just given it up lets others go first: what made it step down may be its own.
        """
        if self.role is Role.FOLLOWER:
            self.next_at = min(self.next_at, max(now, self._resting_until))

    def elected(self, event: Elected, now: Millis) -> list[Intent]:
        """The campaign's result. An epoch won too late is given back."""
        if self.role is not Role.ELECTING or event.ticket != self._waiting_for:
            return [Release(event.epoch)] if event.epoch else []
        if event.epoch is None:
            self.role = Role.FOLLOWER
            self.next_at = now + self.campaign_ms
            if not event.error:
                return []
            # A hint that the lock is free helps nobody whom the store will not have.
            self._resting_until = self.next_at
            return [Tell("elect.failed", (("error", event.error),), Level.WARNING)]
        self.epoch = event.epoch
        self.proven_until = self._asked_at + self.limits.term_ms
        return self.reload(now)

    def reload(self, now: Millis) -> list[Intent]:
        """Read everything, at the start of a reign or again within it."""
        if self.role is Role.LEADER:
            self.standing.begin_anew()
        self.role = Role.LOADING
        self.next_at = now + self.limits.term_ms // 4
        self._is_asking = False
        self._load_by = now + LOAD_MS_MAX
        self._loading = self.ticket()
        return [Load(self._loading, self.epoch)]

    def is_loading(self, event: Loaded) -> bool:
        """Whether an answer belongs to the load that is under way."""
        return self.role is Role.LOADING and event.ticket == self._loading

    def loaded(self, event: Loaded, now: Millis) -> bool:
        """Whether these records are the ones that were asked for; if so the reign begins."""
        if not self.is_loading(event) or event.records is None:
            return False
        self.role = Role.LEADER
        self.next_at = now
        self.standing.set_leading(True, now)
        return True

    def holds_said(self, event: HoldsSaid, now: Millis) -> list[Intent]:
        """A proof, a loss, or an error; an error is not a proof."""
        if self.role not in (Role.LEADER, Role.LOADING) or event.ticket != self._waiting_for:
            return []
        self._is_asking = False
        if event.error:
            return [Tell("holds.failed", (("error", event.error),))]
        if not event.held:
            return self.step_down(Cause.LOCK_LOST, "the lock is held by nobody or another", now)
        self.proven_at(self._asked_at)
        return []

    def proven_at(self, asked_at: Millis) -> None:
        """Leadership was proven by a request that was sent at `asked_at`."""
        self.proven_until = max(self.proven_until, asked_at + self.limits.term_ms)

    def step_down(self, cause: Cause, reason: str, now: Millis) -> list[Intent]:
        """Stop leading, give the lock back and campaign again later."""
        self.standing.mark_stepping_down(cause)
        self.standing.set_leading(False, now)
        epoch, self.epoch = self.epoch, Epoch(0)
        if not epoch:
            # A campaign: nothing is under way that could be cancelled.
            self.standing.clear_stepping_down()
        self.role = Role.FOLLOWER
        self._is_asking = False
        self._waiting_for = self.ticket()
        self.proven_until = 0
        self.next_at = self._resting_until = now + self.campaign_ms
        about = (("cause", cause.value), ("reason", reason), ("epoch", str(epoch)))
        told: list[Intent] = [Tell("step_down", about, Level.WARNING)]
        return [*told, Release(epoch)] if epoch else told
