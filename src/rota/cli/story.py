"""`rota story RUN [TASK]`: the durable account of what happened."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, one_line, put, put_json

EXAMPLES = """
  rota story etl-3f9a1c
  rota story etl-3f9a1c load
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument("task", metavar="TASK", nargs="?", default="", help="only what concerns this task")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Tell it."""
    with reach(options) as rota:
        one = rota.run(options.run_id)
        if options.json:
            put_json(one.happened(options.task))
        else:
            for line in one.story(options.task):
                put(one_line(line))
    return 0
