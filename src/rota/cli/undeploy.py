"""`rota undeploy NAME`: take a workflow away with its schedule."""

import argparse

from rota.cli.reaching import reach
from rota.cli.showing import finish, put, put_json

EXAMPLES = """
  rota undeploy etl
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("name", metavar="NAME", help="the workflow, see `rota workflows`")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Take it away. Its runs go on with what they were made of."""
    with reach(options) as rota:
        rota.drop_workflow(options.name)
    if options.json:
        put_json({"name": options.name})
    else:
        put(f"{options.name}: taken away; its runs go on")
    return 0
