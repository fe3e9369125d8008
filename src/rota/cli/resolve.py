"""`rota resolve RUN TASK`: let a task out of needs_attention, at no cost."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, add_task, finish, put, put_json

# The ways out, and what each means for the task.
WAYS = {
    "requeue": "it waits for a worker again",
    "fail": "it has failed, and what depends on it is judged",
    "cancel": "it is cancelled",
}
EXAMPLES = """
  rota resolve etl-3f9a1c load --requeue
  rota resolve etl-3f9a1c load --fail
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    add_task(parser)
    way = parser.add_mutually_exclusive_group(required=True)
    for name, text in WAYS.items():
        way.add_argument(f"--{name}", dest="exit", action="store_const", const=name, help=text)
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Let it out."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        one.resolve(options.task, options.exit)
        view = one.status()
    if options.json:
        put_json(as_plain(view))
    else:
        put(f"{options.task}: {WAYS[options.exit]}; {view.id} is {view.state}")
    return 0
