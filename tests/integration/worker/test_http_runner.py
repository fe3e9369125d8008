"""Requests that a worker sends: their ends, their values, where they may go, and what is told about them."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import rota
from rota.api.logs import read_log
from rota.core.commands import Outcome
from rota.core.decide.leases import Offer
from rota.core.model import FailureClass
from rota.stores.blobs import open_blobs
from rota.wire.requests import ReadLog
from rota.wire.values import unpack
from rota.wire.work import HttpWork, StoredValue, Value, decode_value, encode_work
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.runners.egress import EgressPolicy
from rota.worker.runners.http import RESPONSE_BYTES_MAX, HttpRunner
from rota.worker.runners.thread import ThreadRunner
from rota.worker.sync import AttemptOver
from tests.integration.playing import played
from tests.integration.worker.stage import python_work

PATIENCE_S = 30
HERE = ("127.0.0.0/8",)


class Site:
    """A server on this machine that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.port = 0
        self.waits = asyncio.Event()
        self.hung_up = asyncio.Event()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split()
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append((method, path, headers, body))
        if path == "/never":
            self.waits.set()
            await reader.read()
            self.hung_up.set()
        else:
            status, more, content = self.answers.get(path, (404, {}, b"no such page"))
            lines = [f"{name}: {value}" for name, value in {"Content-Length": str(len(content)), **more}.items()]
            writer.write("\r\n".join([f"HTTP/1.1 {status} So", *lines, "", ""]).encode() + content)
        writer.close()


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1")
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


class Bench:
    def __init__(self, folder: Path, site: Site) -> None:
        self.site = site
        self.folder = folder
        self.blobs = open_blobs(folder / "blobs")
        self.complaints: list[str] = []
        self.logs = LogShipper(self.blobs, LogFolder(folder), self.complaints.append)
        self.calls = ThreadRunner(self.blobs, folder)

    async def ask(
        self, url: str = "", *, allow: tuple[str, ...] = HERE, limit_ms: int = 0, **fields: Any
    ) -> AttemptOver:
        work = encode_work(HttpWork(url=url or self.site.url(), **fields))
        offer = Offer("acme", "r", 0, "t", 5, 1, "http", work, b"", limit_ms, 30_000)
        runner = HttpRunner(self.blobs, self.folder, self.logs, EgressPolicy(allow), self.calls)
        try:
            return await runner.run(offer)
        finally:
            await self.logs.settled()
            await runner.close()

    async def log(self) -> str:
        return (await read_log(self.blobs, ReadLog(tenant="acme", run="r", task="t"))).content.decode()

    async def value(self, over: AttemptOver) -> Any:
        assert over.outcome is Outcome.SUCCESS, over.error
        assert over.result is not None
        value = decode_value(over.result)
        content = await self.blobs.get(value.ref) if isinstance(value, StoredValue) else value.content
        assert isinstance(value, Value | StoredValue)
        return unpack(value.encoding, content)


def benched(test: Callable[[Bench], Awaitable[None]]) -> Callable[[Path], None]:
    async def play(folder: Path) -> None:
        async with asyncio.timeout(PATIENCE_S), open_site() as site:
            bench = Bench(folder, site)
            await test(bench)
            await bench.logs.close(PATIENCE_S)

    return played(test, play)


@benched
async def test_what_is_answered_is_the_result(bench: Bench) -> None:
    for content_type, body, value in (
        ("application/json", b'{"a": [1, null, "x"]}', {"a": [1, None, "x"]}),
        ("application/problem+json; charset=utf-8", b"[]", []),
        ("application/json", b"{not json", "{not json"),
        ("application/json", b"1" * 30, "1" * 30),
        ("text/plain", "grün".encode(), "grün"),
        ("text/html; charset=latin-1", "grün".encode("latin-1"), "grün"),
        ("text/html; charset=klingon", b"x", "x"),
        ("text/plain; charset=idna", b"x.", "x."),
        ("text/plain; charset=undefined", b"x", "x"),
        ("text/plain; charset=unicode_escape", b"\\ud800", "\\ud800"),
        ("text/plain; charset=utf-7", b"+2AA-", "+2AA-"),
        ("application/octet-stream", b"\0\1", b"\0\1"),
        ("", b"bytes", b"bytes"),
        ("text/plain", b"", None),
        ("application/json", b'"' + b"x" * 50_000 + b'"', "x" * 50_000),
    ):
        bench.site.answers["/"] = (200, {"Content-Type": content_type}, body)
        assert await bench.value(await bench.ask()) == value


