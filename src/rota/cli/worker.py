"""`rota worker`: run work of a coordinator elsewhere."""

import argparse
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from rota.cli import EXIT_FAILED
from rota.cli.serving import (
    Signals,
    add_config,
    add_setting,
    add_worker_options,
    done_before,
    drain,
    first_of,
    run_until_stopped,
    settings,
    tell,
)

if TYPE_CHECKING:
    from rota.config import Config

EXAMPLES = """
  rota worker --coordinator grpc://rota.example.org:7433
  rota worker --coordinator grpc://a:7433,b:7433 --slots 16 --name build-3
  rota worker --coordinator grpc://rota.example.org:7433 --cluster 3f9c-1a7b-e204
  rota worker --config /etc/rota/worker.toml
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_config(parser)
    text = "such as grpc://host:7433 (default $ROTA_COORDINATOR)"
    add_setting(parser, "--coordinator", "client.coordinator", metavar="URL", help=text)
    text = "the folder of this worker (default .rota-worker)"
    add_setting(parser, "--data", "worker.data", metavar="DIR", help=text)
    text = "its name (default: made up once and kept in the folder)"
    add_setting(parser, "--name", "worker.name", metavar="NAME", help=text)
    text = "the id of its cluster (default: that of the first coordinator it meets, kept in the folder)"
    add_setting(parser, "--cluster", "worker.cluster", metavar="ID", help=text)
    add_worker_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Work until told to stop."""
    config = settings(options)
    return run_until_stopped(lambda signals: work(config, signals))


async def work(config: "Config", signals: Signals) -> int:
    """A worker from its start to its end."""
    import asyncio

    from rota.app.laborer import start_laborer  # not needed to show help

    async with AsyncExitStack() as parts:
        starting = asyncio.ensure_future(start_laborer(parts, config))
        if not await done_before(starting, signals.asked):
            return 0
        worker = starting.result()
        capacity = worker.machine.capacity
        tell(f"ready: {capacity.slots} slots for {', '.join(capacity.kinds)}; cluster {worker.machine.cluster}")
        await first_of(signals.asked, worker.left)
        code = 0
        if worker.failed is None and not signals.at_once.is_set():
            code = await drain(worker, config.worker.drain_s, signals.at_once)
        return EXIT_FAILED if worker.failed is not None else code
