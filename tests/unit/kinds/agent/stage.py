"""Sources, wakers and stores in memory, and a clock that is moved by hand, to try the mechanical scheduler on."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from rota.core.ladder import PARKED_UNSERVED
from rota.kinds.agent import (
    Actor,
    AgentRun,
    AgentTask,
    CycleFailed,
    CycleResult,
    ExpiredLeaseRecovery,
    ExpiredLeaseRecoveryResult,
    Option,
    RunSnapshot,
    RunStarvation,
    RunStarvationMutation,
    RunStatus,
    Scheduler,
    SchedulerPauseState,
    SessionSnapshot,
    StarvationThresholds,
    WakeTarget,
    with_clock,
)

BEGIN = 1_790_000_000_000
MINUTE = 60_000
AGE = 2 * MINUTE
PATIENCE_S = 10


class Broken(Exception):
    """What sources raise when a test wants them to."""


class HandClock:
    """Time that moves when a test says so. Whoever waits is counted, and woken when the time has come."""

    def __init__(self) -> None:
        self.at = BEGIN
        self.naps: list[tuple[int, asyncio.Event]] = []
        self.napping = asyncio.Event()

    def now(self) -> int:
        return self.at

    async def wait(self, ms: int) -> None:
        woken = asyncio.Event()
        self.naps.append((self.at + ms, woken))
        self.napping.set()
        await woken.wait()

    def pass_by(self, ms: int) -> None:
        """Let time pass."""
        self.at += ms
        self.napping.clear()
        for until, woken in self.naps:
            if until <= self.at:
                woken.set()
        self.naps = [nap for nap in self.naps if nap[0] > self.at]


class Tasks:
    """A TaskSource. What is in `broken` raises."""

    def __init__(self) -> None:
        self.pending: list[Any] = []
        self.active: list[Any] = []
        self.statuses: dict[str, RunStatus] = {}
        self.expired: list[ExpiredLeaseRecoveryResult] = []
        self.recoveries: list[tuple[ExpiredLeaseRecovery, Actor]] = []
        self.broken: list[str] = []
        self.calls: list[str] = []
        self.gate: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.at_once = 0
        self.at_once_max = 0

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            raise Broken(name)

    async def pending_runs(self) -> Sequence[RunSnapshot]:
        self._called("pending_runs")
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        self.entered.set()
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        self.at_once -= 1
        return self.pending

    async def active_runs(self) -> Sequence[AgentRun]:
        self._called("active_runs")
        return self.active

    async def get_run_status(self, run_id: str) -> tuple[RunStatus | None, bool]:
        self._called("get_run_status")
        known = {work.run.id: work.run.status for work in self.pending if isinstance(work, RunSnapshot)}
        status = self.statuses.get(run_id, known.get(run_id))
        return status, status is not None

    async def recover_expired_run_leases(
        self, recovery: ExpiredLeaseRecovery, actor: Actor
    ) -> Sequence[ExpiredLeaseRecoveryResult]:
        self._called("recover_expired_run_leases")
        self.recoveries.append((recovery, actor))
        return self.expired


class Sessions:
    """A SessionSource."""

    def __init__(self) -> None:
        self.live: list[Any] = []

    async def sessions(self) -> Sequence[SessionSnapshot]:
        return self.live


class Waking:
    """A Waker. It fails for sessions that are named in `broken`."""

    def __init__(self) -> None:
        self.targets: list[WakeTarget] = []
        self.broken: list[str] = []

    async def wake(self, target: WakeTarget) -> None:
        if target.session.id in self.broken:
            raise Broken(f"unreachable {target.session.id}")
        self.targets.append(target)


class BatchWaking(Waking):
    """A waker that takes all targets at once, and answers with `answer` if that is set."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[WakeTarget]] = []
        self.answer: list[Exception | None] | Exception | None = None

    async def wake_many(self, targets: Sequence[WakeTarget]) -> Sequence[Exception | None]:
        self.batches.append(list(targets))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if self.answer is not None else [None] * len(targets)


class Pauses:
    """A PauseStore."""

    def __init__(self, *, paused: bool = False) -> None:
        self.paused = paused
        self.is_broken = False

    async def get_scheduler_pause(self) -> SchedulerPauseState:
        if self.is_broken:
            raise Broken("pause")
        return SchedulerPauseState(paused=self.paused)


