"""What pages name is there: calls of HTTP, pages in a browser, codes, settings and metrics."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rota.api.reapi.telemetry import METRICS as FRONT_END_METRICS
from rota.config import SETTINGS
from rota.control.telemetry import METRICS
from rota.core.errors import CODES
from rota.core.reasons import REASON_CODES
from rota.ui.pages import Pages
from tests.docs.test_deploy import JOURNALLED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# Those in which every word with a dot is a code, a setting or a word of the journal.
PLAIN = [*sorted((DOCS / "concepts").glob("*.md")), *sorted((DOCS / "coming-from").glob("*.md")), DOCS / "index.md"]

_CALL = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`\s?]*)")
_PAGE = re.compile(r"\bpages? ((?:`/[^`]*`(?: and |, )?)+)")
_DOTTED = re.compile(r"`([a-z]+\.[a-z_]+)`")
_METRIC = re.compile(r"`(rota_[a-z_]+)`")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Names of Python's, and of others.
OTHERS = {
    "rota.toml",
    "ctx.cancelled",
    "rota.task",
    "workflow.sleep",
    "future.result",
    "dask.dataframe",
    "client.submit",
    "flow.serve",
}


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def calls() -> set[str]:
    """Every call there is; a test of its own compares the page with the code."""
    found = re.findall(r"^### ([A-Z]+ /\S*)$", read(DOCS / "reference" / "openapi.md"), re.MULTILINE)
    assert len(found) > 60
    return set(found)


def served() -> set[str]:
    return {page.path for page in Pages(version="0", is_open=True).pages}


def unknown(pages: list[Path], named_on: Callable[[str], Iterable[str]], known: set[str]) -> dict[str, list[str]]:
    """Names on pages that nothing has, by page."""
    found = {str(page.relative_to(ROOT)): sorted(set(named_on(read(page))) - known) for page in pages}
    return {page: names for page, names in found.items() if names}


def test_every_call_that_is_named_exists() -> None:
    known = {re.sub(r"\{\w+\}", "{}", call) for call in calls()}

    def named(text: str) -> Iterator[str]:
        for method, path in _CALL.findall(text):
            yield f"{method} {re.sub(r'[{][^}]*[}]|[A-Z]{2,}', '{}', path)}"

    assert unknown(PAGES, named, known) == {}


def test_every_page_in_a_browser_that_is_named_exists() -> None:
    def named(text: str) -> Iterator[str]:
        for group in _PAGE.findall(_FENCED.sub("", text)):
            yield from (path for path in re.findall(r"`([^`?]*)", group) if path.startswith("/"))

    assert unknown(PAGES, named, served()) == {}


def test_every_dotted_word_is_a_code_a_reason_a_setting_or_of_the_journal() -> None:
    known = {*CODES, *REASON_CODES, *(each.path for each in SETTINGS), *JOURNALLED, *OTHERS}
    assert unknown(PLAIN, lambda text: _DOTTED.findall(_FENCED.sub("", text)), known) == {}


def test_every_metric_that_is_named_exists() -> None:
    # The last is a cookie.
    known = {*(metric.name for metric in (*METRICS, *FRONT_END_METRICS)), "rota_session"}
    base_of = re.compile(r"_(bucket|sum|count)$")
    assert unknown(PAGES, lambda text: (base_of.sub("", name) for name in _METRIC.findall(text)), known) == {}


def test_every_call_is_in_the_table_and_field_by_field() -> None:
    table = set(re.findall(r"^\| `([A-Z]+ /\S*)` \|", read(DOCS / "reference" / "http.md"), re.MULTILINE))
    assert table == calls()


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert _CALL.findall("see `GET /api/v1/nothing?x=1`") == [("GET", "/api/v1/nothing")]
    assert _PAGE.findall("| page `/` and `/runs/{run}` |") == ["`/` and `/runs/{run}`"]
    assert _DOTTED.findall("`pool.empty` or `Pool.x`") == ["pool.empty"]
