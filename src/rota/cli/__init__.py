"""The `rota` command: one module per noun. Data on stdout, everything else on stderr."""

import argparse
import sys
from collections.abc import Sequence

from rota import __version__
from rota.cli import db, demo, sim

EXIT_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 when it did what was asked, 1 when that failed, 2 for wrong usage,
    3 when it was refused, 4 when it may succeed later.
    """
    parser = argparse.ArgumentParser(prog="rota", description="A durable, fenced scheduler.")
    parser.add_argument("--version", action="version", version=f"rota {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for module in (db, demo, sim):
        module.add_parser(commands)
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    return options.run(options)
