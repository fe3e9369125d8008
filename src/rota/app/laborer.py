"""A worker as a process of its own, for a coordinator elsewhere."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import structs

from rota.app.clocks import SystemClock, wall_clock
from rota.app.homes import check_home, elsewhere
from rota.app.journal import Journal
from rota.app.survivors import RunnersLock
from rota.app.working import Working, check_threads, complaint, ship_logs, start_worker, token_of, working_of
from rota.client.rpc import RpcConnection
from rota.config import Config
from rota.control.driver import Listener
from rota.control.events import Level, Tell
from rota.core.cluster import check_coordinator, wrong_cluster
from rota.core.errors import Unavailable
from rota.core.ids import DEFAULT_TENANT
from rota.ports import Blobs
from rota.stores.blobs import open_blobs
from rota.wire.places import read_places
from rota.wire.requests import GetService, ServiceView
from rota.wire.routes import Route
from rota.worker.driver import WorkerDriver
from rota.worker.identity import Identity, take_identity
from rota.worker.logs.folder import LogFolder
from rota.worker.remote.driver import Complain, dial_to

# How often a coordinator that is not there yet is looked for.
LOOK_S_MIN = 0.2
LOOK_S_MAX = 5.0


async def start_laborer(parts: AsyncExitStack, config: Config) -> WorkerDriver:
    """Start a worker as the settings say, once its coordinator is there; `parts` stops it.

    What its operator should know is written to its journal.
    """
    check_threads(config)
    route = Route(*read_places(config.client, wall_clock()))
    identity = take_identity(Path(config.worker.data), config.worker.name)
    parts.callback(identity.free)
    clock = SystemClock()
    journal = Journal(clock)
    parts.callback(journal.close)
    journal.start()
    journal(Tell("worker.begins", (("id", identity.id), ("coordinator", route.url))))

    away = complain_to(journal)

    def failing(error: BaseException) -> None:
        journal(Tell("worker.failed", (("error", f"stopped by an error of its own: {error!r}"),)))

    service, tenant = await _wait_for(route, lambda: token_of(config), away)
    _check_cluster(identity, config.worker.cluster, service, route.url)
    blobs = await _open_blobs(config, service)
    _join(identity, service.cluster, route.url, journal)
    lock = RunnersLock(identity.folder)
    parts.callback(lock.free)
    await lock.take()
    logs = ship_logs(parts, identity.folder, blobs, complaint(journal))
    working = structs.replace(_named(config, identity, lock, tenant), cluster=service.cluster)
    dial = dial_to(route, lambda: token_of(config), away)
    return await start_worker(parts, working, blobs, logs, dial, clock, failing, journal)


def complain_to(journal: Journal) -> Complain:
    """How an operator hears of a coordinator that is not reached."""
    return lambda cause, text: journal(Tell("coordinator.away", (("cause", cause), ("error", text))))


def _named(config: Config, identity: Identity, lock: RunnersLock, tenant: str) -> Working:
    """Unless the settings say whose it is, a worker is of its token's tenant."""
    working = working_of(config, identity.folder, kept_open=(lock.fd,))
    if not tenant or "client.tenant" in config.sources:
        tenant = working.tenant
    return structs.replace(working, id=identity.id, incarnation=identity.incarnation, tenant=tenant)


def _check_cluster(identity: Identity, told: str, service: ServiceView, address: str) -> None:
    """Refuse a coordinator of another cluster than this worker's.

    The settings count more than what the worker's folder remembers: naming a cluster there moves the worker.
    """
    known = identity.cluster()
    if check_coordinator(told or known, service.cluster) is None:
        return
    if told:
        raise wrong_cluster(told, service.cluster, address, path="worker.cluster")
    raise wrong_cluster(known, service.cluster, address, str(identity.cluster_file))


def _join(identity: Identity, cluster: str, address: str, tell: Listener) -> None:
    """Remember the cluster that the worker belongs to from now on, and tell the operator once."""
    known = identity.cluster()
    if not cluster or known == cluster:
        return
    if known:
        aside = LogFolder(identity.folder).set_aside(known)
        about = (("from", known), ("to", cluster), *((("logs", aside),) if aside else ()))
        tell(Tell("worker.moved", about, Level.WARNING))
    identity.join(cluster)
    kept = str(identity.cluster_file)
    tell(Tell("worker.joined", (("cluster", cluster), ("coordinator", address), ("remembered_in", kept))))


async def _wait_for(route: Route, token: Callable[[], str], away: Complain) -> tuple[ServiceView, str]:
    """What the coordinator says of itself, as soon as it answers, and for which tenant our token is; empty for any.

    What it refuses is raised.
    """
    wait_s = LOOK_S_MIN
    while True:
        try:
            connection = await RpcConnection.open(route, token(), "")
            try:
                return await connection.ask(GetService(tenant=DEFAULT_TENANT)), connection.tenant
            finally:
                await connection.close()
        except Unavailable as unavailable:
            away(unavailable.code, f"waiting for the coordinator: {unavailable.reason}")
        await asyncio.sleep(wait_s)
        wait_s = min(LOOK_S_MAX, wait_s * 2)


async def _open_blobs(config: Config, service: ServiceView) -> Blobs:
    """Where the coordinator keeps large things, unless the settings of this machine name it otherwise."""
    place = config.server.blobs or service.blobs
    if "://" not in place and not Path(place).is_dir():
        # Opening it would make it.
        raise elsewhere(f"the coordinator keeps logs and large values in {place}, and this machine has no such folder")
    blobs = open_blobs(place)
    await check_home(blobs, service.home, place)
    return blobs
