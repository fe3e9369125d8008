"""`rota pause NAME` and `rota resume NAME`: hold a workflow, or one run, and let it go on."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json

EXAMPLES = """
  rota pause etl
  rota pause --run etl-3f9a1c
  rota resume etl
  rota resume --run etl-3f9a1c
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("name", metavar="NAME", nargs="?", default="", help="a workflow: all its runs, and new ones")
    which.add_argument("--run", dest="run_id", metavar="RUN", default="", help="one run only")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Hold it, or let it go on. What runs goes on; doing it twice changes nothing."""
    from rota.wire.views import as_plain

    paused = options.command == "pause"
    with reach(options) as rota:
        if options.run_id:
            one = rota.run(options.run_id)
            one.pause(paused=paused)
            view = one.status()
        else:
            rota.pause_workflow(options.name, paused=paused)
            view = rota.workflow(options.name)
    if options.json:
        put_json(as_plain(view))
    else:
        put(f"{options.run_id or options.name}: {'paused' if paused else 'goes on'}")
    return 0
