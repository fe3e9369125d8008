"""`rota deploy PATH`: compile the workflows of a file or a folder, and make them the present versions."""

import argparse
from typing import TYPE_CHECKING

from rota.cli import EXIT_REFUSED
from rota.cli.choices import LOAD_S
from rota.cli.given import pair, seconds
from rota.cli.reaching import reach_or_make
from rota.cli.showing import finish, put, put_json, say, show_count

if TYPE_CHECKING:
    from rota.app import Rota
    from rota.client.deploying import Deployed
    from rota.wire.deployments import Broken

EXAMPLES = """
  rota deploy etl.py
  rota deploy workflows/ --strict
  rota deploy etl.py --coordinator grpc://rota.example.org:7433
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("path", metavar="PATH", help="a Python file, or a folder with some")
    parser.add_argument("--strict", action="store_true", help="deploy nothing if anything is broken")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=LOAD_S,
        metavar="SECONDS",
        help=f"how long each file may take to load (default {LOAD_S:g})",
    )
    parser.add_argument(
        "--env",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=VALUE",
        help="a variable that the files find while they are loaded",
    )
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Deploy, and tell what became of each workflow."""
    with reach_or_make(options) as rota:
        done, broken = _deploy(rota, options)
    if options.json:
        put_json({"deployed": done, "broken": broken})
    else:
        for each in done:
            new = "new" if each.is_new else "unchanged"
            put(f"{each.name}: version {each.version}, {new}; {show_count(each.tasks, 'task')}, {each.source}")
    for each in broken:
        _complain(each)
    if not broken:
        return 0
    what = "nothing was deployed" if not done else f"{len(done)} deployed"
    say(f"rota: deploy.broken: {len(broken)} broken, {what}:")
    for each in broken:
        say(f"  {each.place}: {each.error}")
    return EXIT_REFUSED


def _deploy(rota: "Rota", options: argparse.Namespace) -> "tuple[list[Deployed], tuple[Broken, ...]]":
    from rota.client.deploying import DeployFailed

    try:
        done = rota.deploy(options.path, strict=options.strict, timeout_s=options.timeout, env=dict(options.env))
    except DeployFailed as failed:
        return failed.deployed, failed.broken
    return done, ()


def _complain(broken: "Broken") -> None:
    of = f", workflow {broken.workflow!r}" if broken.workflow else ""
    say(f"{broken.place}{of}")
    say(broken.trace or f"  {broken.error}")
    say("")
