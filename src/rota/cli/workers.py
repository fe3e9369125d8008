"""`rota workers`: who is registered; give one no new work, or strike it off."""

import argparse
from typing import TYPE_CHECKING

from rota.cli import EXIT_USAGE
from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_time
from rota.cli.verbs import add_verbs, is_clear

if TYPE_CHECKING:
    from rota.core.questions import WorkerView

EXAMPLES = """
  rota workers
  rota workers drain build-3     it finishes what it has
  rota workers undrain build-3
  rota workers unquarantine build-3     it is given work again at once
  rota workers forget build-3
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_verbs(parser, ("drain", "undrain", "unquarantine", "forget"), "WORKER")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List workers, or change one."""
    from rota.wire.views import as_plain

    if not is_clear(options):
        return EXIT_USAGE
    with reach(options) as rota:
        match options.verb:
            case "drain" | "undrain":
                rota.drain_worker(options.name, draining=options.verb == "drain")
            case "unquarantine":
                rota.end_quarantine(options.name)
            case "forget":
                rota.forget_worker(options.name)
            case _:
                pass
        workers = [view for view in rota.workers() if options.name in ("", view.id)]
    if options.json:
        put_json([as_plain(view) for view in workers])
    elif options.verb == "forget":
        put(f"{options.name} is struck off")
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


def _state(view: "WorkerView") -> str:
    from rota.app.clocks import wall_clock

    if view.quarantined_until > wall_clock():
        return "quarantined"
    if view.draining:
        return "draining"
    return "present" if view.present else "silent"
