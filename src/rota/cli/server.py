"""`rota server`: a coordinator that others reach, and nothing else."""

import argparse
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from rota.app import DEFAULT_FOLDER
from rota.cli import EXIT_FAILED
from rota.cli.reaching import find_folder
from rota.cli.serving import (
    Signals,
    add_config,
    add_server_options,
    done_before,
    drain,
    first_of,
    run_until_stopped,
    settings,
    tell,
)

if TYPE_CHECKING:
    from rota.app.beside import Beside
    from rota.app.hosting import Host
    from rota.app.service import Service
    from rota.config import Config

EXAMPLES = """
  rota server --data /var/lib/rota
  rota server --config /etc/rota/server.toml
  ROTA_SERVER_STORE=postgresql://… rota server --listen 0.0.0.0:7433
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    add_config(parser)
    add_server_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    config = settings(options)
    return run_until_stopped(lambda signals: serve(config, signals, with_worker=False))


async def serve(config: "Config", signals: Signals, *, with_worker: bool) -> int:
    """A service from its start to its end."""
    import asyncio

    note_data_above(config)
    async with AsyncExitStack() as parts:
        beside = await _begin_beside(parts, config)
        starting = asyncio.ensure_future(_start(parts, config, beside, with_worker=with_worker))
        if not await done_before(starting, signals.asked):
            return 0
        service = starting.result()
        ways = f"{service.grpc}{' and ' + service.http if service.http else ''}"
        worker = service.worker
        hands = _slots(worker.machine.capacity.slots) if worker is not None else "no worker here"
        here = service.host
        tell(f"ready: {ways}; data in {here.path}; {hands}; cluster {here.cluster}{_standing(here)}")
        if service.http:
            tell(f"pages: {service.http}/")
        await first_of(signals.asked, service.failed)
        if service.failed.is_set():
            tell("stopped by an error of its own; what was acknowledged is on disk")
            return EXIT_FAILED
        code = 0
        if worker is not None and not signals.at_once.is_set():
            code = await drain(worker, config.worker.drain_s, signals.at_once, service.failed)
        tell("stopping")
        # Before the coordinator, which their clients would miss.
        await asyncio.gather(*(each.stop() for each in beside))
    return code


def note_data_above(config: "Config") -> None:
    """Warn if a service starts anew below a folder with data: that folder may have been meant."""
    found = find_folder()
    if "server.data" not in config.sources and found != DEFAULT_FOLDER:
        tell(f"there is data in {found}, and none here: starting in {DEFAULT_FOLDER}. That one: --data {found}")


async def _begin_beside(parts: AsyncExitStack, config: "Config") -> "list[Beside]":
    """The front ends that there are to be: they load their code while this process does."""
    import asyncio

    from rota.app.beside import front_ends  # not needed to show help

    beside = front_ends(config)
    for each in beside:
        each.start(parts)
    # Their processes are made now.
    await asyncio.sleep(0)
    return beside


async def _start(parts: AsyncExitStack, config: "Config", beside: "list[Beside]", *, with_worker: bool) -> "Service":
    from rota.app.service import start_service  # not needed to show help

    return await start_service(parts, config, with_worker=with_worker, beside=beside)


def _standing(host: "Host") -> str:
    """Of several coordinators: whether this one leads, or who does."""
    if host.shared is None:
        return ""
    leader = host.driver.leader
    if host.driver.is_leader:
        return "; leads"
    return "; follows, and nobody leads yet" if leader is None else f"; follows {leader.name} at {leader.grpc}"


def _slots(count: int) -> str:
    return f"a worker with {count} slot{'' if count == 1 else 's'}"
