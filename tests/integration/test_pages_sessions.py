"""Sessions of browsers: what the cookie is, what ends one, and who refuses one."""

import ssl
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from rota.api.desk import Desk
from rota.api.http import page_sessions
from rota.api.http.page_sessions import AGE_MS_MAX, IDLE_MS_MAX, PageSessions
from rota.api.http.server import HttpServer
from rota.api.http.service import HttpService
from rota.api.tokens import Gate
from rota.app.clocks import wall_clock
from rota.app.pages import make_pages
from rota.config.settings import Auth
from rota.stores.blobs import open_blobs
from tests.integration.deadlines import until
from tests.integration.far import service
from tests.integration.http_stage import Stage, gate_of, shell, staged
from tests.integration.page_stage import BROWSER, Person, hidden

READER, WRITER = "reader-token", "writer-token"
PLAIN, PREFIXED = "rota_session", "__Host-rota_session"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(gate=gate_of(f"reader:{READER}\nwriter:{WRITER}")) as one:
        yield one


def cookies_of(response: httpx.Response) -> SimpleCookie:
    found = SimpleCookie()
    for header in response.headers.get_list("set-cookie"):
        found.load(header)
    return found


def sign_in(stage: Stage, token: str = READER, **headers: str) -> httpx.Response:
    url = f"http://127.0.0.1:{stage.port}/sign-in"
    return httpx.post(url, data={"token": token}, headers={**BROWSER, **headers})


def status_with(stage: Stage, secret: str, path: str = "/", name: str = PLAIN) -> int:
    url = f"http://127.0.0.1:{stage.port}{path}"
    return httpx.get(url, headers={**BROWSER, "Cookie": f"{name}={secret}"}).status_code


def test_the_cookie_is_a_secret_of_its_own_and_no_response_has_the_token(stage: Stage):
    secrets = set[str]()
    for _ in range(3):
        response = sign_in(stage)
        (kept,) = cookies_of(response).values()
        assert (kept.key, kept["httponly"], kept["samesite"], kept["path"]) == (PLAIN, True, "Strict", "/")
        assert (kept["max-age"], kept["domain"], kept["secure"]) == ("", "", "")
        assert len(kept.value) >= 43, "256 bits in base64"
        assert READER not in str(response.headers) + response.text
        secrets.add(kept.value)
    assert len(secrets) == 3
    with Person(stage, READER) as person:
        for path in ("/", "/runs/nothing", "/sign-in", "/runs"):
            answer = person.http.get(path)
            assert READER not in str(answer.headers) + answer.text
    assert READER not in str(stage.told)


@pytest.mark.parametrize("path", ["/api/v1/runs", "/metrics"])
def test_only_pages_take_it(stage: Stage, path: str):
    secret = cookies_of(sign_in(stage))[PLAIN].value
    assert status_with(stage, secret) == 200
    assert status_with(stage, secret, path) == 401
    for header in (f"Bearer {secret}", secret):
        answer = httpx.get(f"http://127.0.0.1:{stage.port}{path}", headers={"Authorization": header})
        assert answer.json()["code"] == "auth.wrong", "it is not a token either"


@pytest.mark.parametrize("value", [READER, "", "x" * 43, "x" * 5_000, "ü", WRITER])
def test_nothing_else_is_a_session(stage: Stage, value: str):
    for name in (PLAIN, PREFIXED, "rota_token"):
        url = f"http://127.0.0.1:{stage.port}/live/"
        answer = httpx.get(url, headers=[(b"Cookie", f"{name}={value}".encode())])
        assert answer.status_code == 401
        assert answer.json()["code"] in ("auth.session", "auth.missing")


def test_signing_out_ends_every_copy_of_it_and_no_other_session(stage: Stage):
    with Person(stage, READER) as person, Person(stage, READER) as other:
        secret = person.http.cookies[PLAIN]
        answer = person.http.post("/sign-out", data={}, headers=person.origin)
        (gone,) = cookies_of(answer).values()
        assert (gone.key, gone.value, gone["max-age"]) == (PLAIN, "", "0")
        assert status_with(stage, secret) == 303
        assert other.look("/").status == 200


