"""`rota workers`: who is registered; give one no new work, or strike it off."""

import argparse
import time

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_time
from rota.core.questions import WorkerView
from rota.wire.views import as_plain


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument(
        "verb", nargs="?", choices=("list", "drain", "undrain", "forget"), default="list", help="what to do (list)"
    )
    parser.add_argument("worker", nargs="?", default="", metavar="WORKER", help="which one")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List workers, or change one."""
    if (options.verb == "list") == bool(options.worker):
        say(f"usage: rota workers, or rota workers {'drain' if options.verb == 'list' else options.verb} WORKER")
        return 2
    with reach(options) as rota:
        match options.verb:
            case "drain" | "undrain":
                rota.drain_worker(options.worker, draining=options.verb == "drain")
            case "forget":
                rota.forget_worker(options.worker)
            case _:
                pass
        workers = [view for view in rota.workers() if options.worker in ("", view.id)]
    if options.json:
        put_json([as_plain(view) for view in workers])
    elif options.verb == "forget":
        put(f"{options.worker} is struck off")
    elif not workers:
        say("no workers: start one with `rota worker`")
    else:
        put_table(
            ("WORKER", "STATE", "BUSY", "KINDS", "QUEUES", "LAST HEARD"),
            (
                (
                    view.id,
                    _state(view),
                    f"{view.leases}/{view.capacity.slots}",
                    ", ".join(view.capacity.kinds),
                    ", ".join(view.capacity.queues) or "all",
                    show_time(view.seen_at),
                )
                for view in workers
            ),
        )
    return 0


def _state(view: WorkerView) -> str:
    if view.quarantined_until > time.time_ns() // 1_000_000:
        return "quarantined"
    if view.draining:
        return "draining"
    return "present" if view.present else "silent"
