"""Several coordinators, one of which leads: clients and workers find it, whomever they ask first, and follow it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.control.standing import Cause
from rota.core.errors import Refused, Unavailable
from rota.wire.channels import SYNC, TALK
from rota.wire.streams import open_stream
from tests.integration import jobs
from tests.integration.deadlines import until
from tests.integration.far import ADMIN, WORKER, Service, service
from tests.servers.ports import free_port
from tests.unit.client.ways import place_at


@rota.workflow
def adding() -> None:
    jobs.add(jobs.add(1, 2), 3)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """One that leads and one that follows."""
    with service(tmp_path) as first, service(tmp_path, beside=first) as second:
        assert (first.driver.is_leader, second.driver.is_leader) == (True, False)
        yield first, second


def depose(one: Service) -> None:
    """Make it step down, and the other one lead."""

    async def step_down() -> None:
        leadership = one.driver.machine.leadership
        for intent in leadership.step_down(Cause.LOCK_LOST, "for this test", one.clock()):
            one.driver._carry_out(intent)
        one.driver._pump()

    one.thread.call(step_down())


@pytest.mark.parametrize("method", [TALK, SYNC])
def test_whoever_follows_lets_nobody_in_and_says_who_leads(both: tuple[Service, Service], method: str) -> None:
    first, second = both

    async def dial() -> None:
        await open_stream(place_at(second.url), method, WORKER if method == SYNC else ADMIN)

    with pytest.raises(Unavailable) as caught:
        asyncio.run(dial())
    assert (caught.value.code, caught.value.grpc) == ("leader.elsewhere", first.url)


def test_who_may_not_come_in_is_not_told_who_leads(both: tuple[Service, Service]) -> None:
    async def dial() -> None:
        await open_stream(place_at(both[1].url), TALK, "wrong")

    with pytest.raises(Refused) as caught:
        asyncio.run(dial())
    assert caught.value.code == "auth.wrong"


def test_a_client_that_asks_the_wrong_one_is_answered_by_the_right_one(both: tuple[Service, Service]) -> None:
    with rota.connect(both[1].url, token=ADMIN) as client:
        client.put_pool("p", 3)
        assert [view.pool.name for view in client.pools()] == ["p"]


def test_a_client_knows_several_addresses_of_which_some_answer(both: tuple[Service, Service]) -> None:
    nobody = f"grpc://localhost:{free_port()}"
    with rota.connect(f"{nobody},{both[0].url}", token=ADMIN) as client:
        assert client.pools() == ()


def test_clients_and_workers_go_with_whoever_leads(both: tuple[Service, Service]) -> None:
    first, second = both
    first.add_worker(lambda line: None, place=place_at(second.url))
    with rota.connect(f"{first.url},{second.url}", token=ADMIN) as client:
        assert client.submit(adding, run="before").result(timeout_s=60) == 6
        depose(first)
        until(lambda: second.driver.is_leader, "the other one leads")
        assert client.submit(adding, run="after").result(timeout_s=60) == 6
        assert [worker.present for worker in client.workers()] == [True]
        assert {run.id for run in client.runs()} == {"before", "after"}


def test_whoever_waits_for_a_run_goes_on_waiting_elsewhere(both: tuple[Service, Service]) -> None:
    first, second = both
    with rota.connect(f"{first.url},{second.url}", token=ADMIN) as client:
        run = client.submit(adding, run="long")
        depose(first)
        first.add_worker(lambda line: None, place=place_at(second.url))
        assert run.result(timeout_s=60) == 6
