"""`rota why RUN TASK`: the reasons why a task is not running, from the rules that hold it."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, add_task, finish, put, put_json

EXAMPLES = """
  rota why etl-3f9a1c load
  rota why etl-3f9a1c 'extract[3]' --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    add_task(parser)
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Explain it."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        one = rota.run(options.run_id)
        reasons = one.why(options.task)
        view = one.task(options.task)
    if options.json:
        put_json({"state": view.state, "reasons": [as_plain(each) for each in reasons]})
    elif not reasons:
        put(f"{view.id} has ended: {view.state}{': ' + view.error.strip() if view.error else ''}")
    for each in () if options.json else reasons:
        put(f"{each.code}: {each.text}")
    return 0
