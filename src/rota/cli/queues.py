"""`rota queues`: named scheduling policies; see and define them."""

import argparse
from typing import TYPE_CHECKING, Any

from rota.cli import EXIT_USAGE
from rota.cli.choices import ALLOCATIONS, PROPERTY_RULES, UNSERVABLE
from rota.cli.reaching import reach
from rota.cli.showing import finish, put_json, put_table, say
from rota.cli.verbs import add_verbs, is_clear

if TYPE_CHECKING:
    from rota.app import Rota


_NOT_POLICY = ("tenant", "name", "properties")
# What of a queue is a number: what it says, and its unit.
_NUMBERS = {
    "worker_timeout_ms": ("from when a silent worker gets no new work; 0: never", "MS"),
    "unservable_ms": ("how long it is waited for a worker that could run a task, where --unservable is fail", "MS"),
    "retain_completed_for_ms": ("how long its ended runs stay out of history, if longer than others", "MS"),
    "client_action_timeout_ms": ("how long a build goes on that nobody asks for", "MS"),
    "max_action_executing_timeout_ms": ("how long an attempt may run without a word about it; 0: for ever", "MS"),
    "max_job_retries": ("retries of what fails through no fault of its own", "N"),
    "worker_match_logging_interval_ms": ("how often it is logged what nobody takes; -1: never", "MS"),
}

EXAMPLES = """
  rota queues
  rota queues set gpu --property gpu=minimum --allocation least_recently_used
  rota queues set review --pull
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_verbs(parser, ("set",), "NAME")
    rules = ", ".join(PROPERTY_RULES)
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=RULE",
        help=f"how a property is compared: {rules}; may be given several times",
    )
    parser.add_argument("--allocation", choices=ALLOCATIONS, help="which of equally good workers gets the work")
    parser.add_argument("--unservable", choices=UNSERVABLE, help="what becomes of a task that nobody can run")
    for name, (what, unit) in _NUMBERS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, metavar=unit, help=what)
    parser.add_argument(
        "--pull", action=argparse.BooleanOptionalAction, help="whether its tasks are claimed by pull workers"
    )
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List queues, or define one."""
    from rota.wire.views import as_plain

    if not is_clear(options):
        return EXIT_USAGE
    with reach(options) as rota:
        if options.verb == "set":
            _set(rota, options)
        queues = [queue for queue in rota.queues() if options.name in ("", queue.name)]
    if options.json:
        put_json([as_plain(each) for each in queues])
    elif not queues:
        say("no queues were defined; the one called default is always there")
    else:
        put_table(
            ("QUEUE", "ALLOCATION", "UNSERVABLE", "WORKERS", "PROPERTIES"),
            (
                (
                    queue.name,
                    queue.allocation,
                    queue.unservable,
                    "pull" if queue.pull else "push",
                    ", ".join(f"{name}={rule}" for name, rule in queue.properties),
                )
                for queue in queues
            ),
        )
    return 0


def _pair(text: str) -> tuple[str, str]:
    name, _, rule = text.partition("=")
    return name, rule


def _set(rota: "Rota", options: argparse.Namespace) -> None:
    """What is not named stays as it is; a property that is named is added, or gets another rule."""
    known = {queue.name: queue for queue in rota.queues()}.get(options.name)
    policy: dict[str, Any] = {}
    if known is not None:
        policy = {name: getattr(known, name) for name in known.__struct_fields__ if name not in _NOT_POLICY}
    given = {
        "allocation": options.allocation,
        "unservable": options.unservable,
        "pull": options.pull,
        **{name: getattr(options, name) for name in _NUMBERS},
    }
    policy |= {name: value for name, value in given.items() if value is not None}
    properties = dict(known.properties) if known is not None else {}
    rota.put_queue(options.name, {**properties, **dict(_pair(text) for text in options.property)}, **policy)
