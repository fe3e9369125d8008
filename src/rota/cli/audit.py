"""`rota audit`: who asked for what."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import finish, put_json, put_table, say, show_time

EXAMPLES = """
  rota audit
  rota audit --limit 500 --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("--limit", type=int, default=50, metavar="N", help="how many (default 50)")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List commands that changed something, the newest first; actions of builds and queries are told by their runs."""
    from rota.wire.views import as_plain

    with reach(options) as rota:
        audits = rota.audits(options.limit)
    if options.json:
        put_json([as_plain(each) for each in audits])
    elif not audits:
        say("nothing was asked for yet")
    else:
        put_table(
            ("WHEN", "WHO", "COMMAND", "ABOUT"),
            ((show_time(audit.at), audit.actor, audit.command, audit.about) for audit in audits),
        )
    return 0
