"""`rota completion SHELL`: what completes commands, options and names in a shell, made from the parsers."""

import argparse
import shlex

from rota.cli.reaching import add_place
from rota.cli.showing import put

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
    from rota.cli.listing import LISTS
    from rota.cli.reaching import reach
    from rota.core.errors import Refused, Unavailable

    if kind not in LISTS:
        return []
    try:
        with reach(_place(line)) as rota:
            return LISTS[kind](rota)[:NAMES_SHOWN]
    except (Refused, Unavailable, OSError):
        return []


def _place(line: str) -> argparse.Namespace:
    """The coordinator that was named in a line that is not finished, perhaps not even its last quotation mark."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_place(parser)
    try:
        return parser.parse_known_args(words)[0]
    except argparse.ArgumentError:
        return parser.parse_args([])
