"""Commands about a noun: `rota pools` lists, `rota pools set NAME` changes one."""

import argparse

from rota.cli.showing import say

LIST = "list"


def add_verbs(parser: argparse.ArgumentParser, verbs: tuple[str, ...], which: str) -> None:
    """What may be done; `which` stands for the name of the one that it is done to."""
    parser.add_argument("verb", nargs="?", choices=(LIST, *verbs), default=LIST, help=f"what to do ({LIST})")
    parser.add_argument("name", nargs="?", default="", metavar=which, help="which one")
    parser.set_defaults(verbs=verbs, which=which)


def is_clear(options: argparse.Namespace) -> bool:
    """Whether a verb that changes one has its name, and the list has none; if not, how it is used is said."""
    if (options.verb == LIST) != bool(options.name):
        return True
    verb = options.verbs[0] if options.verb == LIST else options.verb
    say(f"usage: rota {options.command}, or rota {options.command} {verb} {options.which}")
    return False
