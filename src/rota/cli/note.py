"""`rota note RUN [TASK] TEXT`: say something about a run or one of its tasks, for whoever looks at it next."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, one_line, put, put_json

EXAMPLES = """
  rota note etl-3f9a1c load "the vendor was asked, see ticket 812"
  rota note etl-3f9a1c "kept for the audit"     about the run
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    text = "the task's id, one of a mapped task as NAME[3]; without one it is about the run"
    parser.add_argument("task", metavar="TASK", nargs="?", default="", help=text)
    parser.add_argument("text", metavar="TEXT", help="what to say; an empty one takes the note away")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Say it."""
    from rota.core.model import NOTE
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        one.note(options.task, options.text)
        if options.task:
            (task, *_) = one.tasks(options.task)
            view, note = as_plain(task), task.note
        else:
            stands = one.status()
            view, note = as_plain(stands), dict(stands.labels).get(NOTE, "")
    if options.json:
        put_json(view)
    else:
        put(one_line(f"{options.task or options.run_id}: {note or 'no note'}"))
    return 0
