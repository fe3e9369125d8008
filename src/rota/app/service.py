"""A coordinator as a service: gRPC for workers and clients, HTTP for everybody else, tokens, metrics, a journal."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import cast

from msgspec import Struct, structs

from rota.api.analysts import readable
from rota.api.http.room import CONNECTIONS_MAX
from rota.api.http.server import HttpServer
from rota.api.http.service import HttpService
from rota.api.rpc import RpcServer
from rota.api.tokens import Gate, check_exposure
from rota.app.beside import Beside, front_end_url
from rota.app.clocks import SystemClock, wall_clock
from rota.app.descriptors import make_room
from rota.app.hosting import Host, Hosting, begin, host
from rota.app.inspecting import look_inside
from rota.app.journal import Journal
from rota.app.laborer import complain_to
from rota.app.pages import make_pages
from rota.app.shared import sharing_of
from rota.app.spawning import Nursery, start_nursery
from rota.app.working import check_threads, complaint, ship_logs, start_resident, token_of, working_of
from rota.config import (
    Address,
    Config,
    ServerTls,
    check_backends,
    commands_for,
    read_address,
    read_server_tls,
    server_context,
)
from rota.config.folders import folders_by_tenant
from rota.config.settings import Builds
from rota.control.driver import Listener
from rota.control.events import Escalate, Level, Tell
from rota.control.telemetry import Telemetry
from rota.core.cluster import check_coordinator, wrong_cluster
from rota.core.commands import PutQueue
from rota.core.errors import Refused
from rota.core.ids import DEFAULT_TENANT, CommandId
from rota.core.ladder import ClimbRule
from rota.core.model import Queue
from rota.core.questions import ListQueues
from rota.kinds.build.queue import BUILDS_QUEUE, builds_queue, check_queues
from rota.ports import Candidate
from rota.wire.frames import CoordinatorFrame
from rota.wire.places import read_places, server_credentials
from rota.wire.routes import Route
from rota.worker.driver import Dial, Link, WorkerDriver
from rota.worker.identity import take_identity
from rota.worker.remote.driver import dial_to


class Service(Struct, frozen=True):
    """What is running, and where it is reached. `http` is empty if HTTP is off."""

    host: Host
    grpc: str
    http: str
    worker: WorkerDriver | None
    # Set when the coordinator has met an error of its own and nothing is answered any more.
    failed: asyncio.Event


async def start_service(
    parts: AsyncExitStack, config: Config, *, with_worker: bool, beside: Sequence[Beside] = ()
) -> Service:
    """Start everything that the settings say; `parts` stops it in order. Refuses what is not safe to start.

    `beside` are front ends that are to know where it is.
    """
    server = config.server
    check_backends(config)
    if with_worker:
        check_threads(config)
        _check_worker_token(config)
    listen = read_address(server.listen, "server.listen")
    http = read_address(server.http, "server.http") if server.http else None
    tls = read_server_tls(config.tls, wall_clock())
    clock = SystemClock()
    journal = Journal(clock)
    parts.callback(journal.close)
    journal.start()
    telemetry = Telemetry()
    failed = asyncio.Event()

    nurseries: list[Nursery] = []
    listener = _listener(journal, failed, nurseries)

    gate = Gate(config.auth, clock, tell=journal, count=telemetry.auth_refused)
    addresses = [address for address in (listen, http) if address is not None]
    for warning in check_exposure(addresses, is_open=gate.is_open, has_tls=tls is not None):
        journal(Tell("exposed", (("warning", warning),)))
    here = host(parts, _hosting(config, listener, telemetry, gate))
    here.desk.inspect = partial(
        look_inside, here.driver, lambda: journal.recent, lambda: telemetry.render()[0].decode(errors="replace")
    )
    _watch_streams(here, telemetry)
    defining = _Defining(here, config)
    if here.shared is None:
        # Nobody needs to be told to ask elsewhere, and who comes second should hear that before it opens a port.
        await begin(parts, here)
    port = await _serve_grpc(parts, here, gate, listen, tls, journal, telemetry)
    http_port = await _serve_http(parts, here, gate, http, config, telemetry) if http is not None else 0
    grpc_url = f"{'grpcs' if tls else 'grpc'}://{Address(listen.host, port)}"
    http_url = f"{'https' if tls else 'http'}://{Address(http.host, http_port)}" if http is not None else ""
    here.driver.who = Candidate(
        here.driver.who.name, _advertised(grpc_url, server.advertise), _advertised(http_url, server.advertise)
    )
    if here.shared is not None:
        _warn_of_loopback(here.driver.who, journal)
        await begin(parts, here)
    if here.driver.is_leader:
        await defining.settled()
    for each in beside:
        each.found(grpc_url, journal)
    worker = await _local_worker(parts, here, config, journal) if with_worker else None
    if config.spawners:
        nurseries.append(start_nursery(parts, here, config, journal, telemetry.spawned))
    return Service(here, grpc_url, http_url, worker, failed)


def _hosting(config: Config, listener: Listener, telemetry: Telemetry, gate: Gate) -> Hosting:
    """What the settings say about the coordinator."""
    server = config.server
    return Hosting(
        folder=server.data,
        limits=server.limits,
        listener=listener,
        keep_ms=server.keep_ms,
        blobs=server.blobs,
        task_retries=server.max_task_retries,
        fan_out_max=server.fan_out_max,
        climb_rule=ClimbRule(server.climb_rule),
        telemetry=telemetry,
        refused=gate.refused,
        readable=readable(config.queries.tables, config.queries.folders),
        has_socket=gate.is_open,
        streams=folders_by_tenant(config.streams.folders),
        sharing=sharing_of(config, wall_clock()),
    )


def _watch_streams(here: Host, telemetry: Telemetry) -> None:
    """Streams for metrics, as they were a few seconds ago: whoever asks for metrics waits for no disk."""
    streams = here.desk.streams
    telemetry.streams = lambda: streams.seen
    here.driver.on_reign("streams", streams.keep_looking)


def _listener(journal: Journal, failed: asyncio.Event, nurseries: list[Nursery]) -> Listener:
    """Who hears what the coordinator has to say: the journal of everything, spawners of what nobody can do.

    Spawners can only be made when it is known where the coordinator is; until then there are none.
    """

    def hear(said: Tell | Escalate) -> None:
        journal(said)
        if isinstance(said, Tell) and said.what == "coordinator.failed":
            failed.set()
        elif isinstance(said, Escalate):
            for nursery in nurseries:
                nursery.heard(said)

    return hear


def _advertised(url: str, host: str) -> str:
    """What others are told: an address of ours that is none from elsewhere is replaced by this machine's name."""
    if not url:
        return ""
    scheme, _, rest = url.partition("://")
    address = read_address(rest, "server.listen")
    if not host and address.is_everywhere:
        host = socket.gethostname()
    return f"{scheme}://{Address(host or address.host, address.port)}"