@benched
async def test_method_headers_and_body_are_sent_as_they_were_written(bench: Bench) -> None:
    bench.site.answers["/x?y=1"] = (201, {}, b"")
    over = await bench.ask(bench.site.url("/x?y=1"), method="PUT", headers=(("X-Mark", "a b"),), body=b"\0body")
    assert over.outcome is Outcome.SUCCESS
    ((method, path, headers, body),) = bench.site.asked
    assert (method, path, body, headers["x-mark"]) == ("PUT", "/x?y=1", b"\0body", "a b")
    assert headers["host"] == f"127.0.0.1:{bench.site.port}"


@benched
async def test_a_status_that_is_not_accepted_is_a_failure_with_the_beginning_of_the_answer(bench: Bench) -> None:
    bench.site.answers["/"] = (500, {}, b"because " * 1_000)
    over = await bench.ask()
    assert (over.outcome, over.failure) == (Outcome.FAILED, FailureClass.USER)
    assert re.match(r".*\b500\b.*\(200, 201, 202, 204\)\nbecause because", over.error)
    assert len(over.error) < 600
    assert (await bench.ask(accepted=(500,))).outcome is Outcome.SUCCESS


@benched
async def test_an_answer_that_is_too_large_is_not_tried_again(bench: Bench) -> None:
    bench.site.answers["/"] = (200, {}, bytes(RESPONSE_BYTES_MAX + 1))
    over = await bench.ask()
    assert over.failure is FailureClass.FATAL
    assert "more than 1,000,000 bytes" in over.error
    bench.site.answers["/"] = (200, {}, bytes(RESPONSE_BYTES_MAX))
    assert len(await bench.value(await bench.ask())) == RESPONSE_BYTES_MAX


@benched
async def test_an_address_inside_is_not_asked_unless_it_is_allowed(bench: Bench) -> None:
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1"):
        over = await bench.ask(bench.site.url(host=host), allow=())
        assert over.failure is FailureClass.FATAL
        assert re.search(r"127\.0\.0\.1|::1", over.error)
        assert "egress_allow" in over.error
    assert bench.site.asked == []


@benched
async def test_the_address_that_was_checked_is_the_one_that_is_asked(bench: Bench) -> None:
    """A name that answers with another address the second time gains nothing by it: there is no second time."""
    bench.site.answers["/"] = (200, {}, b"x")
    loop = asyncio.get_running_loop()
    looked_up: list[str] = []

    async def rebinding(host: str, port: int, **options: Any) -> list[Any]:
        looked_up.append(host)
        address = "127.0.0.1" if len(looked_up) == 1 else "169.254.169.254"
        return [(2, 1, 6, "", (address, port))]

    loop.getaddrinfo = rebinding  # pyright: ignore[reportAttributeAccessIssue] - in the place of a name server
    assert (await bench.ask(bench.site.url(host="rebound.example"))).outcome is Outcome.SUCCESS
    assert looked_up == ["rebound.example"]
    assert bench.site.asked[0][2]["host"] == f"rebound.example:{bench.site.port}"


