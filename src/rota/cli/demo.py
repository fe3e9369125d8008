"""`rota demo`: a small cluster in the simulator, with a crash, a failover and a story to read."""

import argparse

from rota.cli.showing import add_json, put, put_json

EXAMPLES = """
  rota demo
  rota demo --json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play the showcase and tell what happened."""
    from rota.sim.showcase import Showcase

    showcase = Showcase()
    if options.json:
        put_json({"told": list(showcase.play()), "succeeded": showcase.succeeded})
    else:
        for line in showcase.play():
            put(line)
    return 0 if showcase.succeeded else 1
