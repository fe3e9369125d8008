"""`rota builds`: invocations of build tools; `rota builds INVOCATION`: its actions, what each came to or waits for."""

import argparse
from typing import TYPE_CHECKING

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_counts, show_time

if TYPE_CHECKING:
    from rota.cli.invocations import Action

EXAMPLES = """
  rota builds
  rota builds 5d2f     the actions of the invocation that begins like this
  rota builds 5d2f --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("invocation", nargs="?", default="", metavar="INVOCATION", help="which one, or how it begins")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many invocations (default 20)")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List them."""
    from rota.cli.invocations import find_actions, find_invocations
    from rota.core.spans import show_span

    with reach(options) as rota:
        if options.invocation:
            return _show_actions(options, find_actions(rota, options.invocation))
        found = find_invocations(rota)[: options.limit]
    if options.json:
        put_json(found)
    elif not found:
        say("no builds")
    else:
        put_table(
            ("INVOCATION", "CREATED", "TOOK", "ACTIONS", ""),
            (
                (
                    each.invocation,
                    show_time(each.created_at),
                    show_span(each.ended_at - each.created_at) if each.ended_at else "",
                    str(each.actions),
                    show_counts(each.states),
                )
                for each in found
            ),
        )
    return 0


def _show_actions(options: argparse.Namespace, actions: "list[Action]") -> int:
    from rota.cli.invocations import TASK
    from rota.core.spans import show_span

    if options.json:
        put_json(actions)
        return 0
    if not actions:
        say(f"no actions of {options.invocation}; `rota builds` lists invocations")
        return 0
    put_table(
        ("RUN", "MNEMONIC", "TARGET", "STATE", "EXIT", "TOOK", "WORKER"),
        (
            (
                each.run,
                each.mnemonic,
                each.target,
                each.state,
                each.exit,
                show_span(each.took_ms) if each.took_ms else "",
                each.worker,
            )
            for each in actions
        ),
    )
    for each in actions:
        for reason in each.why:
            put(f"{each.run}: {reason}")
    say(f"what one printed: rota logs RUN {TASK}; why it waits: rota why RUN {TASK}; all of it: rota story RUN")
    return 0
