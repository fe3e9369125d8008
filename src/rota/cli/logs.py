"""`rota logs RUN [TASK]`: what an attempt printed, or all tasks of a run."""

import argparse
import sys
from typing import TYPE_CHECKING

from rota.cli.reaching import reach
from rota.cli.showing import add_run, finish, put_json
from rota.core.errors import Refused

if TYPE_CHECKING:
    from rota.client.blocking import BlockingRun

EXAMPLES = """
  rota logs etl-3f9a1c     what all tasks printed: each line behind its task, or task#2 for a second attempt
  rota logs etl-3f9a1c load
  rota logs etl-3f9a1c load --attempt 1
  rota logs etl-3f9a1c load --follow
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_run(parser)
    text = "one task's log (default: all tasks of the run)"
    parser.add_argument("task", metavar="TASK", nargs="?", default="", help=text)
    parser.add_argument("--attempt", type=int, default=0, metavar="N", help="which attempt (default: the newest)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the attempt, or the run, has ended")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Show it."""
    if options.attempt and not options.task:
        raise Refused("field.value", "--attempt is for one task", "Name the task.", path="--attempt")
    with reach(options) as rota:
        one = rota.run(options.run_id)
        return _show_task(one, options) if options.task else _show_run(one, options)


def _show_task(one: "BlockingRun", options: argparse.Namespace) -> int:
    pieces = one.logs(options.task, options.attempt, follow=options.follow)
    if options.json:
        put_json(b"".join(pieces).decode(errors="replace").splitlines())
        return 0
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    return 0


def _show_run(one: "BlockingRun", options: argparse.Namespace) -> int:
    lines = one.log_lines(follow=options.follow)
    if options.json:
        put_json(
            [{"task": each.task, "attempt": each.attempt, "line": each.line.decode(errors="replace")} for each in lines]
        )
        return 0
    for each in lines:
        printed_by = each.task if each.attempt == 1 else f"{each.task}#{each.attempt}"
        sys.stdout.buffer.write(b"%b | %b\n" % (printed_by.encode(), each.line))
        if options.follow:
            sys.stdout.buffer.flush()
    return 0
