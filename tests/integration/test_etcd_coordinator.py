"""Coordinators over a real etcd: one leads, another waits, a restart of etcd costs nobody anything."""

import asyncio
import time

import pytest

from rota.control.driver import CoordinatorDriver
from rota.control.events import Escalate, Tell
from rota.core.bounds import TimeLimits
from rota.core.commands import SubmitRun
from rota.core.errors import Unavailable
from rota.core.images import all_records
from rota.core.model import Graph, TaskSpec
from rota.ports import Candidate
from rota.stores.etcd import EtcdStore
from tests.contract.bench import assert_same, disk_of
from tests.integration.deadlines import until_so
from tests.integration.etcd_stage import EAGER, Stage, staged
from tests.servers.etcd import etcd_server

pytestmark = pytest.mark.full

GRAPH = Graph(name="g", tasks=(TaskSpec(id="a"), TaskSpec(id="b", upstream=("a",))))


def clock() -> int:
    return time.time_ns() // 1_000_000


class Pair:
    """A coordinator that leads and one that waits."""

    def __init__(self, stage: Stage) -> None:
        self.told: list[Tell | Escalate] = []
        self.drivers = [self._driver(stage.open(), name) for name in ("first", "second")]

    def _driver(self, store: EtcdStore, name: str) -> CoordinatorDriver:
        who = Candidate(name, f"{name}.example:7433")
        return CoordinatorDriver(store, TimeLimits(), clock, who=who, listener=self.told.append)

    async def start(self) -> tuple[CoordinatorDriver, CoordinatorDriver]:
        leader, other = self.drivers
        leader.start()
        assert await leader.reigns()
        other.start()
        assert not await other.reigns()
        return leader, other

    async def stop(self) -> None:
        for driver in self.drivers:
            await driver.stop()


async def submit(driver: CoordinatorDriver, run: str) -> None:
    """A client's submission, repeated while the store or the coordinator is away, as clients do."""
    async with asyncio.timeout(30):
        while True:
            try:
                await driver.ask(SubmitRun(tenant="t", command_id=f"c-{run}", run=run, graph=GRAPH))
            except Unavailable:
                await asyncio.sleep(0.1)
            else:
                return


def records(driver: CoordinatorDriver) -> object:
    assert driver.machine.loop is not None, "it leads"
    return disk_of(all_records(driver.machine.loop.state))


def test_the_next_coordinator_has_what_the_last_one_had() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            pair = Pair(stage)
            leader, other = await pair.start()
            assert await stage.opened[1].leader() == leader.who
            await asyncio.gather(*[submit(leader, f"r{number}") for number in range(50)])
            before = records(leader)
            await leader.stop()
            await until_so(lambda: other.is_leader, "the other one leads")
            assert await stage.opened[0].leader() == other.who
            assert_same(records(other), before)  # pyright: ignore[reportArgumentType] - disks of the bench
            await submit(other, "after")
            await pair.stop()
            assert await stage.opened[0].leader() is None

    asyncio.run(run())


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_submissions_go_on_when_etcd_was_away_for_a_moment(how: str) -> None:
    async def run() -> None:
        with etcd_server() as server:
            async with staged(server) as stage:
                pair = Pair(stage)
                leader, _ = await pair.start()
                submitting = [asyncio.create_task(submit(leader, f"r{number}")) for number in range(200)]
                if how == "kill":
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                else:
                    await asyncio.to_thread(server.restart)
                await asyncio.gather(*submitting)
                assert leader.is_leader, "a moment is no reason to step down"
                assert len(leader.machine.loop.state.runs) == 200 if leader.machine.loop is not None else False
                store = stage.opened[0]
                found = disk_of([record async for record in store.load(leader.machine.leadership.epoch)])
                assert_same(records(leader), found)  # pyright: ignore[reportArgumentType] - disks of the bench
                await pair.stop()

    asyncio.run(run())
