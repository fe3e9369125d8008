"""A real browser, and a page on which nothing may go wrong unnoticed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response, sync_playwright

from tests.servers.programs import find_program

# Without what a browser does for itself, and without a sandbox where the tests run as root.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 20_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for longer than a module: while it lives, an event loop runs in this thread, and no other can."""
    program = find_program("chromium", [Path("/usr/bin/google-chrome")], "install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Witness:
    """What went wrong on a page."""

    def __init__(self, page: Page) -> None:
        self.seen: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.seen.append(f"error: {error}"))
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        # A broken content policy is said here, too.
        if message.type in ("error", "warning"):
            self.seen.append(f"{message.type}: {message.text}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.seen.append(f"{response.status} {response.url}")


def open_context(browser: Browser, scheme: str = "light", *, scripts: bool = True) -> BrowserContext:
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light", timezone_id="Asia/Kolkata", java_script_enabled=scripts
    )
    context.set_default_timeout(PATIENCE_MS)
    return context


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; nothing goes wrong on it."""
    context = open_context(browser)
    page = context.new_page()
    witness = Witness(page)
    yield page
    context.close()
    assert witness.seen == []
