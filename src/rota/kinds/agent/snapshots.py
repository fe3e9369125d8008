"""What the mechanical scheduler reads and reports: snapshots of runs and sessions, results of a cycle, statistics.

Instants are milliseconds and 0 is never. A *run* here is one attempt at an agent's task, as the sources tell it.
"""

from enum import StrEnum

from msgspec import Struct, field

from rota.core.cycle import STARVE_MS
from rota.core.ids import Millis
from rota.core.ladder import Thresholds, rising
from rota.kinds.agent.matching import Owner, Priority


class RunStatus(StrEnum):
    """How a run stands. Only queued ones are woken for."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NEEDS_ATTENTION = "needs_attention"


# A session that is bound to such a run is busy with it.
AT_WORK = (RunStatus.CLAIMED, RunStatus.STARTING, RunStatus.RUNNING)


class TaskStatus(StrEnum):
    """How a task stands."""

    DRAFT = "draft"
    PENDING = "pending"
    BLOCKED = "blocked"
    READY = "ready"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


# Runs of such tasks are not claimed, though they be queued.
NOT_CLAIMABLE = frozenset((TaskStatus.DRAFT, TaskStatus.BLOCKED, TaskStatus.CANCELLED))


class SessionState(StrEnum):
    """How a session stands. One that starts will claim before long; one that stops never will again."""

    STARTING = "starting"
    ACTIVE = "active"
    STOPPING = "stopping"
    STOPPED = "stopped"


class AgentTask(Struct, frozen=True, kw_only=True):
    """What somebody wants done."""

    id: str
    title: str = ""
    status: TaskStatus = TaskStatus.READY
    priority: Priority = Priority.MEDIUM
    workspace_id: str = ""
    owner: Owner | None = None
    paused: bool = False


class AgentRun(Struct, frozen=True, kw_only=True):
    """One attempt at a task. `eligible_since` is when it last became claimable; 0: when it was queued."""

    id: str
    task_id: str
    status: RunStatus = RunStatus.QUEUED
    attempt: int = 1
    session_id: str = ""
    channel: str = ""
    required_capabilities: tuple[str, ...] = ()
    preferred_capabilities: tuple[str, ...] = ()
    queued_at: Millis = 0
    eligible_since: Millis = 0
    error: str = ""

    @property
    def waits_since(self) -> Millis:
        """From when its wait counts."""
        return self.eligible_since or self.queued_at


class RunSnapshot(Struct, frozen=True):
    """A run and the task it belongs to."""

    run: AgentRun
    task: AgentTask


class SessionSnapshot(Struct, frozen=True, kw_only=True):
    """One live session. Its `type` is carried along and decides nothing."""

    id: str
    agent_name: str = ""
    workspace_id: str = ""
    channel: str = ""
    type: str = ""
    state: str = SessionState.ACTIVE
    prompting: bool = False
    capabilities: tuple[str, ...] = ()
    created_at: Millis = 0


class WakeTarget(Struct, frozen=True):
    """The pair that was chosen, and why the session is woken. It owns nothing by that."""

    work: RunSnapshot
    session: SessionSnapshot
    reason: str


class CycleResult(Struct):
    """What one pass did. Ids are in dispatch order; `selected_run_ids` has one for each wake that was delivered."""

    pending_runs: int = 0
    active_runs: int = 0
    sessions_scanned: int = 0
    recovered_leases: int = 0
    wake_attempts: int = 0
    wake_succeeded: int = 0
    wake_failed: int = 0
    no_match_runs: int = 0
    recently_notified: int = 0
    unclaimable_runs: int = 0
    paused: bool = False
    starved_runs: int = 0
    spawn_requested: int = 0
    needs_attention: int = 0
    selected_run_ids: list[str] = field(default_factory=list[str])
    no_match_run_ids: list[str] = field(default_factory=list[str])
    recovered_run_ids: list[str] = field(default_factory=list[str])
    starved_run_ids: list[str] = field(default_factory=list[str])
    spawn_requested_run_ids: list[str] = field(default_factory=list[str])
    needs_attention_run_ids: list[str] = field(default_factory=list[str])


class RebuildResult(Struct, frozen=True, kw_only=True):
    """What was found when everything that is only in memory was forgotten."""

    pending_runs: int
    active_runs: int
    sessions_scanned: int
    cleared_wake_keys: int
    rebuilt_at: Millis


class Stats(Struct, frozen=True, kw_only=True):
    """Sums over all cycles, and what happened last."""

    cycles: int = 0
    rebuilds: int = 0
    recovered_leases: int = 0
    recovery_errors: int = 0
    wake_attempts: int = 0
    wake_succeeded: int = 0
    wake_failed: int = 0
    no_match_runs: int = 0
    recently_notified: int = 0
    unclaimable_runs: int = 0
    starved_runs: int = 0
    spawn_requested: int = 0
    needs_attention: int = 0
    last_cycle_at: Millis = 0
    last_rebuild_at: Millis = 0
    last_recovery_error: str = ""
    last_wake_error: str = ""


# What a cycle's result adds to the sums.
SUMMED = (
    "recovered_leases",
    "wake_attempts",
    "wake_succeeded",
    "wake_failed",
    "no_match_runs",
    "recently_notified",
    "unclaimable_runs",
    "starved_runs",
    "spawn_requested",
    "needs_attention",
)


class StarvationThresholds(Struct, frozen=True, kw_only=True):
    """After how many starved cycles each tier is reached, and from which age a run counts as starved at all."""

    fan_out_after: int
    spawn_after: int
    event_after: int
    needs_attention_after: int
    min_queued_age_ms: Millis

    def as_ladder(self) -> Thresholds:
        """The same for the ladder that all kinds of work climb, made to rise where they do not."""
        return rising(
            Thresholds(
                fan_out=self.fan_out_after,
                spawn=self.spawn_after,
                event=self.event_after,
                park=self.needs_attention_after,
            )
        )


def default_starvation_thresholds() -> StarvationThresholds:
    """The ladder as it is unless somebody says otherwise."""
    usual = Thresholds()
    return StarvationThresholds(
        fan_out_after=usual.fan_out,
        spawn_after=usual.spawn,
        event_after=usual.event,
        needs_attention_after=usual.park,
        min_queued_age_ms=STARVE_MS,
    )
