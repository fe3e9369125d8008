"""`rota demo`: a small cluster in the simulator, with a crash, a failover and a story to read."""

import argparse
import sys

from rota.sim.showcase import Showcase


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play the showcase and tell what happened."""
    del options
    showcase = Showcase()
    for line in showcase.play():
        sys.stdout.write(line + "\n")
    return 0 if showcase.succeeded else 1
