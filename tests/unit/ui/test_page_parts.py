"""Pieces of the pages that need no coordinator: what is remembered, what is shown, and what is sent again."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from rota.client.watching import Watching
from rota.core.records import Story
from rota.core.states import RunState, TaskState
from rota.ui import live
from rota.ui.assets import Assets
from rota.ui.grid import cell_of
from rota.ui.live import Ear, keep_current
from rota.ui.pages import Pages
from rota.ui.reading import Kept
from rota.ui.rendering import Fragment, Renderer
from rota.ui.signing import aim

UI = Path(live.__file__).parent


class Trouble(Struct, frozen=True, kw_only=True):
    """As a service tells it."""

    status: int = 503
    title: str = "Another coordinator leads; ask it instead."
    detail: str = "b leads"
    code: str = "leader.elsewhere"
    hint: str = ""
    leader: str = ""
    retry_after_ms: int = 250


def pages() -> Pages:
    return Pages(version="1.2.3", is_open=False)


def test_whoever_does_not_lead_links_to_the_same_page_of_who_does():
    response = pages().show_trouble(Trouble(leader="http://other:7434"), "/runs/a%2Fb?state=failed&row=40")
    text = bytes(response.body).decode()
    assert response.status_code == 503
    assert 'href="http://other:7434/runs/a%2Fb?state=failed&amp;row=40"' in text
    assert "1.2.3" in text


def test_trouble_is_text():
    text = bytes(pages().show_trouble(Trouble(detail="<b>\"'", hint="<i>"), '/"><script>').body).decode()
    assert "<b>" not in text
    assert "<i>" not in text
    assert text.count("<script") == 1


def test_nothing_is_rendered_that_was_not_escaped():
    templates = "".join(path.read_text() for path in sorted((UI / "templates").glob("*.html")))
    assert "|safe" not in templates
    assert "autoescape" not in templates
    assert " style=" not in templates
    assert not re.search(r"\son\w+=", templates)
    assert "http://" not in templates
    assert "https://" not in templates


def test_every_state_has_a_colour_and_a_shape():
    style = (UI / "static" / "rota.css").read_text()
    for state in dict.fromkeys([*map(str, TaskState), *map(str, RunState)]):
        for sort in ("s", "c"):
            rules = re.findall(rf"^[^{{}}]*\.{sort}-{state}\b[^{{}}]*\{{([^}}]*)\}}", style, re.MULTILINE)
            said = "".join(rules)
            assert "--hue" in said, state
            assert "--shape" in said or "border:" in said, state
        if state != "none":
            assert f".f-{state}" in style


def test_a_file_is_served_under_a_name_that_changes_with_its_content(tmp_path: Path):
    (tmp_path / "a.css").write_text("one")
    (tmp_path / "notes.txt").write_text("not served")
    first = Assets(tmp_path).url("a.css")
    (tmp_path / "a.css").write_text("two")
    assert Assets(tmp_path).url("a.css") != first
    with pytest.raises(KeyError):
        Assets(tmp_path).url("notes.txt")


def test_what_is_remembered_is_bounded_and_what_is_used_stays():
    kept: Kept[str, int] = Kept(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert (kept.get("a"), kept.get("b"), kept.get("c"), len(kept)) == (1, None, 3, 2)


@pytest.mark.parametrize(
    ("wanted", "led"),
    [("/runs/a?x=1", "/runs/a?x=1"), ("", "/"), ("//e", "/"), ("/\\e", "/"), ("http://e", "/"), ("/a b", "/")],
)
def test_after_signing_in_one_stays_here(wanted: str, led: str):
    assert aim(wanted) == led


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({}, ""),
        ({"none": 5}, "none"),
        ({"queued": 5}, "queued"),
        ({"success": 1, "queued": 4}, "running"),
        ({"success": 1, "failed": 1, "queued": 4}, "failed"),
        ({"success": 5}, "success"),
        ({"skipped": 5}, "skipped"),
    ],
)
def test_a_group_that_has_begun_is_running_until_it_ends(counts: dict[str, int], state: str):
    assert cell_of(counts).state == state


def test_fragments_have_marks_that_tell_one_content_from_another():
    renderer = Renderer(Assets(), "1")
    given: dict[str, Any] = {"waiting": []}
    (empty,) = renderer.fragments({"waiting": "run_waiting.html"}, given)
    assert empty.html == ""
    assert renderer.fragments({"waiting": "run_waiting.html"}, given) == [empty]


class OneLine:
    """A line on which nothing is asked, and a test tells what happens."""

    tenant = "t"

    def __init__(self) -> None:
        self.watching = Watching()

    async def ask(self, request: object) -> Any:
        raise AssertionError("nothing is asked")

    def watch(self, run: str) -> Watching:
        return self.watching


def story(number: int) -> Story:
    return Story("t", "r", 0, number, 0, b"\x90")


async def fragments_of(pieces: AsyncIterator[bytes]) -> list[Any]:
    """The next event of fragments."""
    async for piece in pieces:
        if b"event: fragments" in piece:
            return msgspec.json.decode(piece.partition(b"data: ")[2])
    return []


async def _looked(told: Callable[[OneLine], None]) -> tuple[list[int], list[Any]]:
    line = OneLine()
    seen: list[int] = []

    async def look(parts: list[Any]) -> list[Fragment]:
        seen.extend(part.number for part in parts)
        return [Fragment("same", "m", "x"), Fragment("count", str(len(seen)), str(len(seen)))]

    async with Ear(line, "r") as ear:
        pieces = keep_current(ear, look, every_s=lambda: 30.0)
        first = await fragments_of(pieces)
        assert [each["id"] for each in first] == ["same", "count"]
        told(line)
        second = await fragments_of(pieces)
        await pieces.aclose()
    return seen, second


def test_what_happens_is_gathered_and_only_what_changed_is_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "REST_S", 0.0)

    def tell(line: OneLine) -> None:
        for number in range(5):
            line.watching.tell(story(number))

    seen, second = asyncio.run(_looked(tell))
    assert seen == [0, 1, 2, 3, 4]
    assert [each["id"] for each in second] == ["count"]


@pytest.mark.parametrize("how", ["interrupted", "too much"])
def test_whoever_may_have_missed_something_begins_anew(monkeypatch: pytest.MonkeyPatch, how: str):
    monkeypatch.setattr(live, "REST_S", 0.0)
    monkeypatch.setattr(live, "PARTS_KEPT_MAX", 3)

    def tell(line: OneLine) -> None:
        if how == "interrupted":
            line.watching.lose()
        for number in range(5):
            line.watching.tell(story(number))

    seen, second = asyncio.run(_looked(tell))
    assert (seen, second) == ([], [])


def test_a_reader_who_takes_nothing_is_not_read_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "REST_S", 0.0)
    looks: list[int] = []

    async def watch() -> None:
        line = OneLine()

        async def look(parts: list[Any]) -> list[Fragment]:
            looks.append(len(parts))
            return [Fragment("count", str(len(looks)), "x")]

        async with Ear(line) as ear:
            pieces = keep_current(ear, look, every_s=lambda: 30.0)
            await fragments_of(pieces)
            # The connection is full, and much happens.
            for number in range(10_000):
                line.watching.tell(story(number))
                if number % 1_000 == 0:
                    await asyncio.sleep(0)
            assert looks == [0]
            # It takes something again: one look has all that happened since.
            await fragments_of(pieces)
            await pieces.aclose()

    asyncio.run(watch())
    assert looks == [0, 0]
