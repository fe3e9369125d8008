"""What HTTP lets two parties read differently is refused, and HEAD answers as GET does."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rota.api.http.protocol import HEAD_BYTES_MAX
from rota.api.http.reading import SINGLE_HEADERS
from tests.integration.deadlines import until
from tests.integration.http_stage import Stage, gate_of, shell, staged
from tests.integration.page_stage import BROWSER

ADMIN = "admin-token"
# Differs from one answer to the next.
OF_THE_MOMENT = ("date", "content-length")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged(gate=gate_of(f"admin@*:{ADMIN}")) as one:
        yield one


def send(stage: Stage, content: bytes) -> tuple[int, str, bytes]:
    """The status, the error code and all bytes of what is answered before the connection is closed."""
    with socket.create_connection(("127.0.0.1", stage.port), timeout=30) as connection:
        connection.sendall(content)
        answered = b""
        while piece := connection.recv(65536):
            answered += piece
    head, _, body = answered.partition(b"\r\n\r\n")
    code = json.loads(body)["code"] if b"problem+json" in head and body else ""
    return int(head.split()[1]), code, answered


CHUNKED = b"4\r\n1234\r\n0\r\n\r\n"


@pytest.mark.parametrize("method", [b"GET", b"POST", b"HEAD", b"PUT", b"DELETE"])
@pytest.mark.parametrize(
    ("version", "headers"),
    [
        (b"1.1", b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        (b"1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"),
        (b"1.1", b"content-length: 4\r\nTRANSFER-ENCODING: CHUNKED\r\n"),
        (b"1.0", b"Transfer-Encoding: chunked\r\n"),
        (b"1.0", b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
    ],
)
def test_a_body_with_two_ends_is_refused_and_the_connection_closed(
    stage: Stage, method: bytes, version: bytes, headers: bytes
):
    hidden = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    request = method + b" /healthz HTTP/" + version + b"\r\nHost: localhost\r\n" + headers + b"\r\n"
    status, code, answered = send(stage, request + CHUNKED + hidden)
    assert (status, code) == (400, "" if method == b"HEAD" else "http.header")
    assert answered.count(b"HTTP/1.1 ") == 1, "what came after it is not read as a request"


@pytest.mark.parametrize("headers", [b"Content-Length: 4\r\nContent-Length: 5\r\n", b"Transfer-Encoding: gzip\r\n"])
def test_a_length_that_is_not_clear_is_refused(stage: Stage, headers: bytes):
    status, _, _ = send(stage, b"POST /healthz HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n" + CHUNKED)
    assert status in (400, 501)


def head_of(size: int, shape: str) -> bytes:
    """A complete head of so many bytes."""
    start, end = b"GET /healthz", b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    room = size - len(start) - len(end) - 2
    if shape == "path":
        return start + b"?" + b"x" * (room - 1) + end + b"\r\n"
    if shape == "one header":
        return start + end + b"X: " + b"y" * (room - 5) + b"\r\n\r\n"
    if shape == "blanks":
        return start + end + b"X: " + b" " * (room - 6) + b"y\r\n\r\n"
    lines = b"".join(b"X-%06d: y\r\n" % number for number in range((room - 5) // 13))
    return start + end + lines + b"X: " + b"y" * (room - len(lines) - 5) + b"\r\n\r\n"


@pytest.mark.parametrize("shape", ["path", "one header", "many headers", "blanks"])
@pytest.mark.parametrize("beyond", [0, 1, 100, 30_000, 200_000])
def test_a_head_has_32_kilobytes_whether_it_comes_whole_or_in_part(stage: Stage, shape: str, beyond: int):
    head = head_of(HEAD_BYTES_MAX + beyond, shape)
    assert len(head) == HEAD_BYTES_MAX + beyond
    with socket.create_connection(("127.0.0.1", stage.port), timeout=30) as connection:
        connection.sendall(head)
        status = connection.recv(12)
    expected = b"HTTP/1.1 431" if beyond else b"HTTP/1.1 422" if shape == "path" else b"HTTP/1.1 200"
    assert status == expected


def test_a_large_body_behind_a_small_head_is_not_counted(stage: Stage):
    body = b'{"reason": "' + b"x" * 200_000 + b'"}'
    head = (
        f"POST /api/v1/runs/none/cancel HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ADMIN}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    status, code, _ = send(stage, head.encode() + body)
    assert status != 431
    assert code != "http.head_size"


@pytest.mark.parametrize("name", SINGLE_HEADERS)
@pytest.mark.parametrize("second", ["same", "other"])
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/runs", "/", "/static/none.js"])
def test_a_header_of_which_one_counts_appears_once(stage: Stage, name: str, second: str, path: str):
    first = {"authorization": f"Bearer {ADMIN}", "rota-tenant": "default", "origin": ""}.get(name, "a")
    more = [(name, first), (name.upper(), first if second == "same" else "other")]
    response = stage.http.get(path, headers=httpx.Headers([("Accept", "application/json"), *more]))
    assert response.status_code == 400
    assert (response.json()["code"], response.json()["path"].lower()) == ("http.header", name)


def paths_of(stage: Stage) -> list[str]:
    """The path of every GET endpoint, of the API, the probes and the pages, and one static file."""
    routes: Any = stage.service._routes._by_noun
    found = [
        endpoint.path
        for same in routes.values()
        for _, endpoint in same
        if endpoint.method == "GET" and endpoint.path != "/static/{file}"
    ]
    page = stage.http.get("/", headers={**BROWSER, "Authorization": ADMIN}).text
    return [*found, page[page.index("/static/") :].split('"')[0]]


def test_head_answers_as_get_does_on_every_path(stage: Stage):
    headers = {"Authorization": ADMIN, "Accept": "text/html, */*"}
    made = stage.post("runs", {"graph": {"name": "g", "tasks": [shell("a")]}}, 201, headers=headers)
    stage.ended(made["id"])
    asked = paths_of(stage)
    assert len(asked) > 60
    wrong: list[str] = []
    statuses: set[int] = set()
    for pattern in asked:
        path = pattern.replace("{run}", made["id"]).replace("{task}", "a").replace("{attempt}", "1")
        with stage.http.stream("GET", path, headers=headers) as got:
            pass
        head = stage.http.head(path, headers=headers)
        statuses.add(got.status_code)
        shown = [
            (each.status_code, {name: value for name, value in each.headers.items() if name not in OF_THE_MOMENT})
            for each in (got, head)
        ]
        if (
            shown[0] != shown[1]
            or head.content
            or ("content-length" in got.headers) != ("content-length" in head.headers)
        ):
            wrong.append(f"{pattern}: {shown}")
    assert wrong == []
    assert {200, 404} <= statuses


@pytest.mark.parametrize("token", ["", "wrong", ADMIN])
@pytest.mark.parametrize("path", ["/", "/runs", "/api/v1/runs", "/metrics", "/nothing", "/api/v1/runs/none"])
def test_head_is_refused_as_get_is(stage: Stage, token: str, path: str):
    headers = {**BROWSER, **({"Authorization": token} if token else {})}
    got, head = stage.http.get(path, headers=headers), stage.http.head(path, headers=headers)
    assert (head.status_code, head.headers.get("location"), head.content) == (
        got.status_code,
        got.headers.get("location"),
        b"",
    )


def test_head_on_a_stream_ends_at_once_and_leaves_nothing(stage: Stage):
    for _ in range(3):
        response = stage.http.head("/api/v1/events", headers={"Authorization": ADMIN})
        assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    until(lambda: stage.service._streaming == 0, "the streams to have ended")


def test_what_does_not_take_get_does_not_take_head(stage: Stage):
    response = stage.http.head("/api/v1/runs/x/cancel", headers={"Authorization": ADMIN})
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    other = stage.http.delete("/api/v1/runs", headers={"Authorization": ADMIN})
    assert other.status_code == 405
    assert {"GET", "HEAD"} <= set(other.headers["allow"].split(", "))
