"""`rota backfills`: those that are not over; and ending one."""

import argparse

from rota.cli import EXIT_USAGE
from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_time
from rota.cli.verbs import add_verbs, is_clear

EXAMPLES = """
  rota backfills
  rota backfills cancel etl-backfill-3f9a1c     makes no more runs, and cancels those it made
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_verbs(parser, ("cancel",), "BACKFILL")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List them, or end one."""
    from rota.wire.views import as_plain

    if not is_clear(options):
        return EXIT_USAGE
    with reach(options) as rota:
        if options.verb == "cancel":
            rota.cancel_backfill(options.name)
        views = rota.backfills()
    if options.json:
        put_json([as_plain(view) for view in views])
    elif options.verb == "cancel":
        put(f"{options.name}: cancelled")
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
