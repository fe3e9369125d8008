"""`rota move RUN`: give a run another version of its workflow. What it has done is kept."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put, put_json

EXAMPLES = """
  rota move etl-3f9a1c
  rota move etl-3f9a1c --version 3
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument("--version", type=int, default=0, metavar="N", help="which version (default: the present one)")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Move it."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        one.move(options.version)
        view = one.status()
    if options.json:
        put_json(as_plain(view))
    else:
        put(f"{view.id}: version {view.version}")
    return 0
