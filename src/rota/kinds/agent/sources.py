"""What the mechanical scheduler is connected to: where it reads, whom it tells, what it keeps.

Each is a protocol of few methods, so that a test or another program puts its own there. They are asked one at a time.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from msgspec import Struct

from rota.core.ids import Millis
from rota.kinds.agent.snapshots import AgentRun, RunSnapshot, RunStatus, SessionSnapshot, WakeTarget


class ActorKind(StrEnum):
    """Who changes something."""

    HUMAN = "human"
    AGENT_SESSION = "agent_session"
    AUTOMATION = "automation"
    EXTENSION = "extension"
    NETWORK_PEER = "network_peer"
    DAEMON = "daemon"


class Actor(Struct, frozen=True):
    """In whose name leases are recovered."""

    kind: ActorKind
    ref: str


class ExpiredLeaseRecovery(Struct, frozen=True):
    """Give back what has expired by `now_at`, at most `limit` of it; 0 is all."""

    now_at: Millis
    reason: str
    limit: int


class ExpiredLeaseRecoveryResult(Struct, frozen=True, kw_only=True):
    """One lease that was given back."""

    run_id: str
    previous_status: RunStatus = RunStatus.CLAIMED
    previous_session_id: str = ""
    lease_until_at: Millis = 0
    reason: str = ""


class SchedulerPauseState(Struct, frozen=True, kw_only=True):
    """Whether everything is paused; the rest is for people."""

    paused: bool = False
    paused_by: str = ""
    paused_at: Millis = 0
    reason: str = ""


class RunStarvationMutation(Struct, frozen=True, kw_only=True):
    """What is to be stored of a run that nobody could claim. `wake_count` counts starved cycles, not wakes."""

    run_id: str
    wake_count: int
    first_starved_at: Millis
    last_wake_at: Millis
    escalation_tier: int
    spawn_requested_at: Millis = 0
    starved_event_at: Millis = 0


class RunStarvation(RunStarvationMutation, frozen=True, kw_only=True):
    """The same as it is stored."""

    updated_at: Millis = 0


class TaskSource(Protocol):
    """Where runs are, and where expired leases are given back."""

    async def pending_runs(self) -> Sequence[RunSnapshot]:
        """Runs that wait to be claimed."""
        ...

    async def active_runs(self) -> Sequence[AgentRun]:
        """Runs that sessions hold."""
        ...

    async def get_run_status(self, run_id: str) -> tuple[RunStatus | None, bool]:
        """How a run stands at this moment, and whether there is one."""
        ...

    async def recover_expired_run_leases(
        self, recovery: ExpiredLeaseRecovery, actor: Actor
    ) -> Sequence[ExpiredLeaseRecoveryResult]:
        """Give expired leases back, the earliest first."""
        ...


class SessionSource(Protocol):
    """Where live sessions are."""

    async def sessions(self) -> Sequence[SessionSnapshot]:
        """Whom one could wake."""
        ...


class Waker(Protocol):
    """Tells a session that there is something for it to claim."""

    async def wake(self, target: WakeTarget) -> None:
        """Deliver one wake, or raise."""
        ...


@runtime_checkable
class BatchWaker(Protocol):
    """A waker that would rather have all targets of a cycle at once."""

    async def wake_many(self, targets: Sequence[WakeTarget]) -> Sequence[Exception | None]:
        """Deliver them; for each target, in order, what went wrong."""
        ...


class PauseStore(Protocol):
    """Where it is kept that everything is paused."""

    async def get_scheduler_pause(self) -> SchedulerPauseState:
        """Whether it is."""
        ...


class StarvationStore(Protocol):
    """Keeps how far runs have climbed, through restarts."""

    async def load_run_starvation(self, run_id: str) -> tuple[RunStarvation | None, bool]:
        """One row, and whether there is one."""
        ...

    async def list_run_starvation(self) -> Sequence[RunStarvation]:
        """All rows."""
        ...

    async def upsert_run_starvation(self, mutation: RunStarvationMutation) -> RunStarvation:
        """Store one."""
        ...

    async def clear_run_starvation(self, run_id: str) -> None:
        """Forget one."""
        ...


class EscalationActor(Protocol):
    """Does what the ladder asks for. It never claims."""

    async def emit_run_starved(self, work: RunSnapshot, age_ms: Millis) -> None:
        """Tell whoever listens that nobody could claim a run."""
        ...

    async def request_worker_spawn(self, work: RunSnapshot) -> None:
        """Ask for a session that could; raises `SpawnUnresolvable` if there is no agent to make one of."""
        ...

    async def mark_run_needs_attention(self, run_id: str, diagnostic: str) -> AgentRun:
        """Park a run for a person; raises `InvalidStatusTransition` if it is not queued any more."""
        ...


class Clock(Protocol):
    """What time it is, and waiting."""

    def now(self) -> Millis:
        """Milliseconds, UTC."""
        ...

    async def wait(self, ms: Millis) -> None:
        """Return after so long."""
        ...