def test_signing_in_again_ends_the_session_before(stage: Stage):
    with Person(stage, READER) as person:
        first = person.http.cookies[PLAIN]
        person.http.post("/sign-in", data={"token": WRITER})
        assert person.http.cookies[PLAIN] != first
        assert status_with(stage, first) == 303


def test_a_stream_ends_with_its_session(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rota.api.http.streams.BEAT_S", 0.05)
    accept = {"Accept": "text/event-stream"}
    with Person(stage, READER) as person, person.http.stream("GET", "/live/", headers=accept) as response:
        assert response.status_code == 200
        pieces = response.iter_bytes()
        next(pieces)
        kept = {"Cookie": f"{PLAIN}={person.http.cookies[PLAIN]}"}
        httpx.post(f"http://127.0.0.1:{stage.port}/sign-out", data={}, headers={**person.origin, **kept})
        with pytest.raises(httpx.RemoteProtocolError):
            for _ in pieces:
                pass


def test_a_form_of_one_session_is_refused_in_another_of_the_same_token(stage: Stage):
    with Person(stage, WRITER) as one, Person(stage, WRITER) as other:
        body = {"graph": {"name": "g", "tasks": [shell("a", "sleep 1000")]}, "run": "r"}
        stage.post("runs", body, 201, headers={"Authorization": WRITER})
        form = hidden(one.look("/runs/r/cancel"))
        refused = other.send("/runs/r/cancel", {**form, "reason": "x"})
        assert refused.status_code == 403
        assert one.send("/runs/r/cancel", {**form, "reason": "x"}).status_code == 303


def test_a_proxy_with_tls_gives_the_prefixed_cookie(stage: Stage):
    origin = {"Origin": f"https://127.0.0.1:{stage.port}", "Sec-Fetch-Site": "same-origin"}
    (kept,) = cookies_of(sign_in(stage, **origin)).values()
    assert (kept.key, kept["secure"], kept["path"], kept["domain"]) == (PREFIXED, True, "/", "")
    assert status_with(stage, kept.value, name=PREFIXED) == 200
    url = f"http://127.0.0.1:{stage.port}/sign-out"
    out = httpx.post(url, data={}, headers={**BROWSER, **origin, "Cookie": f"{PREFIXED}={kept.value}"})
    (gone,) = cookies_of(out).values()
    assert (gone.key, gone["max-age"], gone["secure"]) == (PREFIXED, "0", True)
    assert status_with(stage, kept.value, name=PREFIXED) == 303


def test_an_old_cookie_of_the_other_name_does_not_hide_a_session(stage: Stage):
    secret = cookies_of(sign_in(stage))[PLAIN].value
    headers = {**BROWSER, "Cookie": f"{PREFIXED}=old; {PLAIN}={secret}"}
    assert httpx.get(f"http://127.0.0.1:{stage.port}/", headers=headers).status_code == 200


def test_under_tls_only_the_prefixed_cookie_counts():
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    with staged(gate=gate_of(f"reader:{READER}"), tls=server) as one, httpx.Client(verify=client) as http:
        url = f"https://127.0.0.1:{one.port}"
        (kept,) = cookies_of(http.post(f"{url}/sign-in", data={"token": READER}, headers=BROWSER)).values()
        http.cookies.clear()
        assert (kept.key, kept["secure"], kept["path"]) == (PREFIXED, True, "/")
        for name, status in ((PREFIXED, 200), (PLAIN, 303)):
            assert http.get(url, headers={**BROWSER, "Cookie": f"{name}={kept.value}"}).status_code == status


def test_a_session_ends_with_its_token_and_follows_its_role(tmp_path: Path):
    file = tmp_path / "tokens"
    file.write_text(f"reader:{READER}\nreader:other")
    now = [wall_clock()]
    gate = Gate(Auth(token_file=str(file)), lambda: now[0])
    with staged(gate=gate) as stage, Person(stage, READER) as person, Person(stage, "other") as other:
        assert person.look("/").status == 200
        file.write_text(f"writer:{READER}\nreader:other")
        now[0] += 120_000
        person.look("/queries")
        assert gate.names[0].startswith("writer")
        file.write_text("reader:other")
        now[0] += 120_000
        assert person.http.get("/").status_code == 303
        file.write_text(f"reader:{READER}\nreader:other")
        now[0] += 120_000
        assert person.http.get("/").status_code == 303, "it does not come back with its token"
        assert other.look("/").status == 200


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize(
    ("steps", "is_alive"),
    [
        ([IDLE_MS_MAX - 1], True),
        ([IDLE_MS_MAX], False),
        ([IDLE_MS_MAX - 1] * 5, True),
        ([IDLE_MS_MAX - 1] * (AGE_MS_MAX // (IDLE_MS_MAX - 1) + 1), False),
    ],
)
def test_a_session_has_its_time(steps: list[int], is_alive: bool):
    clock = Clock()
    sessions = PageSessions(clock)
    secret = sessions.begin(b"token")
    found: bytes | None = b""
    for step in steps:
        clock.now += step
        found = sessions.find(secret)
    assert (found == b"token") is is_alive
    assert len(sessions) == is_alive


def test_looking_without_use_lets_it_end():
    clock = Clock()
    sessions = PageSessions(clock)
    secret = sessions.begin(b"token")
    clock.now += IDLE_MS_MAX // 2
    assert sessions.find(secret, is_use=False) == b"token"
    clock.now += IDLE_MS_MAX // 2
    assert sessions.find(secret, is_use=False) is None


def test_the_least_recently_used_make_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page_sessions, "SESSIONS_MAX", 4)
    monkeypatch.setattr(page_sessions, "SESSIONS_PER_TOKEN_MAX", 2)
    sessions = PageSessions(Clock())
    made = [sessions.begin(b"a"), sessions.begin(b"a")]
    sessions.find(made[0])
    made.append(sessions.begin(b"a"))
    assert [sessions.find(secret) is not None for secret in made] == [True, False, True]
    made += [sessions.begin(token) for token in (b"b", b"c", b"d", b"e")]
    assert len(sessions) == 4
    assert sessions.find(made[-1]) == b"e"
    assert sessions.find(made[0]) is None
    stored: Any = sessions.__dict__
    assert not any(secret in repr(stored) for secret in made), "no secret is kept"


def test_a_follower_never_asks_for_a_new_sign_in(tmp_path: Path):
    """Behind one address a browser meets both: it is never sent to sign in by the one that does not lead."""
    with service(tmp_path) as first, service(tmp_path, beside=first) as second:
        gate = gate_of(f"reader:{READER}")
        ports: list[int] = []
        servers: list[tuple[Any, HttpServer]] = []
        for one in (first, second):

            async def start(one: Any = one) -> tuple[HttpServer, int]:
                desk = Desk(one.driver, open_blobs(tmp_path / "blobs"))
                server = HttpServer(HttpService(desk, one.driver, gate, pages=make_pages(gate)), "127.0.0.1", 0)
                return server, await server.start()

            server, port = one.thread.call(start())
            servers.append((one, server))
            ports.append(port)
        try:
            leader, follower = ports
            until(lambda: httpx.get(f"http://127.0.0.1:{leader}/leaderz").status_code == 200, "it to lead")
            answer = httpx.post(f"http://127.0.0.1:{leader}/sign-in", data={"token": READER}, headers=BROWSER)
            headers = {**BROWSER, "Cookie": f"{PLAIN}={cookies_of(answer)[PLAIN].value}"}
            for _ in range(2):
                assert httpx.get(f"http://127.0.0.1:{leader}/", headers=headers).status_code == 200
                there = httpx.get(f"http://127.0.0.1:{follower}/", headers=headers)
                assert (there.status_code, "set-cookie" in there.headers) == (503, False)
                for path, form in (("/sign-in", {"token": READER}), ("/sign-out", {})):
                    said = httpx.post(f"http://127.0.0.1:{follower}{path}", data=form, headers=headers)
                    assert (said.status_code, "set-cookie" in said.headers) == (503, False)
        finally:
            for one, server in servers:
                one.thread.call(server.stop())
