"""A client's stream over gRPC: batches, nonsense, and somebody who never reads."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api import counter
from rota.api.rpc import talk as module
from rota.client.line import FarLine
from rota.control.events import Tell
from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.questions import ListWorkers
from rota.core.records import Story
from rota.wire.channels import TALK
from rota.wire.large_requests import BATCH_BYTES
from rota.wire.requests import BATCH_REQUESTS_MAX, Request, Watch, pack, pack_batch, read_responses
from rota.wire.streams import open_stream
from tests.unit.client.ways import TENANT, Connection, OpenGate, RpcBench, place_at, served


async def speak(bench: RpcBench, content: bytes, count: int = 1) -> list[Any]:
    """What is answered to a message: lists of responses until there are so many, or why the stream ended."""
    stream = await open_stream(place_at(f"grpc://127.0.0.1:{bench.port}"), TALK, "")
    waiting = [content]
    heard: asyncio.Queue[Any] = asyncio.Queue()
    stream.start(
        lambda: waiting.pop() if waiting else None,
        lambda said: heard.put_nowait(read_responses(said)),
        heard.put_nowait,
    )
    answers: list[Any] = []
    while sum(len(each) for each in answers) < count:
        answers.append(await heard.get())
        if not isinstance(answers[-1], list):
            break
    stream.close()
    await stream.closed()
    return answers


def test_what_is_asked_together_travels_together_and_so_do_its_answers(tmp_path: Path):
    async def play(bench: RpcBench, connection: Connection) -> None:
        requests = [pack(Request(number, ListWorkers(tenant=TENANT))) for number in range(1, 101)]
        messages = await speak(bench, pack_batch(requests), 100)
        assert [response.number for message in messages for response in message] == list(range(1, 101))
        assert len(messages) < 10
        assert bench.counted.count(("grpc", "ListWorkers", "ok")) == 100

    served(RpcBench, tmp_path, play)


def test_more_than_fits_into_a_message_comes_in_several(tmp_path: Path):
    async def play(bench: RpcBench, connection: Connection) -> None:
        names = [f"{number}" + "x" * (BATCH_BYTES // 3) for number in range(10)]
        bench.host.answer = lambda request: request.run
        asked = [connection.ask(CancelRun(tenant=TENANT, command_id="c", run=name)) for name in names]
        assert await asyncio.gather(*asked) == names

    served(RpcBench, tmp_path, play)


def test_what_is_not_understood_is_answered_under_its_number_beside_the_others(tmp_path: Path):
    async def play(bench: RpcBench, connection: Connection) -> None:
        strange = msgspec.msgpack.encode([8, {"type": "OfTomorrow"}])
        good = pack(Request(9, ListWorkers(tenant=TENANT)))
        answers = [each for message in await speak(bench, pack_batch([strange, good]), 2) for each in message]
        assert [each.number for each in answers] == [8, 9]
        assert [each.trouble.code if each.trouble else "" for each in answers] == ["field.type", ""]

    served(RpcBench, tmp_path, play)


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x07", b"\x91" * 100_000], ids=["none", "bad", "number", "deep"])
def test_what_is_no_list_of_requests_ends_that_stream_and_no_other(tmp_path: Path, content: bytes):
    async def play(bench: RpcBench, connection: Connection) -> None:
        (trouble,) = await speak(bench, content)
        assert isinstance(trouble, Refused)
        assert trouble.code == "field.type"
        assert len(bench.lines) == 1
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(RpcBench, tmp_path, play)


def test_whoever_never_reads_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "UNREAD_BYTES_MAX", 100_000)
    monkeypatch.setattr("rota.api.rpc.visits.FAREWELL_S", 0.05)

    async def play(bench: RpcBench, connection: Connection) -> None:
        stream = await open_stream(place_at(f"grpc://127.0.0.1:{bench.port}"), TALK, "")
        await stream._call.write(pack_batch([pack(Request(1, Watch(TENANT, "r")))]))  # pyright: ignore[reportPrivateUsage] - without reading
        while not bench.host.watchers:
            await asyncio.sleep(0)
        large = Story(TENANT, "r", 1, 0, 5, b"x" * 100_000)
        count = 0
        while bench.host.watchers:
            bench.host.watchers[0]([large])
            count += 1
            await asyncio.sleep(0)
        assert count < 1_000
        while ("grpc", "Talk", "leader.none") not in bench.counted:
            await asyncio.sleep(0)
        stream.close()
        await stream.closed()
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(RpcBench, tmp_path, play)


@pytest.mark.full
def test_a_huge_list_is_answered_whole_and_in_order_while_others_are_served(tmp_path: Path):
    async def play(bench: RpcBench, connection: Connection) -> None:
        most = 0
        under_way = 0

        class Counted(asyncio.Event):
            async def wait(self) -> bool:
                nonlocal most, under_way
                under_way += 1
                most = max(most, under_way)
                await asyncio.sleep(0)
                under_way -= 1
                return True

        bench.host.answer = lambda request: Counted()
        requests = [pack(Request(number, ListWorkers(tenant=TENANT))) for number in range(20_000)]
        speaking = asyncio.create_task(speak(bench, pack_batch(requests), 20_000))
        served_meanwhile = 0
        while not speaking.done():
            assert await connection.ask(ListWorkers(tenant=TENANT)) == ()
            served_meanwhile += 1
        numbers = [response.number for message in speaking.result() for response in message]
        assert numbers == list(range(20_000))
        assert most <= counter.REQUESTS_MAX
        assert served_meanwhile > 10

    served(RpcBench, tmp_path, play)


def test_a_list_of_more_requests_than_any_client_sends_is_refused(tmp_path: Path):
    async def play(bench: RpcBench, connection: Connection) -> None:
        (trouble,) = await speak(bench, msgspec.msgpack.encode([None] * (BATCH_REQUESTS_MAX + 1)))
        assert isinstance(trouble, Refused)
        assert "length <= 100000" in str(trouble)

    served(RpcBench, tmp_path, play)


def test_an_error_of_ours_with_a_stream_is_told_to_the_operator_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(content: bytes) -> list[msgspec.Raw]:
        raise KeyError("secret")

    monkeypatch.setattr(module, "split_batch", broken)

    async def play(bench: RpcBench, connection: Connection) -> None:
        (trouble,) = await speak(bench, pack_batch([]))
        assert isinstance(trouble, Refused)
        assert trouble.code == "service.failed"
        assert "secret" not in str(trouble)
        assert bench.told == [Tell("request.failed", (("request", "Talk"), ("error", "KeyError: 'secret'")))]
        assert bench.lines == []

    served(RpcBench, tmp_path, play)


def test_an_error_of_ours_at_the_door_is_told_to_the_operator_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def play(bench: RpcBench, connection: Connection) -> None:
        def broken(*_: object, **__: object) -> object:
            raise KeyError("secret")

        monkeypatch.setattr(OpenGate, "admit", broken)
        with pytest.raises(Refused, match=r"service\.failed") as met:
            await bench.connect()
        assert "secret" not in str(met.value)
        assert len(bench.told) == 1

    served(RpcBench, tmp_path, play)


def test_those_who_ask_at_once_share_a_new_connection(tmp_path: Path):
    async def play(bench: RpcBench, connection: Connection) -> None:
        dialled: list[Connection] = []

        async def dial() -> Connection:
            dialled.append(await bench.connect())
            return dialled[-1]

        line = FarLine(TENANT, dial)
        await asyncio.gather(*(line.ask(ListWorkers(tenant=TENANT)) for _ in range(10)))
        assert len(dialled) == 1
        dialled[0].lose(Unavailable("leader.none", "cut."))
        await asyncio.gather(*(line.ask(ListWorkers(tenant=TENANT)) for _ in range(10)))
        assert len(dialled) == 2
        await line.close()

    served(RpcBench, tmp_path, play)
