"""Looking at pages as a browser does that runs no scripts."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Self

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

    def classed(self, classes: str) -> list[dict[str, str | None]]:
        """The attributes of every element of exactly these classes."""
        return [given for _, given in self.tags if given.get("class") == classes]

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


class Person:
    """Somebody with a browser of their own."""

    def __init__(self, stage: Stage, token: str) -> None:
        self.stage = stage
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{stage.port}", timeout=30)
        self.http.headers.update(BROWSER)
        if token:
            signed = self.http.post("/sign-in", data={"token": token})
            assert signed.status_code == 303, signed.text
        self.origin = {"Origin": f"http://127.0.0.1:{stage.port}", "Sec-Fetch-Site": "same-origin"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def look(self, url: str, status: int = 200) -> Page:
        page = Page(self.http.get(url))
        assert page.status == status, f"{page.text[-2_000:]} {self.stage.told[-1:]}"
        return page

    def send(self, url: str, form: dict[str, Any], **headers: str) -> httpx.Response:
        return self.http.post(url, data=form, headers={**self.origin, **headers})

    def act(self, url: str, status: int = 303, **form: Any) -> Page:
        """Fill in the page of a deed, and send it."""
        return self.follow(self.send(url, {**hidden(self.look(url)), **form}), status)

    def follow(self, response: httpx.Response, status: int = 303) -> Page:
        assert response.status_code == status, Page(response).text[-2_000:]
        return self.look(response.headers["location"]) if status == 303 else Page(response)


def hidden(page: Page, action: str = "") -> dict[str, str]:
    """What a form has that nobody fills in: of the first that is sent to us, or of the one that is sent there."""
    found: dict[str, str] = {}
    is_in = False
    for tag, given in page.tags:
        if tag == "form":
            is_in = not found and given.get("method") == "post" and (given.get("action") or "").endswith(action)
            is_in = is_in and given.get("action") != "/sign-out"
        elif is_in and tag == "input" and given.get("name") in ("seal", "once", "seen"):
            found[given["name"] or ""] = given["value"] or ""
    return found


def said_once(page: Page) -> str:
    """What a page tells about what was done, as HTML; empty if it tells nothing."""
    return page.html.partition('class="card said"')[2].partition("</div>")[0]


def buttons(page: Page) -> list[str]:
    """Where deeds are offered."""
    forms = [given.get("action") or "" for given in page.named("form") if given.get("method") == "post"]
    links = [given.get("href") or "" for given in page.named("a") if "button" in (given.get("class") or "").split()]
    return [url for url in (*forms, *links) if url != "/sign-out"]
