"""Benchmarks of work for agents."""

import asyncio
import random
from collections.abc import Iterator, Sequence

from msgspec import Struct

from bench.rig import BEGIN, Row, Stopwatch
from rota.kinds.agent import (
    Actor,
    AgentRun,
    AgentTask,
    ExpiredLeaseRecovery,
    ExpiredLeaseRecoveryResult,
    Owner,
    OwnerKind,
    Priority,
    RunSnapshot,
    RunStatus,
    Scheduler,
    SessionSnapshot,
    WakeTarget,
    with_clock,
)

RUNS = 10_000
SESSIONS = 1_000
WORKSPACES = 20
AGENTS = 8
CAPABILITIES = [f"skill{number}" for number in range(12)]
CYCLES = 9


class Trade(Struct, frozen=True):
    """One sort of work that is done in every workspace."""

    channel: str
    requires: tuple[str, ...]
    prefers: tuple[str, ...]
    agent: str


class Fleet:
    """Runs and sessions of twenty workspaces that never change, whoever is woken: each cycle has all there is to do."""

    def __init__(self, chance: random.Random, trades: int) -> None:
        self.at = BEGIN
        self.woken = 0
        known = [_trade(chance) for _ in range(trades)]
        self.pending = [_run(number, chance.choice(known), chance) for number in range(RUNS)]
        self.live = [_session(number, chance) for number in range(SESSIONS)]

    def now(self) -> int:
        return self.at

    async def wait(self, ms: int) -> None:
        self.at += ms

    async def pending_runs(self) -> Sequence[RunSnapshot]:
        return self.pending

    async def active_runs(self) -> Sequence[AgentRun]:
        return ()

    async def get_run_status(self, run_id: str) -> tuple[RunStatus | None, bool]:
        return RunStatus.QUEUED, True

    async def recover_expired_run_leases(
        self, recovery: ExpiredLeaseRecovery, actor: Actor
    ) -> Sequence[ExpiredLeaseRecoveryResult]:
        return ()

    async def sessions(self) -> Sequence[SessionSnapshot]:
        return self.live

    async def wake(self, target: WakeTarget) -> None:
        self.woken += 1


def _trade(chance: random.Random) -> Trade:
    return Trade(
        channel=chance.choice(("", "", "ops")),
        requires=tuple(chance.sample(CAPABILITIES, chance.randrange(3))),
        prefers=tuple(chance.sample(CAPABILITIES, chance.randrange(2))),
        agent=f"agent{chance.randrange(AGENTS)}",
    )


def _run(number: int, trade: Trade, chance: random.Random) -> RunSnapshot:
    task = AgentTask(
        id=f"task{number}",
        workspace_id=f"space{chance.randrange(WORKSPACES)}",
        priority=chance.choice(tuple(Priority)),
        owner=Owner(OwnerKind.POOL, trade.agent) if number % 10 == 0 else None,
    )
    run = AgentRun(
        id=f"run{number}",
        task_id=task.id,
        channel=trade.channel,
        required_capabilities=trade.requires,
        preferred_capabilities=trade.prefers,
        queued_at=BEGIN - chance.randrange(240_000),
    )
    return RunSnapshot(run, task)


def _session(number: int, chance: random.Random) -> SessionSnapshot:
    return SessionSnapshot(
        id=f"session{number}",
        agent_name=f"agent{number % AGENTS}",
        workspace_id=f"space{chance.randrange(WORKSPACES)}",
        channel=chance.choice(("", "ops")),
        capabilities=tuple(chance.sample(CAPABILITIES, 4)),
        created_at=BEGIN - chance.randrange(3_600_000),
    )


def cycles() -> Iterator[Row]:
    """One pass of the mechanical scheduler, with a few sorts of work in each workspace, and with many."""
    yield _measured("run_once over 10,000 queued × 1,000 sessions", 10, 50)
    yield _measured("the same, half of the runs unlike all others", 1_000, 150)


def _measured(name: str, trades: int, reach: float) -> Row:
    fleet = Fleet(random.Random(7), trades)
    scheduler = Scheduler(fleet, fleet, fleet, with_clock(fleet))

    async def measure() -> list[float]:
        spent: list[float] = []
        for _ in range(CYCLES):
            with Stopwatch() as watch:
                await scheduler.run_once()
            spent.append(watch.cpu_s * 1000)
            fleet.at += 15_000
        return spent

    first, *others = asyncio.run(measure())
    usual = sorted(others)[len(others) // 2]
    demands = {
        (
            one.task.workspace_id,
            one.task.owner,
            one.run.channel,
            one.run.required_capabilities,
            one.run.preferred_capabilities,
        )
        for one in fleet.pending
    }
    return Row(
        name,
        round(usual, 1),
        "ms of CPU",
        reach,
        "lower",
        usual * 1000 / RUNS,
        f"{len(demands):,} different demands, {fleet.woken // CYCLES:,} wakes each time; the first one {first:.0f} ms",
    )