@benched
async def test_redirects_are_followed_and_each_is_checked(bench: Bench) -> None:
    bench.site.answers["/a"] = (302, {"Location": "/b"}, b"")
    bench.site.answers["/b"] = (307, {"Location": bench.site.url("/c")}, b"")
    bench.site.answers["/c"] = (200, {"Content-Type": "text/plain"}, b"here")
    assert await bench.value(await bench.ask(bench.site.url("/a"))) == "here"
    for location, address in (("http://169.254.169.254/latest", "169.254.169.254"), ("http://[::1]/", "::1")):
        bench.site.answers["/a"] = (302, {"Location": location}, b"")
        over = await bench.ask(bench.site.url("/a"))
        assert over.failure is FailureClass.FATAL
        assert address in over.error
        assert "egress_allow" in over.error
    for location in ("file:///etc/passwd", "gopher://127.0.0.1/", "http://u:p@127.0.0.1/"):
        bench.site.answers["/a"] = (302, {"Location": location}, b"")
        assert (await bench.ask(bench.site.url("/a"))).failure is FailureClass.FATAL
    bench.site.answers["/a"] = (302, {"Location": "/a"}, b"")
    bench.site.asked.clear()
    over = await bench.ask(bench.site.url("/a"))
    assert (over.failure, over.error) == (FailureClass.FATAL, "redirected more than 5 times")
    assert len(bench.site.asked) == 6


@benched
async def test_what_is_meant_for_one_origin_is_not_sent_to_another(bench: Bench) -> None:
    secrets = (("Authorization", "Bearer sesame"), ("Cookie", "a=sesame"), ("X-Mark", "public"))
    async with open_site() as other:
        other.answers["/"] = (200, {}, b"")
        bench.site.answers["/near"] = (307, {"Location": "/far"}, b"")
        bench.site.answers["/far"] = (307, {"Location": other.url()}, b"")
        over = await bench.ask(bench.site.url("/near"), method="POST", headers=secrets, body=b"kept")
        assert over.outcome is Outcome.SUCCESS
        assert [headers["cookie"] for _, _, headers, _ in bench.site.asked] == ["a=sesame"] * 2
        ((method, _, headers, body),) = other.asked
        assert (method, body, headers["x-mark"]) == ("POST", b"kept", "public")
        assert "authorization" not in headers
        assert "cookie" not in headers


