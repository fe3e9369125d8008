"""The starvation ladder: what is done for a task that no registered worker could run, or that no idle session claims.

Which tasks climb is a rule that can be chosen (`ClimbRule`). One cycle per sweep, never per event.
Thresholds count cycles and only grow; the count is durable, so a new coordinator goes on where the old one was.
"""

from enum import IntEnum, StrEnum

from msgspec import Struct

from rota.core.ids import Millis

# How a note begins that the scheduler writes on a task that climbs. It takes away no other note than such a one.
NO_FIT = "queued but no worker fits: "
NO_FIT_CHARS_MAX = 300
NOT_CLAIMED = "offered but not claimed: "
STILL_QUEUED = "queued and not claimed: "
# How the error of a task begins that was parked, or failed, because no worker could ever run it or no session did.
PARKED_UNSERVED = "no registered worker could run this"
PARKED_UNCLAIMED = "idle sessions were told of this and none claimed it"
PARKED_QUEUED = "no session claimed this"
FAILED_UNSERVED = "worker.none_match"


class ClimbRule(StrEnum):
    """Which tasks climb the ladder once they have waited for the starvation age.

    - `unserved`: those that no registered worker could run, and those that idle sessions were told of and did not claim
      for as long again. Waiting behind busy sessions is not starvation.
    - `queued`: in addition every other task that a session may claim and that is still queued.
    """

    UNSERVED = "unserved"
    QUEUED = "queued"


class StarvationCause(StrEnum):
    """Why a task climbs: no worker could run it, idle sessions did not claim it, or it is still queued."""

    UNSERVED = "unserved"
    DECLINED = "declined"
    QUEUED = "queued"


PARKED: dict[StarvationCause, str] = {
    StarvationCause.UNSERVED: PARKED_UNSERVED,
    StarvationCause.DECLINED: PARKED_UNCLAIMED,
    StarvationCause.QUEUED: PARKED_QUEUED,
}


class Tier(IntEnum):
    """How far a task has climbed."""

    WAITING = 0
    FAN_OUT = 1
    SPAWN = 2
    EVENT = 3
    PARK = 4


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """After how many starved cycles each tier is reached."""

    fan_out: int = 2
    spawn: int = 4
    event: int = 6
    park: int = 10


def tier_of(cycles: int, thresholds: Thresholds) -> Tier:
    """The tier that so many starved cycles have reached."""
    if cycles >= thresholds.park:
        return Tier.PARK
    if cycles >= thresholds.event:
        return Tier.EVENT
    if cycles >= thresholds.spawn:
        return Tier.SPAWN
    return Tier.FAN_OUT if cycles >= thresholds.fan_out else Tier.WAITING


def is_ours(note: str) -> bool:
    """Whether the scheduler wrote a note, or nobody did: then it may write another, or take it away."""
    return not note or note.startswith((NO_FIT, NOT_CLAIMED, STILL_QUEUED))


def may_climb(eligible_at: Millis, now: Millis, starve_ms: Millis) -> bool:
    """Whether a task has waited long enough for the ladder to count."""
    return now - eligible_at >= starve_ms


def is_declined(offered_at: Millis | None, claimed_at: Millis, now: Millis, starve_ms: Millis) -> bool:
    """Whether an offer has stood for the threshold without a claim.

    `offered_at` is the first wake for the task, `claimed_at` the last claim of work like it: sessions that claim such
    work are busy with the rest of it.
    """
    return starve_ms > 0 and offered_at is not None and now - max(offered_at, claimed_at) >= starve_ms


class Starvation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one waiting thing has climbed, as it is stored. An instant of 0 means never.

    What a tier asks for is done once in an episode. It is stamped by whoever did it, and only if it worked, so that
    what failed is asked for again in the next cycle.
    """

    cycles: int = 0
    tier: Tier = Tier.WAITING
    first_at: Millis = 0
    last_at: Millis = 0
    spawn_requested_at: Millis = 0
    event_at: Millis = 0


class Rung(Struct, frozen=True):
    """One cycle further up: the row to store, and what this tier and those below it still have to see done."""

    row: Starvation
    spawn: bool = False
    event: bool = False
    park: bool = False


def climb(row: Starvation | None, now: Millis, thresholds: Thresholds) -> Rung:
    """One more starved cycle. Tiers add up: what failed at a lower one is tried again beside the higher one's."""
    before = row or Starvation(first_at=now)
    cycles = before.cycles + 1
    tier = tier_of(cycles, thresholds)
    after = Starvation(
        cycles=cycles,
        tier=tier,
        first_at=before.first_at or now,
        last_at=now,
        spawn_requested_at=before.spawn_requested_at,
        event_at=before.event_at,
    )
    return Rung(
        after,
        spawn=tier >= Tier.SPAWN and not before.spawn_requested_at,
        event=tier >= Tier.EVENT and not before.event_at,
        park=tier is Tier.PARK,
    )


def rising(thresholds: Thresholds) -> Thresholds:
    """Thresholds that can be climbed: what is not positive is the usual one, and none is below the one before it."""
    usual = Thresholds()
    fan_out = thresholds.fan_out if thresholds.fan_out > 0 else usual.fan_out
    spawn = max(fan_out, thresholds.spawn if thresholds.spawn > 0 else usual.spawn)
    event = max(spawn, thresholds.event if thresholds.event > 0 else usual.event)
    park = max(event, thresholds.park if thresholds.park > 0 else usual.park)
    return Thresholds(fan_out=fan_out, spawn=spawn, event=event, park=park)
