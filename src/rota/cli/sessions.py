"""`rota sessions`: agents' sessions; see them, and end one that does not end by itself."""

import argparse

from rota.cli import EXIT_USAGE
from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json, put_table, say, show_time
from rota.cli.verbs import add_verbs, is_clear

EXAMPLES = """
  rota sessions
  rota sessions end reviewer-7     what it holds is returned at once, at no cost
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_verbs(parser, ("end",), "SESSION")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """List sessions, or end one."""
    from rota.wire.agent_views import show_session

    if not is_clear(options):
        return EXIT_USAGE
    with reach(options) as rota:
        if options.verb == "end":
            rota.forget_worker(options.name)
        found = rota.sessions()
    if options.json:
        put_json([show_session(line) for line in found])
    elif options.verb == "end":
        put(f"{options.name} has ended")
    elif not found:
        say("no sessions: an agent registers one, see docs/guides/agents.md")
    else:
        put_table(
            ("SESSION", "STATE", "HOLDS", "AGENT", "WORKSPACE", "CHANNEL", "CAPABILITIES", "LAST HEARD"),
            (
                (
                    line.session,
                    line.state,
                    f"{len(line.held)}/{line.limit}",
                    line.agent,
                    line.workspace,
                    line.channel,
                    ", ".join(line.capabilities),
                    show_time(line.seen_at),
                )
                for line in found
            ),
        )
    return 0
