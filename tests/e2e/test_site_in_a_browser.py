"""The documentation in a real browser: nothing is asked of anybody else, and what is looked for is found."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
PAGES = ("index.html", "quickstart.html", "concepts/fence.html", "coming-from/airflow.html", "reference/python.html")


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what it serves."""

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(words, cwd=ROOT, env=env, check=True, capture_output=True, timeout=300)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_pages_ask_nothing_of_anybody_else(site: str, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in PAGES:
        page.goto(f"{site}/{name}")
        expect(page.locator("h1")).to_be_visible()
    assert asked
    assert [url for url in asked if not url.startswith(site)] == []


def test_somebody_looks_for_a_word_and_finds_its_page(site: str, page: Page) -> None:
    page.goto(f"{site}/index.html")
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("fence")
    page.locator(".md-search-result__link").filter(has_text="Fence").first.click()
    expect(page.locator("h1")).to_contain_text("Fence")
