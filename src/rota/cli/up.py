"""`rota up`: everything on this machine with one command: a coordinator, a worker, HTTP, data in a folder."""

import argparse

from rota.cli.server import serve
from rota.cli.serving import (
    add_config,
    add_server_options,
    add_setting,
    add_worker_options,
    run_until_stopped,
    settings,
)

EXAMPLES = """
  rota up     then open http://127.0.0.1:7434/
  rota up --data /var/lib/rota --slots 8
  rota up --listen 127.0.0.1:0 --http 127.0.0.1:0     any free ports
  rota up --builds 127.0.0.1:8980 --flight 127.0.0.1:8982
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_config(parser)
    add_server_options(parser)
    add_worker_options(parser)
    text = "serve builds there, by the Remote Execution API, such as 127.0.0.1:8980 (default: nowhere)"
    add_setting(parser, "--builds", "builds.listen", metavar="HOST:PORT", help=text)
    text = "serve queries there, by Arrow Flight SQL, such as 127.0.0.1:8982 (default: nowhere)"
    add_setting(parser, "--flight", "queries.listen", metavar="HOST:PORT", help=text)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    config = settings(options)
    return run_until_stopped(lambda signals: serve(config, signals, with_worker=True))
