"""`rota story RUN [TASK]`: the durable account of what happened."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put, put_json


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument("task", metavar="TASK", nargs="?", default="", help="only what concerns this task")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Tell it."""
    with reach(options) as rota:
        lines = rota.run(options.run_id).story(options.task)
    if options.json:
        put_json(lines)
        return 0
    for line in lines:
        put(line)
    return 0
