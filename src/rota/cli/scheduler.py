"""`rota scheduler`: work that is claimed, as a whole: how it stands, what waits, pausing and draining it."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.cli import EXIT_FAILED
from rota.cli.choices import DRAIN_S
from rota.cli.given import count
from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_count, show_time

if TYPE_CHECKING:
    from rota.client.scheduling import DrainStep
    from rota.core.backlog import SchedulerView

EXAMPLES = """
  rota scheduler status
  rota scheduler pause --workspace docs --reason "the style guide changes"
  rota scheduler resume --workspace docs
  rota scheduler drain --timeout 120     nobody claims any more; waits for those who have
  rota scheduler backlog --workspace docs --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        described = verbs.add_parser(name, help=summary, description=summary)
        finish(described, run)
        if name != "status":
            described.add_argument("--workspace", default="", metavar="NAME", help="only this one (default: all)")
        return described

    verb("status", "show pauses, and how much waits, is held or needs attention", status)
    pausing = verb("pause", "let nobody claim work or be woken; whoever has some goes on", pause)
    pausing.add_argument("--reason", default="", metavar="TEXT", help="why; everybody who asks is told")
    verb("resume", "let claims and wakes go on", resume)
    draining = verb("drain", "pause, and wait until nobody holds anything", drain)
    draining.add_argument("--reason", default="", metavar="TEXT", help="why; everybody who asks is told")
    text = f"how long to wait (default {DRAIN_S:.0f}); it stays paused afterwards"
    draining.add_argument("--timeout", type=float, default=DRAIN_S, metavar="SECONDS", help=text)
    waiting = verb("backlog", "list what waits, in the order in which it would be claimed", backlog)
    waiting.add_argument("--limit", type=count, default=50, metavar="N", help="how much of it (default 50)")
    waiting.add_argument("--no-paused", action="store_true", help="leave out what is paused")


def status(options: argparse.Namespace) -> int:
    """How it stands."""
    with reach(options) as rota:
        view = rota.scheduler()
    return _put(options, view)


def _put(options: argparse.Namespace, view: "SchedulerView") -> int:
    from rota.wire.views import as_plain

    if options.json:
        put_json(as_plain(view))
        return 0
    put("paused" if view.paused else "open")
    for each in view.pauses:
        why = f": {each.reason}" if each.reason else ""
        put(f"{each.scope or 'everything'} is paused by {each.actor or 'somebody'} since {show_time(each.at)}{why}")
    for name in ("queued", "held", "paused_items", "gated", "starved", "needs_attention", "sessions"):
        put(f"{name.replace('_', ' '):16} {getattr(view, name)}")
    return 0


def pause(options: argparse.Namespace) -> int:
    """Let nobody claim."""
    with reach(options) as rota:
        rota.pause_scheduler(workspace=options.workspace, reason=options.reason)
        return _put(options, rota.scheduler())


def resume(options: argparse.Namespace) -> int:
    """Let claims go on."""
    with reach(options) as rota:
        rota.resume_scheduler(workspace=options.workspace)
        return _put(options, rota.scheduler())


def drain(options: argparse.Namespace) -> int:
    """Pause and wait; how many are left is said whenever that changes."""
    last: DrainStep | None = None
    with reach(options) as rota:
        for step in rota.drain_steps(timeout_s=options.timeout, workspace=options.workspace, reason=options.reason):
            last = step
            if step.held and not step.timed_out:
                say(f"{show_count(step.held, 'claim')} left")
    assert last is not None, "draining has at least one step"
    if options.json:
        put_json(last)
    else:
        put("drained" if last.drained else f"{show_count(last.held, 'claim')} left, and the time is over")
    return 0 if last.drained else EXIT_FAILED


def backlog(options: argparse.Namespace) -> int:
    """What waits."""
    from rota.wire.agent_views import show_backlog

    with reach(options) as rota:
        found = rota.backlog(workspace=options.workspace, include_paused=not options.no_paused, limit=options.limit)
    lines = [show_backlog(line) for line in found]
    if options.json:
        put_json(lines)
    elif not lines:
        say("nothing waits to be claimed")
    else:
        put_table(
            ("ITEM", "PRIORITY", "WAITS SINCE", "TITLE", "WHY"),
            (
                (
                    line["run"],
                    line["priority"],
                    show_time(line["eligible_at"]),
                    line["labels"].get("title", ""),
                    "; ".join(reason["code"] for reason in line["reasons"]),
                )
                for line in lines
            ),
        )
    return 0
