"""What commands there are and what each takes, read off the parsers: for completions and for the page about them."""

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

from rota.cli import COMMANDS, make_parser
from rota.cli.parsers import Parser, examples_in, verbs_of

# Of what there is a list that a coordinator knows, by how its place on the command line is called.
NAMED = {
    "RUN": "runs",
    "TASK": "tasks",
    "WORKER": "workers",
    "SESSION": "sessions",
    "BACKFILL": "backfills",
    "ITEM": "items",
}
# Of the commands whose place for a name is called NAME.
NAMED_OF = {
    "backfill": "workflows",
    "pause": "workflows",
    "resume": "workflows",
    "run": "workflows",
    "undeploy": "workflows",
    "workflows": "workflows",
    "pools": "pools",
    "queues": "queues",
}
_FILES = ("FILE", "PATH", "DIR", "FILE.py[:NAME]")


class Word(NamedTuple):
    """One option, or one place for a word.

    `names` are how an option is written; of a place, what stands for it. `value` stands for the value of an option, and
    is empty if it takes none. `kind` says what may be put there: `files`, a list that a coordinator has, or nothing
    in particular.
    """

    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...]
    kind: str
    is_option: bool
    is_required: bool
    is_many: bool


class Outline(NamedTuple):
    """One command, or one verb of a command that has options of its own."""

    path: tuple[str, ...]
    summary: str
    words: tuple[Word, ...]
    verbs: tuple["Outline", ...]
    examples: tuple[str, ...]

    @property
    def name(self) -> str:
        """How it is typed, without `rota`."""
        return " ".join(self.path)

    @property
    def synopsis(self) -> str:
        """How it is typed, in one line."""
        words = ["rota", *self.path, *(["VERB"] if self.verbs else [])]
        for word in self.places:
            shown = f"{word.names[0]} …" if word.is_many else word.names[0]
            words.append(shown if word.is_required else f"[{shown}]")
        words += [f"{word.names[0]} {word.value}".strip() for word in self.options if word.is_required]
        return " ".join([*words, *(["[OPTION …]"] if self.options else [])])

    @property
    def options(self) -> tuple[Word, ...]:
        """Those that begin with a dash."""
        return tuple(word for word in self.words if word.is_option)

    @property
    def places(self) -> tuple[Word, ...]:
        """Those that do not."""
        return tuple(word for word in self.words if not word.is_option)

    def leaves(self) -> Iterator["Outline"]:
        """Those that do something."""
        if not self.verbs:
            yield self
        for verb in self.verbs:
            yield from verb.leaves()


def outline() -> list[Outline]:
    """All commands, in the order of their themes."""
    parser = make_parser(COMMANDS)
    return [_outline(each, (name,), COMMANDS[name][1]) for name, each in verbs_of(parser)]


def _outline(parser: argparse.ArgumentParser, path: tuple[str, ...], summary: str) -> Outline:
    assert isinstance(parser, Parser), "parsers make parsers of their own kind"
    verbs = verbs_of(parser)
    return Outline(
        path,
        summary,
        tuple(_word(action, path[0]) for action in parser.actions() if _is_word(action)),
        tuple(_outline(verb, (*path, name), verb.description or "") for name, verb in verbs),
        tuple(examples_in(parser.epilog or "", parser.prog)),
    )


def _is_word(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and action.dest != "help" and action.nargs != argparse.PARSER


def _word(action: argparse.Action, command: str) -> Word:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    is_option = bool(action.option_strings)
    takes = action.nargs != 0
    choices: tuple[Any, ...] = tuple(action.choices) if action.choices is not None else ()
    value = metavar or ("|".join(map(str, choices)) if choices else action.dest.upper())
    return Word(
        tuple(action.option_strings) if is_option else (value,),
        value if takes else "",
        (action.help or "").replace("%%", "%"),
        tuple(map(str, choices)),
        _kind(metavar, command) if takes and not choices else "",
        is_option,
        action.required and action.nargs not in ("?", "*"),
        action.nargs in ("*", "+"),
    )


def _kind(metavar: str, command: str) -> str:
    if metavar in _FILES:
        return "files"
    if metavar.startswith("NAME") and "=" not in metavar:
        return NAMED_OF.get(command, "")
    return NAMED.get(metavar, "")
