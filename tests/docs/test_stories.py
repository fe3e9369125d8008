"""The quickstart, the concepts and what is for people who come from elsewhere work as they stand."""

from pathlib import Path

import pytest

from tests.docs.stories import blocks, commands, is_printed, missing, play

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    DOCS.parent / "README.md",
    DOCS / "quickstart.md",
    *sorted((DOCS / "concepts").glob("*.md")),
    *sorted((DOCS / "coming-from").glob("*.md")),
]
TOLD = [page for page in PAGES if any(block.language in ("python", "console") for block in blocks(page.read_text()))]


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    """`make test` plays the README, and the first sections of the quickstart in tests/install."""
    marks = [] if page.stem == "README" else [pytest.mark.full]
    # One at a time of those that start a Bazel.
    return [*marks, pytest.mark.xdist_group("bazel")] if page.stem == "quickstart" else marks


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks_of(page)) for page in TOLD], ids=lambda page: page.stem
)
def test_what_a_page_shows_happens(page: Path, tmp_path: Path) -> None:
    play(page.read_text(encoding="utf-8"), tmp_path)


def test_each_of_the_words_has_a_page_with_an_example() -> None:
    assert len([page for page in TOLD if page.parent.name == "concepts"]) == 15


def test_a_block_is_found_with_its_mark_and_its_title() -> None:
    text = '<!-- not run: why -->\n```python\nx\n```\n\n```text title="a b.txt"\ny\n```\n'
    assert blocks(text) == [("not run: why", "python", "", "x\n"), ("", "text", "a b.txt", "y\n")]


def test_a_console_is_commands_with_what_they_print() -> None:
    assert list(commands("$ one\nsaid\n\n$ two\n")) == [("one", ["said"]), ("two", [])]


@pytest.mark.parametrize(
    ("expected", "line", "is_it"),
    [
        ("total: 8", "total: 8", True),
        ("total: 8", "total: 80", False),
        ("RUN … STATE …", "RUN    GRAPH  STATE  TOOK", True),
        ("… remote.", "INFO: 2 processes: 1 internal, 1 remote.", True),
        ("first … success …", "first  failed", False),
    ],
)
def test_a_line_is_compared_without_what_differs(expected: str, line: str, is_it: bool) -> None:
    assert is_printed(expected, line) == is_it


def test_lines_that_are_missing_or_in_another_order_are_noticed() -> None:
    assert missing(["a", "b"], "a\nx\nb\n") == []
    assert missing(["b", "a"], "a\nb\n") == ["a"]


ONE_SHELL = """```text title="inner/word.txt"
cheese
```

```console
$ cd inner
$ NAME=word
$ cat $NAME.txt
cheese
$ cd ..
$ ls
inner
```
"""


def test_the_commands_of_a_page_are_typed_into_one_shell(tmp_path: Path) -> None:
    play(ONE_SHELL, tmp_path)


@pytest.mark.parametrize("missing_line", ["cd inner", "NAME=word", "cd .."])
def test_a_line_that_is_needed_later_cannot_be_left_out(tmp_path: Path, missing_line: str) -> None:
    with pytest.raises(AssertionError):
        play(ONE_SHELL.replace(f"$ {missing_line}\n", ""), tmp_path)


def test_a_command_that_ends_the_shell_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        play("```console\n$ exit 0\n```\n", tmp_path)
