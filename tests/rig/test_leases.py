"""Real coordinators that come and go over one store, and pull workers: of each task one lease at a time counts."""

import asyncio
from random import Random

import pytest

from rota.app.clocks import SystemClock
from rota.config.settings import limits_for
from rota.control.driver import CoordinatorDriver
from rota.core.decide.leases import Judgement
from rota.ports import Candidate
from rota.stores.memory import MemoryStore
from tests.integration.deadlines import until_so
from tests.rig.leases import GRANT, LeaseLoad, among, check_leases

pytestmark = pytest.mark.full

LEASE_MS = 1_000


async def campaign(tasks: int, reigns: int) -> LeaseLoad:
    """Pull workers at work while one coordinator after the other takes over."""
    disk = MemoryStore().disk
    drivers: list[CoordinatorDriver] = []

    def begin() -> CoordinatorDriver:
        who = Candidate(f"coordinator-{len(drivers)}")
        drivers.append(CoordinatorDriver(MemoryStore(disk), limits_for(2_000), SystemClock(), who=who))
        drivers[-1].start()
        return drivers[-1]

    assert await begin().reigns()
    load = LeaseLoad(among(drivers, Random(1)), seed=1, tasks=tasks, lease_ms=LEASE_MS)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(load.run())
        for _ in range(reigns - 1):
            goal = len(load.ops) + tasks // reigns
            await until_so(lambda goal=goal: len(load.ops) >= goal or running.done(), "more to be done")
            before, standby = drivers[-1], begin()
            await before.stop()
            await until_so(lambda standby=standby: standby.is_leader, "the standby to lead")
    await drivers[-1].stop()
    return load


def test_leases_stay_exclusive_while_coordinators_come_and_go():
    load = asyncio.run(campaign(tasks=60, reigns=4))
    verdicts = check_leases(load.ops, LEASE_MS)
    assert len(verdicts) == 60
    assert [str(verdict) for verdict in verdicts.values() if not verdict.is_linearizable] == []
    counted = (Judgement.ACCEPTED, Judgement.DUPLICATE)
    assert any(op.answer not in counted for op in load.ops if op.does[0] != GRANT), "some were too late"
