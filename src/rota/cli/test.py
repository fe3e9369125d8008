"""`rota test FILE.py`: run a workflow of a Python file here, with virtual time and without a coordinator of its own."""

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from rota.cli import EXIT_FAILED
from rota.cli.files import find_workflow
from rota.cli.given import add_params, date, read_params
from rota.cli.showing import add_json, put, put_json, say, show_counts
from rota.core.states import SUCCESS

if TYPE_CHECKING:
    from rota.testing import Trial

EXAMPLES = """
  rota test etl.py
  rota test etl.py:nightly --param day=2026-11-16 --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("file", metavar="FILE.py[:NAME]", help="the file, and which of its workflows if it has several")
    add_params(parser)
    parser.add_argument("--date", type=date, metavar="DATE", help="what the run is about")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run it. Waits take no time: the clock jumps. Requests are not sent: a workflow with some is tested in Python."""
    from rota.testing import run_workflow
    from rota.wire.views import as_plain

    with redirect_stdout(sys.stderr):
        workflow = find_workflow(options.file)
        trial = run_workflow(workflow, read_params(options.param, workflow.param_specs), logical_date=options.date)
    if options.json:
        put_json({**_plain(trial), "tasks": [as_plain(view) for view in trial.tasks.values()]})
    else:
        _tell(trial)
    return 0 if trial.state == SUCCESS else EXIT_FAILED


def _plain(trial: "Trial") -> dict[str, object]:
    return {"state": trial.state, "reason": trial.reason, "took_ms": trial.took_ms, "story": trial.story}


def _tell(trial: "Trial") -> None:
    from rota.core.spans import show_span
    from rota.wire.views import as_json

    counts: dict[str, int] = {}
    for view in trial.tasks.values():
        counts[view.state] = counts.get(view.state, 0) + 1
        shown = ""
        if view.id in trial.results:
            shown = f": {as_json(trial.results[view.id])}"
        put(f"{view.id}: {view.state}{shown}")
        if view.error:
            say(f"{view.id}: {view.error.strip()}")
    reason = f". {trial.reason}" if trial.reason else ""
    say(f"{trial.state} in {show_span(trial.took_ms)} of virtual time: {show_counts(counts)}{reason}")