@benched
async def test_a_post_that_is_redirected_to_see_something_becomes_a_get(bench: Bench) -> None:
    for status, after in ((301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")):
        bench.site.asked.clear()
        bench.site.answers["/a"] = (status, {"Location": "/b"}, b"")
        bench.site.answers["/b"] = (200, {}, b"")
        await bench.ask(bench.site.url("/a"), method="POST", headers=(("Content-Type", "x/y"),), body=b"b")
        method, _, headers, body = bench.site.asked[-1]
        assert (method, body, "content-type" in headers) == (after, b"b" * (after == "POST"), after == "POST")


@benched
async def test_no_answer_in_time_is_a_timeout_and_closes_the_connection(bench: Bench) -> None:
    # The first request loads what sends it.
    await bench.ask()
    over = await bench.ask(bench.site.url("/never"), timeout_ms=1_000)
    assert (over.failure, over.error) == (FailureClass.TIMEOUT, "no answer within 1,000 ms")
    await bench.site.hung_up.wait()
    over = await bench.ask(bench.site.url("/never"), limit_ms=50)
    assert over.error == "no answer within 50 ms"


@benched
async def test_cancelling_closes_the_connection(bench: Bench) -> None:
    asking = asyncio.create_task(bench.ask(bench.site.url("/never")))
    await bench.site.waits.wait()
    asking.cancel()
    await bench.site.hung_up.wait()
    with pytest.raises(asyncio.CancelledError):
        await asking


@benched
async def test_nobody_there_is_a_failure_that_may_be_tried_again(bench: Bench) -> None:
    async with open_site() as other:
        gone = other.url()
    for url in (gone, "http://no-such-name.invalid/"):
        over = await bench.ask(url)
        assert over.failure is FailureClass.USER
        assert "cannot be asked" in over.error


@benched
async def test_one_line_is_logged_without_anything_secret(bench: Bench) -> None:
    bench.site.answers["/path?token=sesame"] = (200, {}, b"sesame")
    await bench.ask(bench.site.url("/path?token=sesame"), headers=(("Authorization", "sesame"),))
    (line,) = (await bench.log()).splitlines()
    method, url, status, took, unit = line.split()
    assert (method, url, status, unit) == ("GET", bench.site.url("/path"), "200", "ms")
    assert took.isdigit()


@benched
async def test_work_that_cannot_be_sent_is_not_tried_again(bench: Bench) -> None:
    for fields in ({"url": "ftp://example.org"}, {"method": "TRACE"}, {"headers": (("Host", "x"),)}):
        assert (await bench.ask(**fields)).failure is FailureClass.FATAL
    assert bench.site.asked == []


# Requests that a function makes.


@benched
async def test_a_function_makes_the_request_and_what_is_answered_can_be_mapped_over(bench: Bench) -> None:
    bench.site.answers["/list"] = (200, {"Content-Type": "application/json"}, b"[1, 2, 3]")
    call = structs.replace(python_work("a_request", bench.site.url("/list")), is_preparing=True)
    over = await bench.ask("http://unused", call=call, maps=(("down", 2),))
    assert await bench.value(over) == [1, 2, 3]
    assert over.expands == (("down", 6),)
    ((method, path, headers, body),) = bench.site.asked
    assert (method, path, body) == ("POST", "/list", b'{"asked":"r"}')
    assert headers["content-type"] == "application/json"
    bench.site.answers["/list"] = (200, {"Content-Type": "text/plain"}, b"text")
    over = await bench.ask("http://unused", call=call, maps=(("down", 2),))
    assert (over.failure, "'down'" in over.error) == (FailureClass.FATAL, True)


@benched
async def test_a_request_that_a_function_makes_is_checked_like_any_other(bench: Bench) -> None:
    for url, said in (("ftp://example.org", "cannot be asked"), ("http://10.0.0.1/", "10.0.0.1")):
        call = structs.replace(python_work("a_request", url), is_preparing=True)
        over = await bench.ask("http://unused", call=call)
        assert over.failure is FailureClass.FATAL
        assert said in over.error
    call = structs.replace(python_work("no_words"), is_preparing=True)
    assert re.search(r"rota\.Request\b.*\bint\b", (await bench.ask("http://unused", call=call)).error)


# Through a whole Rota.


def test_at_capacity_a_request_waits_like_everything_else(tmp_path: Path) -> None:
    async def play() -> None:
        async with asyncio.timeout(PATIENCE_S), open_site() as site:

            @rota.workflow
            def two() -> None:
                rota.http("GET", site.url("/never"), id="first", priority=1)
                rota.http("GET", site.url("/page"), id="second")

            site.answers["/page"] = (200, {"Content-Type": "application/json"}, b'{"ok": true}')
            async with await rota.AsyncRota.embedded(tmp_path, slots=1, egress_allow=HERE) as here:
                run = await here.submit(two)
                await site.waits.wait()
                (reason,) = await run.why("second")
                assert reason.code == "worker.busy"
                await run.cancel()
                view = await run.wait()
                assert view.state == "cancelled"
                again = await here.submit(lone(site))
                assert await again.result() == {"ok": True}

    asyncio.run(play())


def lone(site: Site) -> Any:
    @rota.workflow
    def alone() -> None:
        rota.http("post", site.url("/page"), json={"a": 1})

    return alone


@benched
async def test_a_request_that_succeeded_has_succeeded_though_its_log_cannot_be_written(bench: Bench) -> None:
    bench.site.answers["/"] = (200, {"Content-Type": "text/plain"}, b"done")
    (bench.folder / "logs").write_text("in the way")
    assert await bench.value(await bench.ask()) == "done"
    (complaint,) = bench.complaints
    assert "cannot be written" in complaint


@benched
async def test_a_name_that_no_host_can_have_is_the_tasks_own_fault(bench: Bench) -> None:
    for url in ("http://a..b/", f"http://{'x' * 70}.example/"):
        over = await bench.ask(url)
        assert over.failure is FailureClass.FATAL, over.error
        assert repr(url.removeprefix("http://").removesuffix("/")) in over.error
