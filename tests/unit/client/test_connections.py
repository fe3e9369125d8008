"""Asking and watching over a connection, whatever carries it: each way does the same."""

import asyncio
from pathlib import Path

import pytest

from rota.client.watching import Interrupted
from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.questions import ListWorkers
from tests.unit.client.ways import TENANT, Bench, Connection, RpcBench, SocketBench, served, story

pytestmark = pytest.mark.parametrize("kind", [SocketBench, RpcBench])


def test_questions_and_trouble_come_back(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()
        host.answer = lambda request: "r"
        assert await connection.ask(CancelRun(tenant=TENANT, command_id="c", run="r")) == "r"
        host.answer = lambda request: Refused("run.unknown", "none")
        with pytest.raises(Refused, match="none"):
            await connection.ask(ListWorkers(tenant=TENANT))
        host.answer = lambda request: Unavailable("leader.none", "not now.")
        with pytest.raises(Unavailable, match="not now"):
            await connection.ask(ListWorkers(tenant=TENANT))
        with pytest.raises(Refused, match="may not act for tenant 'another'"):
            await connection.ask(ListWorkers(tenant="another"))

    served(kind, tmp_path, play)


def test_an_error_of_the_host_is_answered_and_not_waited_for(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        host.answer = lambda request: KeyError("ours")
        with pytest.raises(Unavailable, match="the coordinator met an error: KeyError: 'ours'"):
            await connection.ask(ListWorkers(tenant=TENANT))
        host.answer = lambda request: ()
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(kind, tmp_path, play)


def test_many_questions_are_under_way_at_once(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        gate = asyncio.Event()
        host.answer = lambda request: gate
        slow = [asyncio.create_task(connection.ask(ListWorkers(tenant=TENANT))) for _ in range(10)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*slow) == [()] * 10

    served(kind, tmp_path, play)


def test_watching_tells_what_concerns_the_run_until_it_ends(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        watching = connection.watch("r")
        await connection.ask(ListWorkers(tenant=TENANT))
        (watcher,) = host.watchers
        watcher([story(0), story(0, "other"), story(0, tenant="u")])
        watcher([story(0, "other")])
        watcher([story(1)])
        assert [(await anext(watching)).number, (await anext(watching)).number] == [0, 1]
        watching.close()
        await connection.ask(ListWorkers(tenant=TENANT))
        assert host.watchers == []

    served(kind, tmp_path, play)


def test_watching_that_is_interrupted_there_is_interrupted_here(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        watching = connection.watch("r")
        await connection.ask(ListWorkers(tenant=TENANT))
        host.watchers[0](None)
        with pytest.raises(Interrupted):
            await anext(watching)
        again = connection.watch("r")
        await bench.server.stop()
        with pytest.raises(Interrupted):
            await anext(again)
        assert connection.is_lost
        with pytest.raises(Interrupted):
            await anext(connection.watch("r"))
        with pytest.raises(Unavailable, match=r"leader\.none"):
            await connection.ask(ListWorkers(tenant=TENANT))

    served(kind, tmp_path, play)


def test_a_client_that_leaves_is_forgotten(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        other = await bench.connect()
        other.watch("r")
        await other.ask(ListWorkers(tenant=TENANT))
        assert len(host.watchers) == 1
        await other.close()
        while host.watchers:
            await asyncio.sleep(0)
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(kind, tmp_path, play)
