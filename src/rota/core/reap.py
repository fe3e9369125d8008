"""Reapers: when silence is proof enough that nobody will report again.

Predicates over small candidates; whoever lists the candidates answers for what else must be true of them. Thresholds
are inclusive. A stamp from the future is a clock's mistake and counts as alive. A stamp that was never set (0 or None)
is evidence only for a run: one with no sign of activity at all has nobody; a task with no stamp has merely not been
observed, and is left alone.

The thresholds here are for whoever uses the predicates alone. The coordinator passes its own, which are shorter: it
knows more than a stamp, and what it takes back is granted again instead of failed (`TimeLimits`).
"""

import msgspec

from rota.core.ids import Millis, RunId, TaskId

ORPHAN_MS = 300_000
AGENT_LOST_MS = 90_000
DISPATCH_LOST_MS = 180_000

# What a reaper says of what it ended. The word before the colon is for programs, and is never changed.
AGENT_LOST = "agent_lost"
DISPATCH_LOST = "dispatch_lost"
ORPHANED = "orphaned"
FELL_SILENT = f"{AGENT_LOST}: its worker fell silent"
LEASE_RAN_OUT = f"{AGENT_LOST}: its lease ran out"
REGRANTED = f"{AGENT_LOST}: its worker is silent, and another may have it"
WAS_FORGOTTEN = f"{AGENT_LOST}: its worker was forgotten"
NEVER_ACKNOWLEDGED = f"{DISPATCH_LOST}: its start was never acknowledged"
REAPERS = (AGENT_LOST, DISPATCH_LOST, ORPHANED)


class RunCandidate(msgspec.Struct, frozen=True, gc=False):
    """A running run in which nothing is in flight: no live lease, timer, pause, parked or queued task."""

    run_id: RunId
    graph_id: str
    last_activity_at: Millis | None


class AgentCandidate(msgspec.Struct, frozen=True, gc=False):
    """An attempt that was started, and when its worker was last heard of."""

    run_id: RunId
    graph_id: str
    task_id: TaskId
    attempt: int
    last_heartbeat_at: Millis | None


class DispatchCandidate(msgspec.Struct, frozen=True, gc=False):
    """An attempt that was assigned and not yet acknowledged. Waiting for capacity is not dispatch."""

    run_id: RunId
    graph_id: str
    task_id: TaskId
    attempt: int
    assigned_at: Millis | None


def reaper_of(cause: str) -> str:
    """Which reaper says this; empty if none does."""
    word = cause.partition(":")[0]
    return word if word in REAPERS else ""


def is_orphaned(candidate: RunCandidate, now: Millis, threshold_ms: int = ORPHAN_MS) -> bool:
    """Whether the run has been quiet for so long that nothing is moving it. Plan it again first; fail it second."""
    stamp = candidate.last_activity_at
    return not stamp or now - stamp >= threshold_ms


def is_agent_lost(candidate: AgentCandidate, now: Millis, threshold_ms: int = AGENT_LOST_MS) -> bool:
    """Whether the attempt's worker fell silent after it had been heard of at least once."""
    stamp = candidate.last_heartbeat_at
    return bool(stamp) and now - stamp >= threshold_ms


def is_dispatch_lost(candidate: DispatchCandidate, now: Millis, threshold_ms: int = DISPATCH_LOST_MS) -> bool:
    """Whether the assignment was never taken up.

    The attempt is returned unspent. If its worker did start it, that report comes under a stale fence and changes
    nothing.
    """
    stamp = candidate.assigned_at
    return bool(stamp) and now - stamp >= threshold_ms
