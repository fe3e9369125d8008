"""Who may look at the pages: tokens in a cookie, forms of other sites, and coordinators that do not lead."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.api.desk import Desk
from rota.api.http.server import HttpServer
from rota.api.http.service import HttpService
from rota.app.pages import make_pages
from rota.stores.blobs import open_blobs
from tests.integration.far import service
from tests.integration.http_stage import Stage, gate_of, shell, staged
from tests.integration.page_stage import BROWSER, look

READER, WORKER, OTHER = "reader-token", "worker-token", "other-token"
COUNTED: list[str] = []


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    tokens = f"reader:{READER}\nworker:{WORKER}\nreader@other:{OTHER}\nadmin:admin-token"
    with staged(gate=gate_of(tokens, COUNTED)) as one:
        yield one


@pytest.fixture(autouse=True)
def forgotten(stage: Stage) -> None:
    stage.http.cookies.clear()


def sign_in(stage: Stage, token: str, headers: dict[str, str] | None = None, **form: str) -> httpx.Response:
    return stage.http.post("/sign-in", data={"token": token, **form}, headers={**BROWSER, **(headers or {})})


def test_who_is_not_known_is_asked_to_sign_in_and_led_back(stage: Stage):
    response = stage.http.get("/runs/some?state=failed", headers=BROWSER)
    assert response.status_code == 303
    asked = look(stage, response.headers["location"])
    assert "Sign in" in asked.text
    (hidden,) = (given for given in asked.named("input") if given["name"] == "next")
    assert hidden["value"] == "/runs/some?state=failed"
    entered = sign_in(stage, READER, next=hidden["value"] or "")
    assert (entered.status_code, entered.headers["location"]) == (303, "/runs/some?state=failed")
    assert look(stage, "/").status == 200


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("wrong", "not accepted"),
        ("", "not a token"),
        ("reader token", "not a token"),
        (f"{READER}; Path=/; Domain=evil", "not a token"),
        ("ü", "not a token"),
        (WORKER, "role worker"),
    ],
)
def test_a_token_that_does_not_do_is_refused_with_the_reason(stage: Stage, token: str, said: str):
    response = sign_in(stage, token)
    assert response.status_code == 403
    assert said in response.text
    assert "set-cookie" not in response.headers
    if token:
        assert f">{token}<" not in response.text


def test_refusals_at_the_door_are_counted(stage: Stage):
    before = len(COUNTED)
    sign_in(stage, "wrong")
    sign_in(stage, WORKER)
    assert COUNTED[before:] == ["auth.wrong", "auth.role"]


@pytest.mark.parametrize("wanted", ["//evil.example/", "/\\evil.example", "https://evil.example", "/a\r\nX: y", ""])
def test_after_signing_in_nobody_is_led_elsewhere(stage: Stage, wanted: str):
    assert sign_in(stage, READER, next=wanted).headers["location"] == "/"


def test_a_token_that_was_changed_is_asked_for_again(stage: Stage):
    stage.http.cookies.set("rota_session", "revoked")
    assert stage.http.get("/", headers=BROWSER).status_code == 303
    assert stage.http.get("/live/", headers={"Accept": "text/event-stream"}).status_code == 401


def test_signing_out_forgets_the_token(stage: Stage):
    sign_in(stage, READER)
    assert "Sign out" in look(stage, "/").text
    response = stage.http.post("/sign-out", data={}, headers=BROWSER)
    assert (response.status_code, response.headers["location"]) == (303, "/sign-in")
    assert stage.http.get("/", headers=BROWSER).status_code == 303


def test_a_page_shows_what_the_tenant_of_the_token_has(stage: Stage):
    body = {"graph": {"name": "g", "tasks": [shell("a")]}, "run": "of-default"}
    stage.post("runs", body, 201, headers={"Authorization": "admin-token"})
    sign_in(stage, OTHER)
    assert "of-default" not in look(stage, "/runs").text
    look(stage, "/runs/of-default", 404)
    stage.http.cookies.clear()
    sign_in(stage, READER)
    assert "of-default" in look(stage, "/runs").text


def test_programs_need_the_header_and_are_not_let_in_by_a_cookie(stage: Stage):
    sign_in(stage, READER)
    assert stage.http.get("/api/v1/runs").status_code == 401
    assert stage.http.post("/api/v1/runs/x/cancel", json={}).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_a_form_of_another_site_is_refused(stage: Stage, headers: dict[str, str]):
    for path in ("/sign-in", "/sign-out"):
        response = stage.http.post(path, data={}, headers={**BROWSER, **headers})
        assert response.status_code == 403
        assert "http.origin" in response.text
        assert "set-cookie" not in response.headers


def test_a_form_of_ours_may_come_by_way_of_a_proxy_with_tls(stage: Stage):
    origin = {"Origin": f"https://127.0.0.1:{stage.port}", "Sec-Fetch-Site": "same-origin"}
    assert sign_in(stage, READER, origin).status_code == 303


@pytest.mark.parametrize("content", [b"{}", b"token=%ff&token=a", b"other=1"])
def test_a_form_that_is_none_of_ours_is_refused(stage: Stage, content: bytes):
    sort = "application/json" if content == b"{}" else "application/x-www-form-urlencoded"
    response = stage.http.post("/sign-in", content=content, headers={**BROWSER, "Content-Type": sort})
    assert response.status_code in (415, 422)


@pytest.fixture(scope="module")
def open_stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def test_nobody_is_asked_to_sign_in(open_stage: Stage):
    assert open_stage.http.get("/sign-in").headers["location"] == "/"
    assert "Sign out" not in look(open_stage, "/").text


def test_a_name_that_was_made_to_resolve_to_us_is_refused(open_stage: Stage):
    page = look(open_stage, "/", 421, headers={"Host": "evil.example"})
    assert "http.host" in page.text


def test_a_script_of_another_site_learns_nothing_and_a_link_is_followed(open_stage: Stage):
    from_there = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    look(open_stage, "/", 403, headers=from_there)
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    look(open_stage, "/", 403, headers=framed)
    visit = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    look(open_stage, "/", headers=visit)
    assert open_stage.http.get("/api/v1/runs", headers=visit).status_code == 403


def test_whoever_follows_says_so_on_a_page(tmp_path: Path):
    with service(tmp_path) as first, service(tmp_path, beside=first) as second:
        gate = gate_of()

        async def start() -> tuple[HttpServer, int]:
            desk = Desk(second.driver, open_blobs(tmp_path / "blobs"))
            server = HttpServer(HttpService(desk, second.driver, gate, pages=make_pages(gate)), "127.0.0.1", 0)
            return server, await server.start()

        server, port = second.thread.call(start())
        try:
            for path in ("/", "/runs/some", "/runs/some/tasks/a"):
                response: Any = httpx.get(f"http://127.0.0.1:{port}{path}", headers=BROWSER)
                assert response.status_code == 503
                assert "leader.elsewhere" in response.text
                assert response.headers["retry-after"] == "1"
                assert f'href="{path}">Try again' in response.text
        finally:
            second.thread.call(server.stop())


@pytest.mark.parametrize(
    ("asked", "meant"), [("/runs/", "/runs"), ("/runs/?find=a", "/runs?find=a"), ("//evil.test/", "/evil.test")]
)
def test_a_slash_too_many_leads_to_the_page_and_never_elsewhere(open_stage: Stage, asked: str, meant: str):
    url = f"http://127.0.0.1:{open_stage.port}{asked}"
    answer = open_stage.http.get(url, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["location"]) == (303, meant)
