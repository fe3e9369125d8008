"""The documents agree with the code and with each other."""

import re
from collections.abc import Iterator
from pathlib import Path

from rota.core.errors import CODES

ROOT = Path(__file__).parents[2]

_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#+\s+(.+?)\s*#*$", re.MULTILINE)
_TEST_ID = re.compile(r"\btests/[\w/]+\.py(?:::\w+)+")


def documents() -> list[Path]:
    return [
        *sorted(ROOT.glob("*.md")),
        *(
            path
            for folder in ("bench", "docs", "examples", "src", "tests")
            for path in sorted((ROOT / folder).rglob("*.md"))
        ),
    ]


def anchors(document: Path) -> list[str]:
    """The fragments by which a rendered page can be linked: its headings, as forges spell them."""
    text = _FENCED.sub("", document.read_text(encoding="utf-8"))
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)]


def broken_links(document: Path) -> Iterator[str]:
    for target in _LINK.findall(_FENCED.sub("", document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = (document.parent / name) if name else document
        if not path.exists() or (fragment and path.suffix == ".md" and fragment not in anchors(path)):
            yield target


def missing_tests(text: str) -> Iterator[str]:
    for test_id in _TEST_ID.findall(text):
        name, *parts = test_id.split("::")
        path = ROOT / name
        code = path.read_text(encoding="utf-8") if path.is_file() else ""
        if not all(re.search(rf"^\s*(async def|def|class) {part}\b", code, re.MULTILINE) for part in parts):
            yield test_id


def test_every_relative_link_leads_somewhere() -> None:
    broken = {str(path.relative_to(ROOT)): list(broken_links(path)) for path in documents()}
    assert {name: links for name, links in broken.items() if links} == {}


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[good](page.md) [good](#one-two) [good](https://example.org)\n"
        "[bad](gone.md) [bad](page.md#three)\n"
        "```\n[not a link](nowhere.md)\n```\n",
        encoding="utf-8",
    )
    assert list(broken_links(page)) == ["gone.md", "page.md#three"]


def test_every_error_code_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    assert CODES, "there are error codes"
    assert [code for code in CODES if f"`{code}`" not in page] == []


def test_every_test_named_by_the_promises_exists() -> None:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    assert _TEST_ID.search(page), "the promises name the tests that guard them"
    assert list(missing_tests(page)) == []


def test_a_test_that_does_not_exist_is_noticed() -> None:
    here = f"tests/docs/{Path(__file__).name}"
    real = f"{here}::test_a_test_that_does_not_exist_is_noticed"
    assert list(missing_tests(f"`{real}` `{here}::test_gone` `tests/gone.py::test_x`")) == [
        f"{here}::test_gone",
        "tests/gone.py::test_x",
    ]
