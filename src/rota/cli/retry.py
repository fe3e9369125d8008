"""`rota retry RUN [TASK …]`: let tasks that wait be tried now, and run those again that failed for good."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put, put_json

EXAMPLES = """
  rota retry etl-3f9a1c
  rota retry etl-3f9a1c load
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument(
        "tasks",
        metavar="TASK",
        nargs="*",
        help="which tasks (default: all that wait for another try, and all that failed for good or were cancelled)",
    )
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Try them now."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        one.retry(*options.tasks)
        view = one.status()
    if options.json:
        put_json(as_plain(view))
    else:
        put(f"{view.id}: {', '.join(options.tasks) or 'what waited or had failed'} tried again")
    return 0
