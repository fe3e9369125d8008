"""`rota logs RUN TASK`: what an attempt printed."""

import argparse
import sys

from rota.cli.reaching import reach
from rota.cli.showing import add_run, add_task, finish, put_json

EXAMPLES = """
  rota logs etl-3f9a1c load
  rota logs etl-3f9a1c load --attempt 1
  rota logs etl-3f9a1c load --follow
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    add_task(parser)
    parser.add_argument("--attempt", type=int, default=0, metavar="N", help="which attempt (default: the newest)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the attempt has ended")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Show it."""
    with reach(options) as rota:
        one = rota.run(options.run_id)
        pieces = one.logs(options.task, options.attempt, follow=options.follow)
        if options.json:
            put_json(b"".join(pieces).decode(errors="replace").splitlines())
            return 0
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    return 0
