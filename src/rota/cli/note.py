"""`rota note RUN TASK TEXT`: say something about a task, for whoever looks at it next."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, add_task, finish, one_line, put, put_json

EXAMPLES = """
  rota note etl-3f9a1c load "the vendor was asked, see ticket 812"
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    add_task(parser)
    parser.add_argument("text", metavar="TEXT", help="what to say; an empty one takes the note away")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Say it."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        one.note(options.task, options.text)
        (view, *_) = one.tasks(options.task)
    if options.json:
        put_json(as_plain(view))
    else:
        put(one_line(f"{view.id}: {view.note or 'no note'}"))
    return 0
