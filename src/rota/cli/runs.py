"""`rota runs`: the runs of a data folder, the newest first."""

import argparse

from rota.cli.given import pair
from rota.cli.parsers import did_you_mean
from rota.cli.reaching import reach
from rota.cli.showing import finish, put_json, put_table, say, show_counts, show_time
from rota.core.states import RunState

EXAMPLES = """
  rota runs
  rota runs --name etl --state failed --limit 5
  rota runs --label team=data --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("--name", default="", help="only runs of this graph")
    parser.add_argument("--state", action="append", choices=list(RunState), default=[], help="only runs in this state")
    parser.add_argument(
        "--label",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=VALUE",
        help="only runs with this label; several: with all of them",
    )
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many (default 20)")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List them."""
    from rota.core.spans import show_slot, show_span
    from rota.wire.views import as_plain

    with reach(options) as rota:
        runs = rota.runs(name=options.name, states=options.state, labels=tuple(options.label), limit=options.limit)
        known = [view.workflow.name for view in rota.workflows()] if options.name and not runs else []
    if options.json:
        put_json([as_plain(view) for view in runs])
        return 0
    if not runs:
        say(f"no runs{did_you_mean(options.name, known)}")
        return 0
    # Runs without a schedule have none, and most lists are of one or the other.
    is_dated = any(view.slot_at for view in runs)
    put_table(
        ("RUN", "GRAPH", "STATE", *(("LOGICAL DATE",) if is_dated else ()), "CREATED", "TOOK", "TASKS"),
        (
            (
                view.id,
                view.name,
                "paused" if view.paused else view.state,
                *((show_slot(view.slot_at) if view.slot_at else "",) if is_dated else ()),
                show_time(view.created_at),
                show_span(view.ended_at - view.started_at - view.idle_ms) if view.ended_at and view.started_at else "",
                show_counts(view.tasks),
            )
            for view in runs
        ),
    )
    return 0