def _check_worker_token(config: Config) -> None:
    """A worker beside a coordinator that follows works for another one, and is asked for its token there."""
    auth = config.auth
    if config.server.store and auth.asks_for_tokens and auth.worker_token is None and not auth.worker_token_file:
        text = "the worker of this coordinator has no token for the times when another one leads"
        hint = "Set ROTA_EXECUTOR_TASK_BEARER_TOKEN, or run `rota server` and workers of their own."
        raise Refused("config.value", text, hint, path="auth.worker_token")


def _warn_of_loopback(who: Candidate, journal: Journal) -> None:
    """Whoever is sent to this address from another machine is sent to their own."""
    address = read_address(who.grpc.partition("://")[2], "server.listen")
    if address.is_loopback:
        text = f"others are told that this coordinator is at {who.grpc}, which only this machine can reach"
        hint = "Listen on an address that other machines reach, or set server.advertise."
        journal(Tell("advertised", (("warning", f"{text}. {hint}"),), Level.WARNING))


class _Defining:
    """Puts what the file defines at the beginning of every reign. `done` is set after the first time, well or not."""

    def __init__(self, here: Host, config: Config) -> None:
        self.done = asyncio.Event()
        self.trouble: Exception | None = None
        self._driver = here.driver
        self._definitions = config.definitions
        # Of a front end that is started beside the coordinator.
        self._builds = config.builds if config.builds.listen else None
        here.driver.on_reign("definitions", self._define)

    async def _define(self) -> None:
        try:
            for command in commands_for(self._definitions, secrets.token_hex(8)):
                await self._driver.ask(command)
            if self._builds is not None:
                await self._define_for_builds(self._builds)
        except Exception as error:
            self.trouble = error
            raise
        finally:
            self.done.set()

    async def _define_for_builds(self, builds: Builds) -> None:
        """Define the queue of builds unless it exists; actions in it fail if no worker could ever run them."""
        there = cast(tuple[Queue, ...], (await self._driver.ask(ListQueues(tenant=DEFAULT_TENANT)))[0])
        check_queues(builds.queue, builds.instances, there)
        if all(queue.name != BUILDS_QUEUE for queue in there):
            queue = builds_queue(DEFAULT_TENANT)
            id = f"builds-{secrets.token_hex(8)}"
            await self._driver.ask(PutQueue(tenant=DEFAULT_TENANT, command_id=CommandId(id), actor="rota", queue=queue))

    async def settled(self) -> None:
        """Wait until it is done; raises what went wrong, unless this coordinator ceased to lead."""
        await self.done.wait()
        if self.trouble is not None and self._driver.is_leader:
            raise self.trouble


