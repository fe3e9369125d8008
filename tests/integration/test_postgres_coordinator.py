"""Coordinators over a real PostgreSQL: one leads, the others follow, and what happens to the server costs no run."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.control.driver import CoordinatorDriver
from rota.core.bounds import TimeLimits
from rota.core.commands import SubmitRun
from rota.core.errors import Unavailable
from rota.core.model import Graph, TaskSpec
from rota.core.questions import ListRuns, RunsPage
from rota.ports import Candidate
from tests.integration.postgres_stage import eventually, opened, played, twin
from tests.servers.postgres import PostgresServer, postgres_server

pytestmark = pytest.mark.full

TENANT = "t"
GRAPH = Graph(name="g", tasks=(TaskSpec(id="only"),))


def now() -> int:
    return 1_000_000_000 + round(asyncio.get_running_loop().time() * 1_000)


@asynccontextmanager
async def coordinator(store, name: str = "a test") -> AsyncIterator[CoordinatorDriver]:
    driver = CoordinatorDriver(store, TimeLimits(), now, who=Candidate(name))
    driver.start()
    try:
        yield driver
    finally:
        await driver.stop()
        await store.close()


async def submit(driver: CoordinatorDriver, run: str) -> None:
    """Submit until it is answered, with one command id, as a client does."""
    command = SubmitRun(tenant=TENANT, command_id=f"submit-{run}", run=run, graph=GRAPH)
    async with asyncio.timeout(60):
        while True:
            try:
                assert (await driver.ask(command))[0] == run
                return
            except Unavailable:
                await asyncio.sleep(0.1)


async def runs(driver: CoordinatorDriver) -> list[str]:
    page, _ = await driver.ask(ListRuns(tenant=TENANT))
    assert isinstance(page, RunsPage)
    return sorted(view.id for view in page.runs)


@pytest.fixture(scope="module")
def own():
    """A server that is stopped and started here."""
    with postgres_server() as server:
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
@played
async def test_a_server_that_is_restarted_under_a_coordinator_costs_nobody_anything(
    own: PostgresServer, how: signal.Signals
) -> None:
    async with opened(server=own) as store, coordinator(store) as driver:
        assert await driver.reigns()
        for number in range(5):
            await submit(driver, f"before-{number}")
        await asyncio.to_thread(own.stop, how)
        meanwhile = asyncio.ensure_future(submit(driver, "meanwhile"))
        await asyncio.wait([meanwhile], timeout=0.5)
        assert not meanwhile.done()
        await asyncio.to_thread(own.start)
        await meanwhile
        await submit(driver, "after")
        assert await runs(driver) == ["after", *[f"before-{number}" for number in range(5)], "meanwhile"]


@played
async def test_a_standby_leads_when_the_leader_stops_and_finds_everything(own: PostgresServer) -> None:
    async with opened(server=own) as store:
        standby = twin(store, own.url())
        async with coordinator(standby, "the standby") as second:
            async with coordinator(store, "the first") as first:
                await eventually(lambda: leads(first, second))
                leader, other = (first, second) if first.is_leader else (second, first)
                await submit(leader, "r")
                assert not other.is_leader
                assert await standby.leader() == leader.who
                if leader is second:
                    return
            await eventually(lambda: leads(second))
            assert await runs(second) == ["r"]
            assert await standby.leader() == Candidate("the standby")


async def leads(*drivers: CoordinatorDriver) -> bool:
    return any(driver.is_leader for driver in drivers)


@played
async def test_a_follower_costs_next_to_nothing(own: PostgresServer) -> None:
    """At most 0.3 % of a core, its share of the server included, at one look per second."""
    looks = 200
    async with opened(server=own) as store:
        assert await store.elect(Candidate("leader")) is not None
        follower = twin(store, own.url())
        try:
            await follower.elect(Candidate("a follower"))
            wire = follower.lock.session.wire
            assert wire is not None
            began, served = cpu_s(os.getpid()), cpu_s(wire.pid)
            for _ in range(looks):
                assert await follower.elect(Candidate("a follower")) is None
            spent = (cpu_s(os.getpid()) - began + cpu_s(wire.pid) - served) / looks
            assert spent < 0.003, f"{spent * 1e6:.0f} µs per look"
        finally:
            await follower.close()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
