"""Looking at pages as a browser does that runs no scripts."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx

from tests.integration.http_stage import Event, Stage, read_events

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
POLICY = "content-security-policy"


class Page(HTMLParser):
    """What is on a page: its text, its links and its elements."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.response = response
        self.status = response.status_code
        self.html = response.text
        self.words: list[str] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag == "a":
            self.links.append(given.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of that name."""
        return [given for name, given in self.tags if name == tag]

    @property
    def live(self) -> str:
        """Where it is told what changes."""
        return self.named("body")[0]["data-live"] or ""


def look(stage: Stage, url: str, status: int = 200, **options: Any) -> Page:
    """A page, with the status that is expected."""
    headers = {**BROWSER, **options.pop("headers", {})}
    page = Page(stage.http.get(url, headers=headers, **options))
    assert page.status == status, f"{page.status}: {page.text[-2_000:]}"
    return page


def listen(stage: Stage, url: str, **options: Any) -> Iterator[Event]:
    """What a page is told."""
    with stage.http.stream("GET", url, headers={"Accept": "text/event-stream"}, **options) as response:
        assert response.status_code == 200, response.read()
        yield from read_events(response)
