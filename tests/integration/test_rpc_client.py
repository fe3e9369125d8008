"""`rota.connect`: a coordinator elsewhere, spoken to as if it were here."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import rota
from rota.api.auth import Principal, Role
from rota.client.rpc import RpcConnection
from rota.client.watching import Interrupted
from rota.core.questions import ListWorkers
from rota.wire import channels
from rota.wire.requests import AwaitRun
from rota.wire.routes import Route
from tests.integration import jobs
from tests.integration.deadlines import until
from tests.integration.far import ADMIN, READER, TENANT, proxy, service, shout
from tests.refusals import refused
from tests.servers.ports import free_port
from tests.unit.client.ways import place_at

ROOT = Path(__file__).parents[2]


@rota.workflow
def adding() -> None:
    jobs.add(jobs.add(1, 2), 3)


@rota.workflow
def greeting() -> None:
    rota.command("echo hello from afar")


def newer_greeting(token: str, tenant: str = "") -> list[tuple[str, str]]:
    """What a caller of days to come says first."""
    return [(name, "7" if name == channels.VERSION else value) for name, value in channels.greeting(token, tenant)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody can answer is said at once."""
    monkeypatch.setattr("rota.client.operating.PATIENCE_S", 0.0)


def test_a_remote_worker_runs_what_a_remote_client_submits(tmp_path: Path):
    with service(tmp_path) as far:
        far.add_worker(lambda line: None)
        with rota.connect(far.url, token=ADMIN) as one:
            run = one.submit(adding, run="sum")
            assert run.result(timeout_s=60) == 6
            assert [event.state for event in run.events() if event.task is None][-1] == "success"
            assert run.status().state == "success"
            assert run.why("add") == ()
            assert any("success" in line for line in run.story())
            assert [view.id for view in one.runs()] == ["sum"]
            (worker,) = one.workers()
            assert worker.id == "far-0"
            hello = one.submit(greeting)
            hello.wait(60)
            assert b"".join(hello.logs(hello.tasks()[0].id)) == b"hello from afar\n"
        assert ("grpc", "SubmitRun", "ok") in far.counted


def test_the_async_client_is_the_same(tmp_path: Path):
    async def use(url: str) -> None:
        async with await rota.AsyncRota.connect(url, token=ADMIN) as one:
            run = await one.submit(adding)
            assert (await run.why("add"))[0].code
            await run.cancel()
            assert (await run.wait(20)).state == "cancelled"

    with service(tmp_path) as far:
        asyncio.run(use(far.url))


def test_the_environment_says_where_and_as_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with service(tmp_path) as far:
        monkeypatch.setenv("ROTA_COORDINATOR", far.url)
        monkeypatch.setenv("ROTA_COORDINATOR_BEARER_TOKEN", ADMIN)
        with rota.connect() as one:
            assert one.runs() == []
        monkeypatch.delenv("ROTA_COORDINATOR")
        with refused("config.value", "ROTA_COORDINATOR", path="client.coordinator"):
            rota.connect()


@pytest.mark.parametrize(
    ("token", "code"),
    [("wrong", r"auth\.wrong"), ("", r"auth\.missing"), ("a\nb", r"auth\.wrong: .*\bcharacters\b")],
)
def test_whoever_has_no_good_token_is_refused(token: str, code: str, tmp_path: Path):
    with service(tmp_path) as far:
        with pytest.raises(rota.Refused, match=code):
            rota.connect(far.url, token=token)
        with pytest.raises(rota.Refused, match=r"auth\.tenant"):
            rota.connect(far.url, token=ADMIN, tenant="another")


def test_a_token_that_is_revoked_ends_what_was_begun_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.api.rpc.server.RECHECK_EVERY_S", 0.05)
    with (
        service(tmp_path) as far,
        rota.connect(far.url, token=READER) as one,
        rota.connect(far.url, token=ADMIN) as two,
    ):
        assert one.runs() == []
        run = two.submit(adding)
        told: list[BaseException] = []

        def look() -> None:
            try:
                for _ in one.run(run.id).events():
                    pass
            except rota.Refused as refused:
                told.append(refused)

        watching = threading.Thread(target=look)
        watching.start()
        until(lambda: ("grpc", "GetStories", "ok") in far.counted, "somebody to watch")
        far.tokens.revoke(READER)
        watching.join(20)
        assert "auth.wrong" in str(told[0]), "a stream on which nothing is said ends too"
        with pytest.raises(rota.Refused, match=r"auth\.wrong"):
            one.runs()
        assert [view.id for view in two.runs()] == [run.id], "nobody else is disturbed"


