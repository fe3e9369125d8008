"""The site: it is built strictly, has every page, leads nowhere that is not there, and needs nothing from elsewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

# The site is built once.
pytestmark = pytest.mark.xdist_group("site")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
IMAGE_BYTES_MAX = 200_000
# Pages that are made of documents at the top of the repository.
MADE = {"changelog.md", "contributing.md"}
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


class Loader(yaml.SafeLoader):
    """For what mkdocs adds to YAML: the names of Python's objects are not looked at."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


class Anchors(HTMLParser):
    """What a page can be linked to by, and what it links to or loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") != "canonical":
            self.loads.append(given.get("href", ""))
        elif "src" in given:
            self.loads.append(given["src"])


def navigated(nav: object) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for each in nav.values():
            yield from navigated(each)
    elif isinstance(nav, list):
        for each in nav:
            yield from navigated(each)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Anchors]:
    return {
        path: Anchors(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
    }


def test_the_navigation_has_every_page_once_and_no_other() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)  # noqa: S506 - it is a SafeLoader
    listed = list(navigated(config["nav"]))
    assert sorted(listed) == sorted([*(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")), *MADE])


def test_every_link_and_anchor_leads_somewhere(site: Path, pages: dict[Path, Anchors]) -> None:
    broken: list[str] = []
    for page, found in pages.items():
        for link in found.links:
            if re.match(r"[a-z]+:", link):
                continue
            name, _, fragment = unquote(link).partition("#")
            target = (page.parent / name).resolve() if name else page
            if (
                not target.is_relative_to(site)
                or not target.exists()
                or (fragment and target in pages and fragment not in pages[target].ids)
            ):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Anchors]) -> None:
    outside = [f"{page.name}: {url}" for page, found in pages.items() for url in found.loads if "//" in url]
    assert outside == []
    # What the theme would load from elsewhere for a diagram of its own, so none is used.
    assert [page.name for page in pages if 'class="mermaid"' in page.read_text(encoding="utf-8")] == []
    styles = "\n".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", styles) == []


def test_documents_at_the_top_and_files_that_are_linked_to_come_along(site: Path) -> None:
    assert "Keep a Changelog" in (site / "changelog.html").read_text(encoding="utf-8")
    assert "[Unit]" in (site / "files/deploy/systemd/rota-server.service.txt").read_text(encoding="utf-8")


def test_every_picture_is_there_and_small() -> None:
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        for name in _IMAGE.findall(page.read_text(encoding="utf-8")):
            picture = page.parent / name
            assert picture.is_file(), f"{page.name} shows {name}: run scripts/screenshots"
            assert 0 < picture.stat().st_size < IMAGE_BYTES_MAX, name


def test_the_readme_begins_with_an_install_a_program_what_it_prints_and_a_picture() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:60]
    wanted = ("pip install", "```python", "$ rota run", "![", "`make run`")
    assert [each for each in wanted if not any(line.startswith(each) for line in first_screen)] == []
    assert not any("make test" in line for line in first_screen), "what contributors type comes later"


def test_a_link_that_leads_nowhere_would_be_noticed() -> None:
    found = Anchors('<a href="gone.html#x">x</a><h2 id="here"></h2><script src="https://example.org/x.js"></script>')
    assert (found.links, found.ids, found.loads) == (["gone.html#x"], {"here"}, ["https://example.org/x.js"])
