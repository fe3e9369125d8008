"""Asking and watching over a connection, whatever carries it: each way does the same."""

import asyncio
from pathlib import Path

import pytest

from rota.api import counter
from rota.client.watching import Interrupted
from rota.control.events import Tell
from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.questions import GetRun, ListWorkers
from rota.core.states import RunState
from rota.wire.requests import AwaitRun
from tests.refusals import refused
from tests.unit.client.ways import TENANT, Bench, Connection, RpcBench, SocketBench, run_view, served, story

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("kind", [SocketBench, RpcBench])]


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
        with refused("auth.tenant", "'another'"):
            await connection.ask(ListWorkers(tenant="another"))

    served(kind, tmp_path, play)


def test_an_error_of_the_host_is_answered_and_not_waited_for(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        host.answer = lambda request: KeyError("ours")
        with pytest.raises(Refused, match=r"service\.failed") as met:
            await connection.ask(ListWorkers(tenant=TENANT))
        assert "ours" not in str(met.value), "what it was is not the caller's to know"
        assert bench.told == [Tell("request.failed", (("request", "ListWorkers"), ("error", "KeyError: 'ours'")))]
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


def test_a_wait_that_is_given_up_is_given_up_there_too(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        host.answer = lambda request: run_view(RunState.RUNNING) if isinstance(request, GetRun) else ()
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.ask(AwaitRun(tenant=TENANT, run="r")), 0.02)
        await connection.ask(ListWorkers(tenant=TENANT))
        while host.watchers:
            await asyncio.sleep(0)
        assert bench.desk._watchers._by_run == {}

    served(kind, tmp_path, play)


def test_a_question_that_is_given_up_is_not_worked_on(kind: type[Bench], tmp_path: Path):
    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        given_up = host.answer = Endless()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.ask(ListWorkers(tenant=TENANT)), 0.1)
        await given_up.ended.wait()
        assert not connection._waiting

    served(kind, tmp_path, play)


class Endless:
    """An answer that never comes, and that knows when nobody waits for it any more."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def __call__(self, request: object) -> asyncio.Event:
        ended = self.ended

        class Waited(asyncio.Event):
            async def wait(self) -> bool:
                try:
                    return await super().wait()
                finally:
                    ended.set()

        return Waited()


def test_more_than_there_is_room_for_waits_a_moment_and_is_then_told_so(
    kind: type[Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(counter, "REQUESTS_MAX", 5)
    monkeypatch.setattr(counter, "ROOM_S", 0.05)

    async def play(bench: Bench, connection: Connection) -> None:
        host = bench.host
        assert await asyncio.gather(*(connection.ask(ListWorkers(tenant=TENANT)) for _ in range(50))) == [()] * 50
        gate = asyncio.Event()
        host.answer = lambda request: gate
        slow = [asyncio.create_task(connection.ask(ListWorkers(tenant=TENANT))) for _ in range(6)]
        done, _ = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
        assert [str(each.exception())[:12] for each in done] == ["service.busy"]
        assert done == {slow[-1]}
        gate.set()
        assert await asyncio.gather(*slow[:-1]) == [()] * 5

    served(kind, tmp_path, play)


def test_watches_and_waits_have_a_bound_of_their_own(
    kind: type[Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(counter, "HELD_MAX", 2)

    async def play(bench: Bench, connection: Connection) -> None:
        bench.host.answer = lambda request: run_view(RunState.RUNNING) if isinstance(request, GetRun) else ()
        watching = connection.watch("r")
        waiting = asyncio.create_task(connection.ask(AwaitRun(tenant=TENANT, run="r")))
        await connection.ask(ListWorkers(tenant=TENANT))
        with pytest.raises(Unavailable, match=r"service\.busy: .* 2 watches and waits"):
            await connection.ask(AwaitRun(tenant=TENANT, run="r"))
        with pytest.raises(Interrupted):
            await anext(connection.watch("r"))
        assert await connection.ask(ListWorkers(tenant=TENANT)) == (), "what is answered at once is"
        watching.close()
        again = connection.watch("r")
        await connection.ask(ListWorkers(tenant=TENANT))
        bench.host.watchers[0]([story(3)])
        assert (await anext(again)).number == 3
        waiting.cancel()

    served(kind, tmp_path, play)
