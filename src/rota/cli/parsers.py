"""How words on the command line are read: parsers that say what was probably meant, and show examples.

Nothing here, nor in any module that describes a command, may import what takes long: help and completion use it all.
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, cast

# What stands behind an example is set off by so many spaces.
NEAR_SHOWN = 3
_REMARK = re.compile(r"\s{3,}\S.*$")


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """What was probably meant, the likeliest first; nothing if nothing is near."""
    return get_close_matches(word, sorted(known), most)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The same as the end of a message."""
    near = nearest(word, known, NEAR_SHOWN)
    return f"; did you mean {' or '.join(near)}?" if near else ""


class Parser(argparse.ArgumentParser):
    """Says what was probably meant. Options are written out: what is short for one may be short for two later."""

    def __init__(self, **how: Any) -> None:
        how.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**how, allow_abbrev=False)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads all end here
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Read the words; what nobody knows is refused by the command that it was said to."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return options, unknown

    def actions(self) -> list[argparse.Action]:
        """Its options and places, in the order in which they were added."""
        return list(self._actions)

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"{word!r} is one word too many")
        name = word.partition("=")[0]
        self.error(f"there is no option {name}{did_you_mean(name, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(each) for each in action.choices]
        close = did_you_mean(str(value), known)
        # A list of forty commands is no answer to a slip of the finger.
        told = close or (f"; there are {', '.join(known)}" if len(known) <= 20 else f"; see {self.prog} --help")
        raise argparse.ArgumentError(action, f"there is no {str(value)!r}{told}")


def examples_in(text: str, prog: str) -> list[str]:
    """The lines of a module's examples that show this command, or this verb of it."""
    named = re.compile(rf"(^|\s){re.escape(prog)}(\s|$)")
    return [line for line in text.splitlines() if line.startswith("  ") and named.search(line)]


def give_examples(parser: argparse.ArgumentParser, text: str) -> None:
    """Show its examples with a command, and to each of its verbs its own."""
    found = examples_in(text, parser.prog)
    if found:
        parser.epilog = "\n".join(["examples:", *found])
    for _, verb in verbs_of(parser):
        give_examples(verb, text)


def verbs_of(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    """The verbs of a command that have options of their own."""
    assert isinstance(parser, Parser), "parsers make parsers of their own kind"
    for action in parser.actions():
        if action.nargs == argparse.PARSER and isinstance(action.choices, dict):
            found = cast("dict[str, argparse.ArgumentParser]", action.choices)
            return list(found.items())
    return []


def without_remark(example: str) -> str:
    """An example as it would be typed."""
    return _REMARK.sub("", example.strip())
