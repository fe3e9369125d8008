"""What keeps a page current: fragments when something happens, a log that grows, and what a slow browser costs."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from rota.ui.assets import Assets
from rota.ui.reading import Memory
from rota.ui.rendering import Renderer
from rota.ui.task import TaskFilter, TaskPages
from rota.ui.visits import Visit
from tests.integration.deadlines import until
from tests.integration.http_stage import PATIENCE_S, Event, Stage, shell, staged
from tests.integration.page_stage import listen, look


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as one:
        yield one


def until_told(events: Iterator[Event], holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """The fragments by their ids, once they are as they should be."""
    fragments: dict[str, str] = {}
    give_up_at = time.monotonic() + PATIENCE_S
    for event in events:
        if event.name == "fragments":
            fragments |= {each["id"]: each["html"] for each in event.value}
            if holds(fragments):
                return fragments
        assert time.monotonic() < give_up_at, fragments
    raise AssertionError("the stream has ended")


def held(path: Path, before: str = "") -> str:
    """A line of shell that goes on until there is a file."""
    return f"{before} until [ -e {path} ]; do sleep 0.02; done"


def test_the_list_shows_a_run_that_is_made_while_it_is_looked_at(stage: Stage):
    with closing(listen(stage, look(stage, "/runs?name=fresh").live)) as events:
        until_told(events, lambda told: "No run is like that" in told["runs"])
        stage.submit(shell("a"), run="fresh-1", name="fresh")
        until_told(events, lambda told: "fresh-1" in told["runs"] and "s-success" in told["runs"])


def test_a_run_is_followed_to_its_end(stage: Stage, tmp_path: Path):
    stage.submit(shell("a", held(tmp_path / "go")), shell("b", upstream=["a"]), run="followed", name="followed")
    page = look(stage, "/runs/followed")
    with closing(listen(stage, page.live)) as events:
        until_told(events, lambda told: "s-running" in told["tasks"])
        (tmp_path / "go").touch()
        told = until_told(events, lambda told: "s-success" in told["head"])
    assert "run ended" in told["story"]
    assert told["grid"].count("c-success") == 3


def test_what_did_not_change_is_not_sent_again(stage: Stage, tmp_path: Path):
    stage.submit(shell("a", held(tmp_path / "go")), shell("b"), run="same", name="same", params={"x": 1})
    stage.rota.run("same").tasks("b")
    page = look(stage, "/runs/same/tasks/b")
    with closing(listen(stage, page.live)) as events:
        marks: dict[str, str] = {}
        for event in events:
            if event.name == "fragments":
                for each in event.value:
                    assert marks.get(each["id"]) != each["mark"]
                    marks[each["id"]] = each["mark"]
                if "s-success" in str(event.value):
                    break
    (tmp_path / "go").touch()


def test_the_reasons_of_a_task_change_with_what_holds_it(stage: Stage):
    stage.submit(shell("a", requires={"gpu_count": "64"}), run="reasoned", name="reasoned")

    def reasoned() -> str:
        page = look(stage, "/runs/reasoned/tasks/a")
        return page.live if "worker.none_match" in page.text else ""

    # Just submitted, it may have other reasons for a moment.
    with closing(listen(stage, until(reasoned, "a reason on the page"))) as events:
        until_told(events, lambda told: "worker.none_match" in told["why"])
        stage.rota.run("reasoned").pause()
        until_told(events, lambda told: "run.paused" in told["why"])
        stage.rota.run("reasoned").cancel()
        told = until_told(events, lambda told: "s-cancelled" in told["head"])
    assert told["why"] == ""


def test_a_log_grows_on_its_page_attempt_by_attempt(stage: Stage, tmp_path: Path):
    line = f"echo began $ROTA_ATTEMPT; {held(tmp_path / '$ROTA_ATTEMPT')}; echo ended $ROTA_ATTEMPT; exit 1"
    retry = {"retries": 1, "delay_ms": 0}
    stage.submit(shell("a", line, retry=retry), run="logged", name="logged")

    def lines(attempt: int) -> list[str]:
        return stage.http.get(f"/runs/logged/tasks/a/log/lines?attempt={attempt}&first=1&count=9").json()["lines"]

    def until_said(events: Iterator[Event], attempt: int, text: str) -> None:
        """A browser reads the lines again when it is told that there are more."""
        for event in events:
            if event.name == "log" and event.value == {"task": "a", "attempt": attempt} and text in lines(attempt):
                return

    with closing(listen(stage, "/live/runs/logged/tasks/a")) as events:
        until_said(events, 1, "began 1")
        (tmp_path / "1").touch()
        until_said(events, 2, "began 2")
        (tmp_path / "2").touch()
        until_said(events, 2, "ended 2")
    assert lines(2) == ["began 2", "ended 2"]
    with closing(listen(stage, "/live/runs/logged/tasks/a?attempt=1")) as events:
        until_said(events, 1, "ended 1")
    assert lines(1) == ["began 1", "ended 1"]


def test_a_log_of_megabytes_is_shown_by_its_end(stage: Stage):
    line = "head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; echo the end"
    stage.submit(shell("a", line), run="long-log", name="long-log")
    stage.ended("long-log")
    raw = until(
        lambda: r if (r := stage.http.get("/runs/long-log/tasks/a/log").content).endswith(b"end\n") else b"", "it"
    )
    assert len(raw) == 3_000_000 + len("\nthe end\n")
    page = look(stage, "/runs/long-log/tasks/a")
    assert (page.named("pre")[-1]["data-attempt"], "the end" in page.text) == ("1", True)
    assert len(page.html) < 100_000
    assert "/runs/long-log/tasks/a/log?attempt=1" in page.links
    with closing(listen(stage, "/live/runs/long-log/tasks/a")) as events:
        assert next(event for event in events if event.name == "log").value == {"task": "a", "attempt": 1}
    found = stage.http.get("/runs/long-log/tasks/a/log/lines?first=1&count=5")
    assert len(found.content) < 20_000
    assert (found.json()["total"], found.json()["lines"][0][:3]) == (2, "xxx")
    assert stage.http.get("/runs/long-log/tasks/a/log/search?text=END").json()["lines"] == [2]


@pytest.mark.parametrize("query", ["lines?count=1001", "lines?log=x", "search?limit=0", f"search?text={'x' * 201}"])
def test_lines_that_cannot_be_asked_for_are_refused(stage: Stage, query: str):
    assert stage.http.get(f"/runs/nothing/tasks/a/log/{query}").status_code == 422


def test_a_browser_that_takes_nothing_costs_a_connection_and_no_more(stage: Stage):
    with socket.create_connection(("127.0.0.1", stage.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.sendall(b"GET /live/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        for number in range(30):
            stage.submit(*(shell(f"t{task}") for task in range(5)), run=f"busy-{number}", name="busy")
        for number in range(30):
            assert stage.ended(f"busy-{number}") == "success"
        look(stage, "/")


def test_whoever_leaves_while_much_waits_for_them_leaves_nothing_behind(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.ui.following.EVENTS_WAITING_MAX", 1)
    stage.submit(shell("a", held(tmp_path / "go", "echo said;")), run="left", name="left")
    until(lambda: stage.http.get("/runs/left/tasks/a/log").text, "the log", PATIENCE_S)

    async def leave() -> list[str]:
        streams: list[Any] = []

        def keep(stream: Any) -> Response:
            streams.append(stream)
            return Response()

        visit = Visit(
            client=stage.rota._rota,
            path={"run": "left", "task": "a"},
            query=TaskFilter(),
            form=None,
            url="/live/runs/left/tasks/a",
            who="",
            stream=keep,
            stream_text=keep,
            sign_in=lambda token: {},
            sign_out=dict,
            now=0,
        )
        await TaskPages(Renderer(Assets(), "1"), Memory()).live(visit)
        async with asyncio.timeout(PATIENCE_S):
            await anext(streams[0])
            waiting = streams[0].ag_frame.f_locals["self"]._said
            while not waiting.full():
                await asyncio.sleep(0)
            await streams[0].aclose()
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("rota-page")]

    assert stage.rota._thread.call(leave()) == []
    (tmp_path / "go").touch()


def test_streams_end_with_the_service():
    with staged() as one:
        one.submit(shell("a", requires={"gpu_count": "64"}), run="r")
        streams = [listen(one, url) for url in ("/live/", "/live/runs/r", "/live/runs/r/tasks/a")]
        for events in streams:
            assert next(events).name == "fragments"
        one.rota._thread.call(one.server.stop())
        for events in streams:
            with suppress(httpx.RemoteProtocolError):
                list(events)
