"""What clients saw of registers and leases, across leaders that die, stand still and overlap, has one order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from rota.app.clocks import SystemClock
from rota.app.shared import Sharing, open_shared
from rota.config import limits_for
from rota.control.driver import CoordinatorDriver
from rota.ports import Candidate
from rota.stores.blobs import open_blobs
from tests.rig.backing import Backing
from tests.rig.fleet import open_fleet
from tests.rig.leases import LeaseLoad, among, check_leases
from tests.rig.register import RegisterLoad

pytestmark = pytest.mark.full

LEASE_S = 12
LEASE_MS = 1_000


def test_registers_across_leaders_that_die_and_stand_still(tmp_path: Path, backing: Backing) -> None:
    with open_fleet(
        tmp_path, servers=3, workers=0, lease_s=LEASE_S, server_settings=lambda _: backing.settings()
    ) as fleet:
        # Some know only one server each, so that whoever was deposed goes on being asked.
        load = RegisterLoad([fleet.url, *(server.url for server in fleet.servers)], seed=3, clients=6).start()
        try:
            load.until_answered(100)
            stopped = fleet.until_leader()
            stopped.freeze()
            killed = fleet.until_leader(other_than=stopped)
            load.until_answered(50)
            killed.kill()
            stopped.thaw()
            fleet.until_leader(other_than=killed)
            load.until_answered(50)
            fleet.restart_dead()
            load.until_answered(50)
        finally:
            ops = load.stop()
        verdicts = load.verdicts()
        assert [str(verdict) for verdict in verdicts.values() if not verdict.is_linearizable] == []
        assert len(ops) > 200
        assert fleet.troubles() == []


@asynccontextmanager
async def coordinators(backing: Backing, count: int) -> AsyncIterator[list[CoordinatorDriver]]:
    """Some in this process, each with a store of its own."""
    blobs, term_ms = open_blobs(str(backing.blobs)), limits_for(LEASE_S * 1_000).term_ms
    stores = [open_shared(Sharing(url=backing.url), blobs, term_ms=term_ms) for _ in range(count)]
    clock = SystemClock()
    drivers = [
        CoordinatorDriver(store, limits_for(LEASE_S * 1_000), clock, who=Candidate(f"c{number}"), shared=store)
        for number, store in enumerate(stores)
    ]
    try:
        for driver in drivers:
            driver.start()
        yield drivers
    finally:
        for driver in drivers:
            await driver.stop()
        for store in stores:
            await store.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_leases_across_coordinators_that_lose_their_lock(backing: Backing, seed: int) -> None:
    async def play() -> None:
        chance = Random(seed)
        async with asyncio.timeout(90), coordinators(backing, 3) as drivers:
            load = LeaseLoad(among(drivers, chance), seed=seed, tasks=40, lease_ms=LEASE_MS)
            running = asyncio.create_task(load.run())
            deposed = 0
            while not running.done():
                await asyncio.wait((running,), timeout=0.5)
                leading = [driver for driver in drivers if driver.is_leader]
                if leading and deposed < 6 and not running.done():
                    # Behind its back: it goes on believing until it asks, and another one may lead by then.
                    deposed += 1
                    await leading[0].store.release(leading[0].machine.leadership.epoch)
            ops = await running
        verdicts = check_leases(ops, LEASE_MS)
        assert [str(verdict) for verdict in verdicts.values() if not verdict.is_linearizable] == []
        assert deposed > 1
        assert len(verdicts) == 40

    asyncio.run(play())