@pytest.mark.parametrize(
    "other", [Principal("reader", Role.READER, "another"), Principal("writer", Role.WRITER, TENANT)]
)
def test_a_token_that_stands_for_another_ends_what_was_begun_with_it(
    other: Principal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.api.rpc.server.RECHECK_EVERY_S", 0.05)

    async def play() -> None:
        connection = await RpcConnection.open(Route(place_at(far.url)), READER, "")
        watching = connection.watch("")
        waiting = asyncio.create_task(connection.ask(AwaitRun(tenant=TENANT, run=run.id)))
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()
        far.tokens.known[READER] = other
        far.tokens.version += 1
        async with asyncio.timeout(20):
            with pytest.raises(Interrupted):
                while True:
                    await anext(watching)
            with pytest.raises(rota.Unavailable, match=r"leader\.none: .*\btoken\b"):
                await waiting
        await connection.close()

    with service(tmp_path) as far, rota.connect(far.url, token=ADMIN) as one:
        run = one.submit(adding)
        far.thread.call(play())


def test_waiting_and_watching_go_on_over_a_restart(tmp_path: Path):
    with service(tmp_path) as far, rota.connect(far.url, token=ADMIN) as one:
        run = one.submit(adding)
        ended: list[str] = []
        seen: list[str] = []
        waiting = threading.Thread(target=lambda: ended.append(run.wait(60).state))
        watching = threading.Thread(target=lambda: seen.extend(event.state for event in run.events()))
        waiting.start()
        watching.start()
        until(lambda: ("grpc", "GetStories", "ok") in far.counted, "somebody to watch")
        far.restart()
        far.add_worker(lambda line: None)
        waiting.join(60)
        watching.join(60)
        assert ended == ["success"]
        assert seen[-1] == "success"
        assert seen.count("assigned") == 2, "nothing is told twice"


def test_nobody_there_is_said_with_the_address(impatient: None):
    port = free_port()
    with pytest.raises(rota.Unavailable, match=rf"leader\.none: .*grpc://localhost:{port}: .*refused"):
        rota.connect(f"grpc://localhost:{port}")
    with pytest.raises(rota.Unavailable, match=r"leader\.none: .*grpc://no-such-host\.invalid:7433"):
        rota.connect("grpc://no-such-host.invalid")


def test_whoever_listens_and_says_nothing_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.wire.routes.OPEN_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"grpc://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(rota.Unavailable, match=rf"leader\.none: .*{url} .*\b\d+ s\b"):
            rota.connect(url)


def test_a_peer_that_vanishes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None):
    monkeypatch.setattr(channels, "PING_EVERY_MS", 200)
    monkeypatch.setattr(channels, "PING_WAIT_MS", 200)

    async def use(port: int) -> None:
        async with (
            asyncio.timeout(30),
            proxy(port) as (between, flows),
            await rota.AsyncRota.connect(f"grpc://127.0.0.1:{between}", token=ADMIN) as one,
        ):
            assert await one.runs() == []
            flows.clear()
            with pytest.raises(rota.Unavailable):
                await one.line.ask(ListWorkers(tenant="default"))

    with service(tmp_path) as far:
        asyncio.run(use(far.port))


def test_a_client_of_a_newer_protocol_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with service(tmp_path) as far:
        monkeypatch.setattr("rota.wire.streams.greeting", newer_greeting)
        with refused("protocol.version", "version 7", "version 1"):
            rota.connect(far.url, token=ADMIN)
        assert len(far.lines) == 1
        assert "version 7" in far.lines[0]


def test_what_is_too_large_is_refused_here_and_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with service(tmp_path) as far, rota.connect(far.url, token=ADMIN) as one:
        monkeypatch.setattr("rota.client.rpc.REQUEST_BYTES_MAX", 1_000)
        with pytest.raises(rota.Refused, match=r"field\.size: .*\brequest\b.*\b1,000\b"):
            one.submit(adding, {}, command_id="x" * 2_000)
        assert one.runs() == [], "the stream goes on"
        monkeypatch.setattr("rota.client.rpc.REQUEST_BYTES_MAX", 1 << 30)
        monkeypatch.setattr("rota.api.rpc.talk.message_bytes_max", lambda who: 1_000)
        with rota.connect(far.url, token=ADMIN) as other:
            with refused("field.size", "1,000"):
                other.submit(adding, {}, command_id="x" * 2_000)
            assert other.runs() == [], "and so does this one"
        assert far.lines == []


def test_garbage_on_the_port_disturbs_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with service(tmp_path) as far, rota.connect(far.url, token=ADMIN) as one:
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100_000, bytes(range(256)) * 100, b""):
            shout(far.port, content)
        assert one.runs() == []
    said = capfd.readouterr()
    assert said.out + said.err == "", "anybody could fill the log"


def test_what_is_no_coordinator_is_said_not_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with service(tmp_path) as far:
        monkeypatch.setattr("rota.client.rpc.TALK", "/of.somebody/Else")
        with refused("protocol.version", far.url) as caught:
            rota.connect(far.url, token=ADMIN)
        assert "version" not in caught.value.reason, "it is not of another one"


def test_a_client_is_no_worker(tmp_path: Path):
    said: list[str] = []
    with service(tmp_path) as far:
        far.add_worker(said.append, lambda: ADMIN)
        until(lambda: said, "the worker to be turned away")
        assert re.search(r"auth\.role: .*\brole admin\b", said[0])
        assert far.tokens.told[0] == "auth.role"


def test_another_process_is_a_client_like_any(tmp_path: Path):
    program = """
import sys, rota
from tests.integration import jobs

@rota.workflow
def adding():
    jobs.add(jobs.add(1, 2), 3)

with rota.connect(sys.argv[1], token=sys.argv[2]) as one:
    print(one.submit(adding).result(timeout_s=60))
"""
    with service(tmp_path) as far:
        far.add_worker(lambda line: None)
        command = [sys.executable, "-c", program, far.url, ADMIN]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert (done.stdout, done.stderr) == ("6\n", "")


def test_loading_rota_does_not_load_grpc():
    program = "import rota, sys; rota.Rota; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_there_are_only_so_many_connections_and_a_place_that_is_left_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
):
    monkeypatch.setattr(channels, "CONNECTIONS_MAX", 2)
    with service(tmp_path) as far:
        # Each address that is listened on has as many: `localhost` may be two.
        url = far.url.replace("localhost", "127.0.0.1")
        one = rota.connect(url, token=READER)
        assert one.runs() == []
        with rota.connect(url, token=READER) as two:
            assert two.runs() == []
            with pytest.raises(rota.Unavailable, match="as many connections as it takes"):
                rota.connect(url, token=READER).close()

        def is_let_in() -> bool:
            try:
                with rota.connect(url, token=READER) as three:
                    return three.runs() == []
            except rota.Unavailable:
                return False

        until(is_let_in, "the place to be free")
        one.close()
