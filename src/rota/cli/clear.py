"""`rota clear RUN [TASK …]`: run tasks again that have ended, with a fresh budget."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put, put_json, say


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    parser.add_argument("tasks", metavar="TASK", nargs="*", help="which tasks (default: all)")
    parser.add_argument("--only", action="store_true", help="these only, and nothing that comes after them")
    parser.add_argument("--failed", action="store_true", help="leave out what ended well")
    parser.add_argument("--dry-run", action="store_true", help="only say which tasks those are")
    parser.add_argument(
        "--version", type=int, metavar="N", help="move the run to this version of its workflow first; 0: the newest"
    )
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Clear, or say what would be."""
    with reach(options) as rota:
        one = rota.run(options.run_id)
        if options.version is not None and not options.dry_run:
            one.move(options.version)
        tasks = one.would_clear(*options.tasks, downstream=not options.only, only_failed=options.failed)
        if tasks and not options.dry_run:
            one.clear(*options.tasks, downstream=not options.only, only_failed=options.failed)
    if options.json:
        put_json({"run": options.run_id, "tasks": tasks, "dry_run": options.dry_run})
    else:
        for task in tasks:
            put(task)
        what = "would be run again" if options.dry_run else "are run again"
        say(f"{len(tasks)} tasks of {options.run_id} {what}")
    return 0
