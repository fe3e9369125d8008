"""`rota tasks RUN`: what became of each task."""

import argparse
from typing import TYPE_CHECKING

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put_json, put_table, show_time
from rota.core.errors import headline
from rota.core.states import TaskState

if TYPE_CHECKING:
    from rota.core.questions import TaskView

_ERROR_CHARS = 60

EXAMPLES = """
  rota tasks etl-3f9a1c
  rota tasks etl-3f     as much of an id as no other run has
  rota tasks etl-3f9a1c --state failed --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument(
        "--state", action="append", choices=list(TaskState), default=[], help="only tasks in this state"
    )
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List them."""
    from rota.core.spans import show_span
    from rota.wire.views import as_plain

    with reach(options) as rota:
        tasks = rota.run(options.run_id).tasks(states=options.state)
    if options.json:
        put_json([as_plain(view) for view in tasks])
        return 0
    put_table(
        ("TASK", "STATE", "ATTEMPT", "WORKER", "STARTED", "TOOK", "ERROR OR NOTE"),
        (
            (
                view.id,
                view.state,
                str(view.attempt),
                view.worker,
                show_time(view.started_at),
                show_span(view.ended_at - view.started_at) if view.ended_at and view.started_at else "",
                error_or_note(view),
            )
            for view in tasks
        ),
    )
    return 0


def error_or_note(view: "TaskView") -> str:
    """What a task failed with; else what was noted."""
    return headline(view.error or view.note)[:_ERROR_CHARS]
