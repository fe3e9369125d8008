"""`rota backfill NAME --from DATE --to DATE`: make runs for slots of the past."""

import argparse
from datetime import UTC, datetime

from rota.cli.choices import BACKFILL_ACTIVE_RUNS
from rota.cli.given import add_params, count, date, read_params
from rota.cli.reaching import again, reach
from rota.cli.showing import finish, put, put_json, say

EXAMPLES = """
  rota backfill etl --from 2026-11-01 --to 2026-11-15 --dry-run
  rota backfill etl --from 2026-11-01 --to 2026-11-15 --max-active 2
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("name", metavar="NAME", help="the workflow, see `rota workflows`")
    parser.add_argument("--from", dest="start", type=date, required=True, metavar="DATE", help="the first slot's date")
    parser.add_argument(
        "--to", dest="end", type=date, required=True, metavar="DATE", help="the last slot's; a date alone is all of it"
    )
    parser.add_argument("--dry-run", action="store_true", help="only list the slots")
    parser.add_argument(
        "--max-active",
        type=count,
        default=BACKFILL_ACTIVE_RUNS,
        metavar="N",
        help=f"how many of its runs at once (default {BACKFILL_ACTIVE_RUNS})",
    )
    parser.add_argument("--id", default="", help="what it is called (default: the workflow's name and some letters)")
    add_params(parser)
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Begin it, or list what it is about."""
    from zoneinfo import ZoneInfo

    with reach(options) as rota:
        slots = rota.backfill_slots(options.name, options.start, options.end)
        backfill = ""
        if not options.dry_run:
            backfill = rota.backfill(
                options.name,
                options.start,
                options.end,
                max_active_runs=options.max_active,
                params=read_params(options.param, rota.workflow(options.name).workflow.params),
                backfill=options.id,
            )
    if options.json:
        put_json({"backfill": backfill, "workflow": options.name, "slots": slots.count, "first": slots.first})
    elif options.dry_run:
        for at in slots.first:
            put(datetime.fromtimestamp(at / 1000, UTC).astimezone(ZoneInfo(slots.zone)).isoformat(timespec="seconds"))
        shown = f", of which the first {len(slots.first)} are shown" if slots.count > len(slots.first) else ""
        say(f"{slots.count} slots of {options.name}{shown}; nothing was made")
    else:
        put(backfill)
        say(f"{slots.count} slots of {options.name}, {options.max_active} runs at once. To see or end it:")
        say(f"  rota backfills {again(options)}")
        say(f"  rota backfills cancel {backfill} {again(options)}")
    return 0
