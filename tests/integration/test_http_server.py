"""The port itself: TLS, garbage, slowness, sizes, trouble, probes, and the end."""

import asyncio
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from rota.api.http import protocol, reading, room, service
from rota.api.http.server import HttpServer
from rota.api.http.service import HttpService
from rota.config import server_context
from rota.config.settings import Tls
from rota.control.driver import CoordinatorDriver
from rota.control.events import Tell
from rota.core.bounds import TimeLimits
from rota.core.errors import Refused, Unavailable
from rota.ports import Candidate
from tests.integration.deadlines import until
from tests.integration.http_stage import Stage, gate_of, shell, staged
from tests.refusals import refused


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


class Pems:
    """A certificate authority, and files of what it issued."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.authority = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.authority))

    def issue(self, name: str, **options: Any) -> tuple[Path, Path]:
        issued = self.ca.issue_cert(name, **options)
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        with cert.open("wb") as file:
            for each in issued.cert_chain_pems:
                file.write(each.bytes())
        issued.private_key_pem.write_to_path(str(key))
        return cert, key


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Pems:
    return Pems(tmp_path_factory.mktemp("pems"))


def context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext | None:
    return server_context(Tls(cert=str(cert), key=str(key), client_ca=str(client_ca or "")))


def secure(stage: Stage, pems: Pems, cert: tuple[Path, Path] | None = None) -> httpx.Client:
    trust = ssl.create_default_context(cafile=str(pems.authority))
    if cert is not None:
        trust.load_cert_chain(*cert)
    return httpx.Client(base_url=f"https://localhost:{stage.port}", verify=trust, timeout=30)


def test_tls_is_spoken_and_nothing_else(pems: Pems):
    with staged(tls=context(*pems.issue("localhost"))) as stage:
        with secure(stage, pems) as client:
            assert client.get("/healthz").json()["status"] == "ok"
            own = {"Origin": f"https://localhost:{stage.port}"}
            assert client.get("/api/v1/runs", headers=own).status_code == 200
        with pytest.raises(httpx.TransportError):
            stage.http.get("/healthz")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"https://localhost:{stage.port}/healthz")


def test_mutual_tls_lets_in_whom_the_authority_knows(pems: Pems, tmp_path: Path):
    stranger = Pems(tmp_path)
    tls = context(*pems.issue("localhost"), pems.authority)
    expired = pems.issue("expired", not_after=datetime.now(UTC) - timedelta(days=1))
    with staged(tls=tls) as stage:
        with secure(stage, pems, pems.issue("client")) as client:
            assert client.get("/healthz").status_code == 200
        for cert in (None, stranger.issue("other"), expired):
            with pytest.raises(httpx.TransportError), secure(stage, pems, cert) as client:
                client.get("/healthz")


def test_what_cannot_be_served_is_refused_at_the_start(stage: Stage):
    for host, port in (("127.0.0.1", stage.port), ("192.0.2.1", 0), ("no.such.invalid", 0)):
        with refused("listen.failed", f"{host}:{port}"):
            asyncio.run(HttpServer(stage.service, host, port).start())
    with pytest.raises(Refused, match=r"Use 0 to 65535"):
        asyncio.run(HttpServer(stage.service, "127.0.0.1", 99_999).start())


def say(stage: Stage, content: bytes) -> bytes:
    """Everything that is answered to some bytes."""
    with socket.create_connection(("127.0.0.1", stage.port), timeout=30) as connection:
        connection.sendall(content)
        answered = b""
        while piece := connection.recv(65536):
            answered += piece
        return answered


def test_garbage_is_answered_and_disturbs_nothing(stage: Stage, capfd: pytest.CaptureFixture[str]):
    for garbage in (
        b"\x16\x03\x01\x02\x00garbage\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
    ):
        answered = say(stage, garbage)
        assert answered.startswith(b"HTTP/1.1 4") and b'"code":"http.request"' in answered
    stage.get("runs")
    assert capfd.readouterr().err == "", "nobody's log is filled by it"


def test_a_head_that_is_too_large_is_refused(stage: Stage):
    answered = say(stage, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 100_000)
    assert answered.startswith(b"HTTP/1.1 431") and b'"code":"http.head_size"' in answered


def test_who_is_slow_is_hung_up_on(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "PATIENCE_S", 0.1)
    assert b'"code":"http.slow"' in say(stage, b"")
    assert b'"code":"http.slow"' in say(stage, b"GET /healthz HT")
    head = b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
    with contextlib.suppress(ConnectionResetError):
        assert say(stage, head + b"{") == b"", "there is nobody to answer"
    answered = say(stage, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal")
    assert answered.startswith(b"HTTP/1.1 200") and b'"code":"http.slow"' in answered


def test_who_does_not_take_what_it_asked_for_is_hung_up_on(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "PATIENCE_S", 0.3)
    made = stage.submit(shell("talk", "head -c 8000000 /dev/zero | tr '\\0' 'x'"))
    stage.ended(made["id"])
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", stage.port))
        path = f"/api/v1/runs/{made['id']}/tasks/talk/logs"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        name = f"GET {'/api/v1/runs/{run}/tasks/{task}/logs'}"
        until(lambda: ("http", name, 200) in stage.counts.seen, "the service to give up")
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(65536):
                pass


def test_there_are_only_so_many_connections(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "CONNECTIONS_MAX", 1)
    head = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with staged() as stage, connect(stage, head) as streaming:
        assert streaming.recv(10).startswith(b"HTTP/1.1 2")
        answered = say(stage, b"")
        assert answered.startswith(b"HTTP/1.1 503") and b'"code":"service.busy"' in answered
        assert b"retry-after" in answered.lower()


def connect(stage: Stage, content: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", stage.port), timeout=30)
    connection.sendall(content)
    return connection


def answer_on(connection: socket.socket) -> bytes:
    """One answer of a probe."""
    answered = b""
    while not answered.endswith(b"}"):
        answered += connection.recv(65536)
    return answered


ALIVE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("content", [b"", b"GET /heal", ALIVE], ids=["silent", "half a head", "kept alive"])
def test_whoever_asks_for_nothing_makes_place(monkeypatch: pytest.MonkeyPatch, content: bytes):
    monkeypatch.setattr(room, "CONNECTIONS_MAX", 3)
    with staged() as stage, contextlib.ExitStack() as open_ones:
        idle = [open_ones.enter_context(connect(stage, content)) for _ in range(3)]
        if content == ALIVE:
            for each in idle:
                answer_on(each)
        server = stage.server._server
        assert server is not None
        until(lambda: len(server.server_state.connections) == 3, "all to be connected")
        assert httpx.get(f"http://127.0.0.1:{stage.port}/healthz").status_code == 200
        assert idle[0].recv(1) == b"", "the one that rested longest is hung up on"
        idle[2].sendall(b"thz HTTP/1.1\r\nHost: localhost\r\n\r\n" if content == b"GET /heal" else ALIVE)
        assert answer_on(idle[2]).startswith(b"HTTP/1.1 200"), "the others are not"


def test_streams_leave_room_for_short_questions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "CONNECTIONS_MAX", 4)
    monkeypatch.setattr(room, "STREAMS_MAX", 2)
    head = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with staged() as stage, contextlib.ExitStack() as open_ones:
        for _ in range(2):
            assert open_ones.enter_context(connect(stage, head)).recv(10).startswith(b"HTTP/1.1 2")
        assert stage.get("events", 503)["code"] == "service.busy"
        for _ in range(5):
            assert open_ones.enter_context(connect(stage, ALIVE)).recv(10).startswith(b"HTTP/1.1 2")


def test_a_handshake_counts_and_has_its_time(pems: Pems, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "CONNECTIONS_MAX", 3)
    with staged(tls=context(*pems.issue("localhost"))) as stage, contextlib.ExitStack() as open_ones:
        idle = [open_ones.enter_context(connect(stage)) for _ in range(3)]
        with secure(stage, pems) as client:
            assert client.get("/healthz").status_code == 200
            assert idle[0].recv(1) == b""
        monkeypatch.setattr(room, "HANDSHAKE_S", 0.05)
        with contextlib.suppress(ConnectionResetError):
            assert open_ones.enter_context(connect(stage)).recv(1) == b"", "it took too long"
        with contextlib.suppress(ConnectionResetError):
            assert open_ones.enter_context(connect(stage, ALIVE)).recv(1) in (b"", b"\x15"), "it is not TLS"
    assert stage.server._room._here == {}


def test_a_body_that_is_too_large_is_refused_and_its_sender_hears_why(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    large = {"reason": "x" * (reading.BODY_BYTES_MAX + 1)}
    assert stage.post("runs/r/cancel", large, 413)["code"] == "field.size"

    def pieces() -> Iterator[bytes]:
        for _ in range(9):
            yield b" " * 1024 * 1024

    problem = stage.ask("POST", "runs/r/cancel", 413, content=pieces(), headers={"Content-Type": "application/json"})
    assert problem["code"] == "field.size"
    tasks = [{"id": f"t{number}", "command": {"shell": "x" * 50_000}} for number in range(200)]
    assert len(tasks) * 50_000 > 9 << 20
    assert stage.post("runs", {"graph": {"name": "g", "tasks": tasks}}, 201)["state"]


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b'{"reason": "x",,}', "in line 1, column"),
        (b'{\n "reason":\n oops}', "in line 3, column"),
        (b"{", "JSON"),
        (b'{"reason": "\xff"}', "JSON"),
    ],
)
def test_what_is_not_json_says_where(stage: Stage, content: bytes, detail: str):
    headers = {"Content-Type": "application/json"}
    problem = stage.ask("POST", "runs/r/cancel", 400, content=content, headers=headers)
    assert problem["code"] == "http.json"
    assert detail in problem["detail"]


def test_what_is_nested_too_deeply_is_refused(stage: Stage):
    content = b'{"params": {"a": ' + b"[" * 100_000
    headers = {"Content-Type": "application/json"}
    problem = stage.ask("POST", "runs", 400, content=content, headers=headers)
    assert (problem["code"], "nested" in problem["detail"]) == ("http.json", True)


def test_a_body_of_another_type_is_refused(stage: Stage):
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}, {}):
        assert stage.ask("POST", "runs/r/cancel", 415, content=b"{}", headers=headers)["code"] == "http.media_type"
    zipped = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert stage.ask("POST", "runs/r/cancel", 415, content=b"{}", headers=zipped)["code"] == "http.media_type"
    assert stage.ask("POST", "runs/r/cancel", 422, json=[])["code"] == "field.type"


def test_an_error_of_ours_is_said_without_its_details(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    async def broken(*_: object) -> object:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(stage.line.desk, "ask", broken)
    problem = stage.get("runs", 500)
    assert problem["code"] == "service.failed"
    assert "secret" not in str(problem)
    (said,) = (each for each in stage.told if isinstance(each, Tell) and each.what == "request.failed")
    assert said.about == (("request", "GET /api/v1/runs"), ("error", "ZeroDivisionError: secret"))


def test_what_nobody_can_answer_now_is_said_with_when_to_try_again(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    async def away(*_: object) -> object:
        raise Unavailable("store.full", retry_after_ms=1500)

    monkeypatch.setattr(stage.line.desk, "ask", away)
    response = stage.http.get("/api/v1/runs")
    assert (response.status_code, response.headers["retry-after"]) == (507, "2")
    assert response.json()["retry_after_ms"] == 1500


def test_what_is_to_be_repeated_is_repeated_under_the_key_it_had(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    async def away(*_: object) -> object:
        raise Unavailable("leader.none")

    with monkeypatch.context() as broken:
        broken.setattr(stage.line.desk, "ask", away)
        body = {"graph": {"name": "g", "tasks": [shell("a")]}}
        first = stage.http.post("/api/v1/runs", json=body)
        assert re.search(r"\bIdempotency-Key\b.*\banswer\b", first.json()["hint"])
        chosen = stage.http.post("/api/v1/runs", json=body, headers={"Idempotency-Key": "mine"})
        assert re.search(r"\bsame Idempotency-Key\b", chosen.json()["hint"])
        assert chosen.headers["idempotency-key"] == "mine"
        read = stage.http.get("/api/v1/runs", headers={"Idempotency-Key": "mine"})
        assert (read.json()["hint"], read.headers.get("idempotency-key")) == ("", None)
    key = {"Idempotency-Key": first.headers["idempotency-key"]}
    made = [stage.http.post("/api/v1/runs", json=body, headers=key) for _ in range(2)]
    assert made[0].json()["id"] == made[1].json()["id"]
    assert [each.headers["idempotency-key"] for each in made] == [key["Idempotency-Key"]] * 2
    assert stage.http.put("/api/v1/pools/p", json={"slots": 1}).headers["idempotency-key"].startswith("http-")


def test_nobody_waits_for_ever(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    async def silent(*_: object) -> object:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(service, "ANSWER_S", 0.05)
    monkeypatch.setattr(stage.line.desk, "ask", silent)
    assert stage.get("runs", 503)["code"] == "store.unavailable"


def test_probes_say_how_the_coordinator_stands(monkeypatch: pytest.MonkeyPatch):
    with staged() as stage:
        for probe in ("healthz", "readyz", "leaderz"):
            said = stage.get(f"/{probe}")
            assert (said["status"], said["role"]) == ("ok", "leader")
            assert said["turned_at"] > 0
        driver = stage.line.driver
        broken = threading.Event()

        async def history(*_: object) -> object:
            broken.set()
            raise OSError("gone")

        monkeypatch.setattr(driver.store, "history", history)
        monkeypatch.setattr("rota.api.http.probes.ASK_EVERY_S", -1.0)
        assert stage.get("/readyz", 503)["code"] == "store.unavailable"
        assert broken.is_set()
        assert stage.get("/leaderz")["role"] == "leader"
        stage.rota._thread.call(driver.stop())
        assert stage.get("/healthz")["status"] == "ok", "the process lives"
        assert stage.get("/readyz", 503)["code"] == "leader.none"
        assert stage.get("/leaderz", 503)["code"] == "leader.none"
        assert stage.get("runs", 503)["retry_after_ms"] > 0


def test_a_follower_is_ready_and_does_not_lead(stage: Stage):
    async def follow() -> tuple[CoordinatorDriver, HttpServer, int]:
        first = stage.line.driver
        driver = CoordinatorDriver(first.store, TimeLimits(), first.clock, who=Candidate("another"))
        driver.start()
        assert not await driver.reigns()
        server = HttpServer(HttpService(stage.line.desk, driver, gate_of()), "127.0.0.1", 0)
        return driver, server, await server.start()

    driver, server, port = stage.rota._thread.call(follow())
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            ready = client.get("/readyz").json()
            role = driver.machine.leadership.role
            assert ready == {"status": "ok", "role": role, "leader": "", "turned_at": 0}
            assert client.get("/leaderz").json()["code"] == "leader.none"
            assert client.get("/healthz").status_code == 200
            assert client.get("/metrics").status_code == 404, "nobody counts there"
    finally:
        stage.rota._thread.call(server.stop())
        stage.rota._thread.call(driver.stop())


def test_answers_leave_at_once(stage: Stage):
    """Otherwise each waits for the client's delayed acknowledgement."""
    stage.get("/healthz")
    server = stage.server._server
    assert server is not None
    for connection in stage.call(lambda: list(server.server_state.connections)):
        carried_by = connection.transport.get_extra_info("socket")
        assert carried_by.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_nothing_wakes_while_nobody_asks():
    """No timer of HTTP's own is set: uvicorn would look ten times a second."""
    with staged() as stage:
        stage.get("runs")
        stage.http.close()
        server = stage.server._server
        assert server is not None
        until(lambda: not server.server_state.connections, "the connection to be gone")
        scheduled = stage.call(
            lambda: [repr(each) for each in asyncio.get_running_loop()._scheduled if not each._cancelled]
        )
        assert [name for name in scheduled if "uvicorn" in name or "api/http" in name] == []


def test_a_request_that_is_being_answered_is_answered_when_the_service_stops():
    answers: list[httpx.Response] = []
    began = threading.Event()
    with staged() as stage:
        ask = stage.line.desk.ask
        go = asyncio.Event()

        async def slowly(*arguments: Any) -> object:
            began.set()
            await go.wait()
            return await ask(*arguments)

        stage.line.desk.ask = slowly
        url = f"http://127.0.0.1:{stage.port}/api/v1/runs"
        thread = threading.Thread(target=lambda: answers.append(httpx.get(url, timeout=30)))
        thread.start()
        assert began.wait(30)
        stage.call(lambda: asyncio.get_running_loop().call_later(0.3, go.set))
    thread.join(30)
    assert [answer.status_code for answer in answers] == [200]
