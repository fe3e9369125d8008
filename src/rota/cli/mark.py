"""`rota mark RUN TASK …`: say what tasks came to, whatever they are doing."""

import argparse

from rota.cli.choices import MARKS
from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put, put_json

EXAMPLES = """
  rota mark etl-3f9a1c load --success
  rota mark etl-3f9a1c 'extract[3]' --skipped
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument("tasks", metavar="TASK", nargs="+", help="which tasks; all tasks of a mapped one by its name")
    to = parser.add_mutually_exclusive_group(required=True)
    for mark in MARKS:
        to.add_argument(f"--{mark}", dest="to", action="store_const", const=mark, help=f"they came to {mark}")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Mark them; what failed because of them is judged again."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        one.mark(*options.tasks, to=options.to)
        view = one.status()
    if options.json:
        put_json(as_plain(view))
    else:
        put(f"{', '.join(options.tasks)}: {options.to}; {view.id} is {view.state}")
    return 0
