"""`rota backfills`: those that are not over; and ending one."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_time
from rota.wire.views import as_plain


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("--cancel", metavar="ID", default="", help="make no more runs of this one, and cancel its runs")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List them, or end one."""
    with reach(options) as rota:
        if options.cancel:
            rota.cancel_backfill(options.cancel)
        views = rota.backfills()
    if options.json:
        put_json([as_plain(view) for view in views])
    elif options.cancel:
        put(f"{options.cancel}: cancelled")
    elif not views:
        say("no backfills")
    else:
        put_table(
            ("BACKFILL", "WORKFLOW", "VERSION", "FROM", "TO", "MADE", "ACTIVE", "LEFT"),
            (
                (
                    view.id,
                    view.workflow,
                    str(view.version),
                    show_time(view.start_at),
                    show_time(view.end_at),
                    str(view.made),
                    f"{view.active} of {view.max_active_runs}",
                    str(view.left),
                )
                for view in views
            ),
        )
    return 0