async def _local_worker(parts: AsyncExitStack, here: Host, config: Config, journal: Journal) -> WorkerDriver:
    told = config.worker.cluster
    if check_coordinator(told, here.cluster) is not None:
        raise wrong_cluster(told, here.cluster, here.driver.who.grpc, path="worker.cluster")
    logs = ship_logs(parts, here.path, here.blobs, complaint(journal))
    working = working_of(config, here.path, kept_open=(here.lock.fd,))
    if config.builds.listen:
        # The front end beside it is ours, and may know the worker's token.
        listen = read_address(config.builds.listen, "builds.listen")
        own = front_end_url(config, listen, listen.port)
        working = structs.replace(working, build_content=(*working.build_content, own))
    if here.shared is not None:
        # Of several on one machine each has a worker of its own.
        identity = take_identity(here.path / "worker", config.worker.name)
        parts.callback(identity.free)
        working = structs.replace(working, id=identity.id, incarnation=identity.incarnation)
    return await start_resident(parts, here, working, logs, _dial_leader(here, config, journal))


def _dial_leader(here: Host, config: Config, journal: Journal) -> Dial:
    """How a worker beside a coordinator reaches whoever leads: that one, or another as any worker would."""
    near = here.dial()

    async def dial(hear: Callable[[CoordinatorFrame | None], None]) -> Link:
        leader = here.driver.leader
        if here.shared is None or here.driver.is_leader or leader is None or not leader.grpc:
            return await near(hear)
        route = Route(*read_places(structs.replace(config.client, coordinator=leader.grpc), wall_clock()))
        return await dial_to(route, lambda: token_of(config), complain_to(journal))(hear)

    return dial


async def _serve_grpc(
    parts: AsyncExitStack,
    here: Host,
    gate: Gate,
    listen: Address,
    tls: ServerTls | None,
    journal: Journal,
    telemetry: Telemetry,
) -> int:
    server = RpcServer(
        here.desk,
        here.driver,
        gate,
        address=str(listen),
        credentials=server_credentials(tls) if tls is not None else None,
        say=lambda line: journal(Tell("grpc", (("line", line),))),
        count=telemetry.request,
    )
    port = await server.start()
    parts.push_async_callback(server.stop)
    return port


async def _serve_http(
    parts: AsyncExitStack,
    here: Host,
    gate: Gate,
    address: Address,
    config: Config,
    telemetry: Telemetry,
) -> int:
    make_room(CONNECTIONS_MAX)
    service = HttpService(
        here.desk,
        here.driver,
        gate,
        telemetry=telemetry,
        hosts=(address.host,),
        pages=make_pages(gate, here.line(), config.queries.tables),
    )
    server = HttpServer(service, address.host, address.port, server_context(config.tls))
    port = await server.start()
    parts.push_async_callback(server.stop)
    return port
