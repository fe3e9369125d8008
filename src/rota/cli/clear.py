"""`rota clear RUN [TASK …]`: run tasks again that have ended, with a fresh budget. What runs is left alone."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put, put_json, say, show_count

EXAMPLES = """
  rota clear etl-3f9a1c load --dry-run
  rota clear etl-3f9a1c load     and everything after it
  rota clear etl-3f9a1c --failed --version 0     with the code that is deployed now
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument("tasks", metavar="TASK", nargs="*", help="which tasks (default: all)")
    parser.add_argument(
        "--only",
        action="store_true",
        help="only the tasks that are named; without it, everything after them is run again too",
    )
    parser.add_argument(
        "--failed",
        action="store_true",
        help="only those that failed, failed because of others, or were cancelled; without it, also what ended well",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only say which tasks those are; with --version, by the version that the run has now",
    )
    parser.add_argument(
        "--version",
        type=int,
        metavar="N",
        help="first move the run to this version (0: the present one), which alone reopens a run that ended",
    )
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Clear, or say what would be."""
    with reach(options) as rota:
        one = rota.run(options.run_id)
        version = one.status().version
        if options.version is not None and not options.dry_run:
            one.move(options.version)
            version = one.status().version
        tasks = one.would_clear(*options.tasks, downstream=not options.only, only_failed=options.failed)
        if tasks and not options.dry_run:
            one.clear(*options.tasks, downstream=not options.only, only_failed=options.failed)
    if options.json:
        put_json({"run": options.run_id, "tasks": tasks, "dry_run": options.dry_run, "version": version})
    else:
        for task in tasks:
            put(task)
        what = "would be run again" if options.dry_run else "are run again"
        say(f"{show_count(len(tasks), 'task')} of {options.run_id} {what}")
        if options.dry_run and options.version is not None:
            say(f"as version {version} has them, which the run has now; it was not moved")
    return 0
