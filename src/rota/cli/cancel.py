"""`rota cancel RUN`: end a run and everything in it."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put, put_json

EXAMPLES = """
  rota cancel etl-3f9a1c
  rota cancel etl-3f9a1c --reason "wrong day"
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument(
        "--reason", default="cancelled on request", metavar="TEXT", help="what the run will say about it"
    )
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Cancel it; cancelling twice, or after the end, changes nothing."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        if not one.status().ended_at:
            one.cancel(options.reason)
        view = one.status()
    if options.json:
        put_json(as_plain(view))
    else:
        put(f"{view.id}: {view.state}{' (stopping)' if not view.ended_at else ''}")
    return 0
