"""The starvation ladder: what is done for a task that no registered worker could run.

One cycle per sweep, never per event. Waiting behind busy workers is not starvation and does not climb. Thresholds count
cycles and only grow; the count is durable, so a new coordinator goes on where the old one was.
"""

from enum import IntEnum

from msgspec import Struct

from rota.core.ids import Millis

# How a note begins that the scheduler writes on a task that climbs. It takes away no other note than such a one.
NO_FIT = "queued but no worker fits: "
NO_FIT_CHARS_MAX = 300
# How the error of a task begins that was parked, or has failed, because nobody could ever run it.
PARKED_UNSERVED = "no registered worker could run this"
FAILED_UNSERVED = "worker.none_match"


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
    return not note or note.startswith(NO_FIT)


def may_climb(eligible_at: Millis, now: Millis, starve_ms: Millis) -> bool:
    """Whether a task has waited long enough for the ladder to count."""
    return now - eligible_at >= starve_ms
