"""A worker's stream over gRPC: what it may say, and what its operator is told when it may not."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import rota
from rota.core.commands import Outcome, Report
from rota.core.errors import Refused, Unavailable
from rota.core.model import Capacity
from rota.wire import channels
from rota.wire.channels import SYNC
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.wire.streams import open_stream
from tests.integration.deadlines import until
from tests.integration.far import ADMIN, ELSEWHERE, WORKER, Service, service
from tests.integration.test_rpc_client import adding, newer_greeting
from tests.unit.client.ways import place_at

PATIENCE_S = 20


def greeting(tenant: str, *tenants: str, worker: str = "w", incarnation: str = "1") -> WorkerFrame:
    capacity = Capacity(slots=1, kinds=("python",), tenants=tenants)
    return WorkerFrame(tenant=tenant, worker=worker, incarnation=incarnation, epoch=0, number=0, capacity=capacity)


def report(tenant: str, welcome: CoordinatorFrame) -> WorkerFrame:
    said = Report(
        tenant="default",
        run="r",
        task=0,
        worker_tenant=tenant,
        worker="w",
        incarnation="1",
        fence=1,
        outcome=Outcome.SUCCESS,
    )
    return WorkerFrame(
        tenant=tenant,
        worker="w",
        incarnation="1",
        epoch=welcome.epoch,
        number=1,
        session=welcome.session,
        reports=(said,),
    )


async def speak(url: str, token: str, *said: object) -> list[Any]:
    """What a coordinator answers to messages sent one after the other, and at last why it hung up.

    Each message is bytes, a frame, or makes a frame of the last answer.
    """
    heard: asyncio.Queue[Any] = asyncio.Queue()
    stream = await open_stream(place_at(url), SYNC, token)
    waiting: list[bytes] = []
    stream.start(
        lambda: waiting.pop(0) if waiting else None,
        lambda content: heard.put_nowait(msgspec.msgpack.decode(content, type=CoordinatorFrame)),
        heard.put_nowait,
    )
    answers: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        for message in said:
            frame = message(answers[-1]) if callable(message) else message
            waiting.append(frame if isinstance(frame, bytes) else msgspec.msgpack.encode(frame))
            stream.wake()
            answers.append(await heard.get())
        if not isinstance(answers[-1], Refused | Unavailable):
            stream.close()
    await stream.closed()
    return answers


@pytest.fixture
def far(tmp_path: Path) -> Any:
    with service(tmp_path) as one:
        yield one


def tenants_of(far: Service, tenant: str) -> tuple[str, ...]:
    async def look() -> tuple[str, ...]:
        loop = far.driver.machine.loop
        assert loop is not None
        return loop.state.workers[(tenant, "w")].row.capacity.tenants

    return far.thread.call(look())


def test_a_worker_that_names_no_tenants_serves_those_of_its_token(far: Service):
    (welcome,) = asyncio.run(speak(far.url, ELSEWHERE, greeting("another")))
    assert welcome.session
    assert tenants_of(far, "another") == ("another",)
    asyncio.run(speak(far.url, WORKER, greeting("default")))
    assert tenants_of(far, "default") == (), "a token for all tenants"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ([greeting("default")], "auth.tenant"),
        ([greeting("another", "another", "default")], "auth.tenant"),
        ([greeting("another"), lambda welcome: report("another", welcome)], "auth.tenant"),
        ([b"\xc1nonsense"], "field.type"),
        ([msgspec.msgpack.encode({"tenant": "another"})], "field.type"),
        ([b""], "field.type"),
    ],
    ids=["tenant", "capacity", "report", "nonsense", "half a frame", "nothing"],
)
def test_a_frame_that_its_worker_may_not_send_ends_the_stream(far: Service, said: list[Any], code: str):
    trouble = asyncio.run(speak(far.url, ELSEWHERE, *said))[-1]
    assert isinstance(trouble, Refused)
    assert trouble.code == code
    assert ("grpc", "Sync", code) in far.counted
    assert len(far.lines) == (code == "field.type"), "the gate tells of the others"
    assert far.tokens.told == ([] if code == "field.type" else [code])
    (welcome,) = asyncio.run(speak(far.url, ELSEWHERE, greeting("another")))
    assert welcome.session, "nobody else is disturbed"


def test_each_stream_that_ends_badly_is_told_of_in_one_line(far: Service):
    for _ in range(3):
        asyncio.run(speak(far.url, WORKER, b"\xc1"))
    assert len(far.lines) == 3
    assert all(re.search(r"field\.type: .*\bframe\b", line) for line in far.lines)


def test_a_frame_that_is_too_large_is_refused(far: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.api.rpc.sync.FRAME_BYTES_MAX", 1_000)
    trouble = asyncio.run(speak(far.url, WORKER, b"x" * 2_000))[-1]
    assert re.match(r"field\.size: .*2,000", str(trouble))
    assert len(far.lines) == 1


def test_what_grpc_itself_cuts_off_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(channels, "_RECEIVED_BYTES_MAX", 1_000)
    with service(tmp_path) as far:
        trouble = asyncio.run(speak(far.url, WORKER, b"x" * 2_000))[-1]
        assert str(trouble).startswith("field.size")


def test_a_second_life_of_the_same_worker_hears_why_it_is_turned_away(far: Service):
    said: list[str] = []

    async def use() -> None:
        first = await open_stream(place_at(far.url), SYNC, WORKER)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        waiting = [msgspec.msgpack.encode(greeting("default", worker="far-0"))]
        first.start(lambda: waiting.pop(0) if waiting else None, heard.put_nowait, heard.put_nowait)
        welcome = msgspec.msgpack.decode(await heard.get(), type=CoordinatorFrame)
        whole = WorkerFrame(
            tenant="default",
            worker="far-0",
            incarnation="1",
            epoch=welcome.epoch,
            number=1,
            session=welcome.session,
            complete=True,
        )
        waiting.append(msgspec.msgpack.encode(whole))
        first.wake()
        await heard.get()
        await asyncio.to_thread(far.add_worker, said.append)
        await asyncio.to_thread(until, lambda: said, "the second to be turned away")
        first.close()
        await first.closed()

    asyncio.run(use())
    assert "worker.duplicate" in said[0]


def worker_with(far: Service, token: Callable[[], str]) -> list[str]:
    said: list[str] = []
    far.add_worker(said.append, token)
    return said


def test_a_worker_with_a_wrong_token_says_so_and_comes_in_when_it_is_right(far: Service):
    tokens = ["wrong", "wrong", "wrong", WORKER]
    said = worker_with(far, lambda: tokens.pop(0) if len(tokens) > 1 else tokens[0])
    with rota.connect(far.url, token=ADMIN) as one:
        assert one.submit(adding).result(timeout_s=60) == 6
    assert [each.partition(":")[0] for each in said] == ["auth.wrong"] * 3


def test_a_revoked_worker_is_put_out_and_its_work_goes_on_when_it_is_back(far: Service):
    tokens = [WORKER]
    said = worker_with(far, lambda: tokens[0])
    with rota.connect(far.url, token=ADMIN) as one:
        assert one.submit(adding).result(timeout_s=60) == 6
        principal = far.tokens.known[WORKER]
        far.tokens.known["next"] = principal
        tokens[0] = "next"
        far.tokens.revoke(WORKER)
        assert one.submit(adding).result(timeout_s=60) == 6
    assert any("auth.wrong" in line for line in said)


def test_a_worker_finds_its_coordinator_again(far: Service):
    said = worker_with(far, lambda: WORKER)
    with rota.connect(far.url, token=ADMIN) as one:
        assert one.submit(adding).result(timeout_s=60) == 6
        far.restart()
        assert one.submit(adding).result(timeout_s=60) == 6
    assert any("leader.none" in line for line in said)


def test_a_worker_of_a_newer_protocol_is_told_so(far: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.wire.streams.greeting", newer_greeting)
    said = worker_with(far, lambda: WORKER)
    until(lambda: said, "the worker to be turned away")
    assert re.search(r"protocol\.version: .*\bversion 7\b.*\bversion 1\b", said[0])
    assert len(far.lines) == 1
