"""`rota completion SHELL`: what completes commands, options and names in a shell, made from the parsers."""

import argparse
import shlex
from typing import TYPE_CHECKING

from rota.cli.reaching import add_place
from rota.cli.showing import put

if TYPE_CHECKING:
    from rota.app import Rota

SHELLS = ("bash", "zsh", "fish")
NAMES_SHOWN = 200
EXAMPLES = """
  rota completion bash > ~/.local/share/bash-completion/completions/rota
  source <(rota completion bash)     only for this shell
  rota completion zsh > ~/.zfunc/_rota     with ~/.zfunc in fpath, before compinit
  rota completion fish > ~/.config/fish/completions/rota.fish
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="for which shell")
    text = "what the scripts ask while somebody types: the names of runs, workflows and so on, a line each"
    parser.add_argument("--names", metavar="KIND", help=text)
    text = "what was typed so far, in which --data or --coordinator may stand"
    parser.add_argument("--line", default="", metavar="TEXT", help=text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script, or names."""
    from rota.cli import EXIT_USAGE
    from rota.cli.scripts import SCRIPTS
    from rota.cli.showing import say

    if options.names is not None:
        for name in _names(options.names, options.line):
            put(name)
        return 0
    if options.shell is None:
        say(f"usage: rota completion {{{','.join(SHELLS)}}}")
        return EXIT_USAGE
    put(SCRIPTS[options.shell]().rstrip())
    return 0


def _names(kind: str, line: str) -> list[str]:
    """What there is of a kind, as far as the coordinator answers that the line is about. It is never an error."""
    from rota.cli.listing import LISTS, TASKS, names_of
    from rota.cli.reaching import reach
    from rota.core.errors import Refused, Unavailable

    if kind not in (*LISTS, TASKS):
        return []
    words = _words(line)
    try:
        with reach(_place(words)) as rota:
            run = _full_id(rota, _run_in(words)) if kind == TASKS else ""
            return names_of(rota, kind, run)[:NAMES_SHOWN] if run or kind != TASKS else []
    except (Refused, Unavailable, OSError):
        return []


def _words(line: str) -> list[str]:
    """The words of a line that is not finished, perhaps not even its last quotation mark."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _place(words: list[str]) -> argparse.Namespace:
    """The coordinator that was named."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_place(parser)
    try:
        return parser.parse_known_args(words)[0]
    except argparse.ArgumentError:
        return parser.parse_args([])


def _run_in(words: list[str]) -> str:
    """The run that was named: the first word after the command that is no option and no value of one."""
    from rota.cli import COMMANDS, make_parser
    from rota.cli.parsers import Parser, verbs_of

    command, *rest = [*words[1:], ""]
    if command not in COMMANDS:
        return ""
    parser = dict(verbs_of(make_parser([command])))[command]
    assert isinstance(parser, Parser), "parsers make parsers of their own kind"
    valued = [name for action in parser.actions() if action.nargs != 0 for name in action.option_strings]
    is_value = False
    for word in rest:
        if not is_value and not word.startswith("-"):
            return word
        is_value = not is_value and word in valued
    return ""


def _full_id(rota: "Rota", begun: str) -> str:
    """The run that an id, or the beginning of one, stands for; nothing if there is none, or several."""
    from rota.cli.listing import LISTS

    runs = [id for id in LISTS["runs"](rota) if begun and id.startswith(begun)]
    return begun if begun in runs else runs[0] if len(runs) == 1 else ""
