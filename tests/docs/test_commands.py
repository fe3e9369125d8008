"""No page names a command, a verb or an option that there is not; and every option there is, is in the reference."""

import argparse
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from rota.cli import COMMANDS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference" / "cli.md"
# The reference is made from the parsers themselves.
PAGES = [page for page in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))] if page != REFERENCE]

_FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(rota [^`]+)`(?!`)")
_TYPED = re.compile(r"(?:^|[\s(])(?:\$ )?(?:[A-Z_]+=\S+ +)*(?:\.venv/bin/)?rota (?!:)")
# What ends a command within a line.
_END = re.compile(r" (?:#|\||&&|&|;|>|<|2>)(?: |$)|;$|  +\w")


@cache
def parser(name: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"rota {name}", add_help=True)
    import_module(COMMANDS[name][0]).describe(made)
    return made


def verbs(of: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Commands below a command, if it has any."""
    return {
        name: each
        for action in of._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, each in action.choices.items()
    }


def choices(of: argparse.ArgumentParser) -> list[str]:
    """Words that may stand first, where only some may."""
    first = next((each for each in of._actions if not each.option_strings), None)
    return list(first.choices or ()) if first is not None and not isinstance(first, argparse._SubParsersAction) else []


def options(of: argparse.ArgumentParser) -> set[str]:
    return {option for action in of._actions for option in action.option_strings}


def complaints(line: str) -> Iterator[str]:
    """What is wrong with a command as a page has it. Words in capitals, and `…`, stand for something else."""
    text = _END.split(line)[0]
    words = [word.strip("[],.:") for word in re.sub(r"[\"'].*?[\"']", "TEXT", text).split()]
    name, *rest = [word for word in words if word] or [""]
    if name.isupper() or name == "…" or name.startswith("--"):
        return
    if name not in COMMANDS:
        yield f"no command {name!r}"
        return
    of = parser(name)
    plain = [word for word in rest if not word.startswith("-")]
    below = verbs(of)
    if below and plain and not plain[0].isupper() and plain[0] != "…":
        if plain[0] not in below:
            yield f"{name} has no {plain[0]!r}"
            return
        of = below[plain[0]]
    elif plain and choices(of) and plain[0].islower() and plain[0] not in choices(of):
        yield f"{name} has no {plain[0]!r}"
    # Where the verb is left open, an option of any of them will do.
    several = list(below.values()) if of is parser(name) else []
    known = {option for each in (of, *several) for option in options(each)}
    for word in rest:
        option = word.partition("=")[0]
        if option.startswith("-") and len(option) > 1 and option != "--" and option not in known:
            yield f"{name}: no {option}"


def typed(text: str) -> Iterator[str]:
    """Everything on a page that somebody could type after `rota`."""
    for language, block in _FENCED.findall(text):
        if language in ("", "console", "bash", "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                found = _TYPED.search(line)
                # A line of a picture or of an answer begins with something else.
                if found is not None and re.match(r"(\$ |[A-Z_]+=|\.venv|rota )", line.strip()):
                    yield line[found.end() :].strip()
    for command in _INLINE.findall(_FENCED.sub("", text)):
        yield " ".join(command.split()).removeprefix("rota ")


def test_every_command_on_a_page_exists_with_its_options() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: rota {line}: {each}"
        for page in PAGES
        for line in typed(page.read_text(encoding="utf-8"))
        for each in complaints(line)
    ]
    assert wrong == []


def test_commands_are_found_on_pages() -> None:
    assert sum(len(list(typed(page.read_text(encoding="utf-8")))) for page in PAGES) > 300


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("runs --limit 5", []),
        ("launch daily.py", ["no command 'launch'"]),
        ("runs --most 5", ["runs: no --most"]),
        ("work sing", ["work has no 'sing'"]),
        ("work list --sing", ["work: no --sing"]),
        ("run NAME [--param k=v] [--follow]  # and more --words", []),
        ("up & rota runs --most", []),
        ("COMMAND --help", []),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line: str, wrong: list[str]) -> None:
    assert list(complaints(line)) == wrong


def test_what_is_typed_is_found_in_blocks_and_in_text() -> None:
    text = "`rota up` and\n```\n$ rota runs\nrota: said\n   └── rota worker\nROTA_X=1 rota server  # so\n```\n"
    assert list(typed(text)) == ["runs", "server  # so", "up"]


def every_option() -> list[tuple[str, str]]:
    """Commands with each of their options, but the one that all have."""
    found: list[tuple[str, str]] = []
    for name in COMMANDS:
        of = parser(name)
        for title, each in ((name, of), *((f"{name} {verb}", below) for verb, below in verbs(of).items())):
            found += [
                (title, option) for option in sorted(options(each)) if option.startswith("--") and option != "--help"
            ]
    return found


def test_every_command_and_option_is_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    sections = {part.splitlines()[0]: part for part in re.split(r"^###+ rota ", text, flags=re.MULTILINE)[1:]}
    missing = [
        f"rota {title} {option}"
        for title, option in every_option()
        if not re.search(rf"{re.escape(option)}\b", sections.get(title, "") + sections.get(title.split()[0], ""))
    ]
    assert missing == []