class Rows:
    """A StarvationStore."""

    def __init__(self) -> None:
        self.rows: dict[str, RunStarvation] = {}
        self.broken: list[str] = []

    def _called(self, name: str) -> None:
        if name in self.broken:
            raise Broken(name)

    async def load_run_starvation(self, run_id: str) -> tuple[RunStarvation | None, bool]:
        self._called("load")
        return self.rows.get(run_id), run_id in self.rows

    async def list_run_starvation(self) -> Sequence[RunStarvation]:
        self._called("list")
        return list(self.rows.values())

    async def upsert_run_starvation(self, mutation: RunStarvationMutation) -> RunStarvation:
        self._called(f"upsert {mutation.run_id}")
        fields = {name: getattr(mutation, name) for name in mutation.__struct_fields__}
        row = self.rows[mutation.run_id] = RunStarvation(**fields)
        return row

    async def clear_run_starvation(self, run_id: str) -> None:
        self._called("clear")
        self.rows.pop(run_id, None)

    def put(self, run_id: str, cycles: int, **fields: int) -> None:
        """A row as an earlier cycle left it."""
        self.rows[run_id] = RunStarvation(
            run_id=run_id, wake_count=cycles, first_starved_at=1, last_wake_at=1, escalation_tier=0, **fields
        )


class Escalating:
    """An EscalationActor. What is in `raising` is raised instead."""

    def __init__(self) -> None:
        self.did: list[tuple[str, str]] = []
        self.ages: list[int] = []
        self.raising: dict[str, Exception] = {}
        # The cause that the diagnostic of a parked run has to name.
        self.cause = PARKED_UNSERVED

    def _do(self, what: str, run_id: str) -> None:
        if what in self.raising:
            raise self.raising[what]
        self.did.append((what, run_id))

    async def emit_run_starved(self, work: RunSnapshot, age_ms: int) -> None:
        self._do("event", work.run.id)
        self.ages.append(age_ms)

    async def request_worker_spawn(self, work: RunSnapshot) -> None:
        self._do("spawn", work.run.id)

    async def mark_run_needs_attention(self, run_id: str, diagnostic: str) -> AgentRun:
        self._do("park", run_id)
        assert self.cause in diagnostic
        return AgentRun(id=run_id, task_id="t", status=RunStatus.NEEDS_ATTENTION, error=diagnostic)


class Stage:
    """A scheduler and everything around it."""

    def __init__(self, *options: Option, waker: Waking | None = None) -> None:
        self.clock = HandClock()
        self.tasks = Tasks()
        self.sessions = Sessions()
        self.waker = waker or Waking()
        self.scheduler = Scheduler(self.tasks, self.sessions, self.waker, with_clock(self.clock), *options)

    def run(self, id: str, *, waited: int = 0, **fields: Any) -> RunSnapshot:
        """A run that waits. Fields of its task are recognised."""
        of_task = {name: fields.pop(name) for name in list(fields) if name in TASK_FIELDS}
        task = AgentTask(id=f"task-{id}", **of_task)
        work = RunSnapshot(AgentRun(id=id, task_id=task.id, queued_at=self.clock.at - waited, **fields), task)
        self.tasks.pending.append(work)
        return work

    def session(self, id: str, **fields: Any) -> SessionSnapshot:
        one = SessionSnapshot(id=id, **fields)
        self.sessions.live.append(one)
        return one

    def once(self) -> CycleResult:
        """A cycle that must go well."""
        return asyncio.run(self.scheduler.run_once())

    def failing(self) -> CycleFailed:
        """A cycle that must meet errors."""
        with pytest.raises(CycleFailed) as caught:
            asyncio.run(self.scheduler.run_once())
        return caught.value

    @property
    def woken(self) -> list[tuple[str, str]]:
        """Who was woken for what, since the beginning."""
        return [(target.work.run.id, target.session.id) for target in self.waker.targets]

    @property
    def keys(self) -> int:
        """How many pairs are remembered."""
        return len(self.scheduler._memory)


TASK_FIELDS = ("title", "priority", "workspace_id", "owner", "paused")


def thresholds(
    fan_out: int = 1, spawn: int = 2, event: int = 3, park: int = 4, age_ms: int = AGE
) -> StarvationThresholds:
    return StarvationThresholds(
        fan_out_after=fan_out,
        spawn_after=spawn,
        event_after=event,
        needs_attention_after=park,
        min_queued_age_ms=age_ms,
    )


def bounded(work: Coroutine[Any, Any, None]) -> None:
    """Run a test of the loop; one that hangs fails."""

    async def inside() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(inside())
