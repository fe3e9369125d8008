"""A worker in this process: its runners, its logs, its stream to whoever leads."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from rota.app.clocks import wall_clock
from rota.app.hosting import Host
from rota.app.survivors import Resident, note_resident
from rota.config import Config
from rota.config.addresses import read_address
from rota.config.settings import ClientSide, Tls
from rota.config.tls import read_client_tls, read_server_tls, server_context
from rota.control.driver import Listener
from rota.control.events import Tell
from rota.core.bounds import TimeLimits
from rota.core.errors import Refused
from rota.core.ids import DEFAULT_TENANT, Incarnation, Millis, WorkerId
from rota.core.model import Capacity, Pairs
from rota.ports import Blobs
from rota.stores.blobs import store_of_blobs
from rota.wire.builds import BUBBLEWRAP, BUILD, NONE, SANDBOX
from rota.wire.queries import ENGINE_MEMORY, QUERY
from rota.wire.work import COMMAND, HTTP, PYTHON
from rota.worker.accounts import find_account
from rota.worker.bundles.driver import BundleCache
from rota.worker.driver import Dial, WorkerDriver
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.properties import Values, cpu_count, describe, memory_kb
from rota.worker.runners import Runner
from rota.worker.runners.builds.runner import CACHE_BYTES_MAX, BuildRunner, Sources, why_no_builds
from rota.worker.runners.builds.sandbox import AUTO, find_sandbox
from rota.worker.runners.command import CommandRunner
from rota.worker.runners.egress import EgressPolicy
from rota.worker.runners.http import HttpRunner
from rota.worker.runners.pool import Recycling, check_reachable
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.queries.exchange import BYTES_MAX, Exchanges
from rota.worker.runners.queries.keys import Keyring, read_stores
from rota.worker.runners.queries.runner import (
    LISTEN,
    QueryRunner,
    Reach,
    check_reach,
    query_properties,
    why_no_queries,
)
from rota.worker.runners.thread import ThreadRunner
from rota.worker.supervisor.driver import Supervisor
from rota.worker.sync import SyncMachine

if TYPE_CHECKING:
    from rota.wire.places import Place

# What a process of queries may keep in memory for the next fragment: their data is gone, but not given back at once.
QUERY_GROWTH_BYTES = 1 << 30
# The engine's allocator (mimalloc) would give memory back after a second, and the next fragment have it zeroed again: a
# tenth of what queries cost. Processes that grow too large, or that nobody needs for a while, are ended instead.
QUERY_ENV = {"MIMALLOC_PURGE_DELAY": "-1"}
# Of the memory that a slot has, the engine plans with this much; it does not count everything that it holds.
ENGINE_SHARE = 0.6
# Address space that a process of queries reserves and does not use: arenas of the allocator, and stacks of threads.
RESERVED_BYTES = 4 << 30

# How long work that was handed back is waited for to be acknowledged, and logs to be shipped.
PATIENCE_S = 2.0


class Working(Struct, frozen=True, kw_only=True):
    """What may be chosen about a worker; `rota.config.settings.WorkerSide` says what each means."""

    folder: Path
    id: str = f"local-{socket.gethostname()}"
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))
    slots: int = 0
    threads: bool = False
    memory_mb: int = 0
    run_as: str = ""
    egress_allow: Sequence[str] = ()
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    properties: Mapping[str, Values] = field(default_factory=dict[str, Values])
    property_commands: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    limits: TimeLimits = TimeLimits()
    # How actions of builds are walled off, how much of their content is kept, and who is given the worker's token.
    build_sandbox: str = AUTO
    # What actions see of the host besides its programs.
    build_paths: tuple[str, ...] = ()
    build_cache_mb: int = CACHE_BYTES_MAX >> 20
    build_content: tuple[str, ...] = ()
    token: Callable[[], str] = str
    # Where tasks of queries put what they pass on, where others fetch it, and how much it may be.
    exchange_folder: str = ""
    exchange_listen: str = str(LISTEN)
    exchange_mb: int = BYTES_MAX >> 20
    # The buckets that queries may use, with the keys in the worker's environment.
    query_stores: tuple[str, ...] = ()
    # The certificates with which front ends are spoken to, and what is shown to other workers.
    certificates: ClientSide = ClientSide()
    tls: Tls = Tls()
    # Whose the worker is; those whose work it takes are `tenants`.
    tenant: str = DEFAULT_TENANT
    # The cluster that it belongs to.
    cluster: str = ""
    # Descriptors that a supervisor has open until nothing is left of what it started.
    kept_open: tuple[int, ...] = ()

    @property
    def slots_in_all(self) -> int:
        """As many as there are processors that this process may use, unless told otherwise."""
        return self.slots or cpu_count()


def check_threads(config: Config) -> None:
    """Refuse to run user code beside tokens; asked before anything is started or anybody is dialled."""
    if config.worker.threads and (config.auth.asks_for_tokens or config.auth.worker_token_file):
        text = "tasks in threads share the memory of this process, and with it its tokens"
        raise Refused("config.value", text, "Run them in processes: threads = false.", path="worker.threads")


def working_of(config: Config, folder: Path, *, kept_open: tuple[int, ...]) -> Working:
    """A worker as the settings say."""
    settings = config.worker
    return Working(
        folder=folder,
        slots=settings.slots,
        threads=settings.threads,
        memory_mb=settings.memory_mb,
        run_as=settings.run_as,
        egress_allow=settings.egress_allow,
        tenants=settings.tenants,
        queues=settings.queues,
        properties=settings.properties,
        property_commands=settings.property_commands,
        build_sandbox=settings.build_sandbox,
        build_paths=settings.build_paths,
        build_cache_mb=settings.build_cache_mb,
        build_content=settings.build_content,
        exchange_folder=settings.exchange_folder,
        exchange_listen=settings.exchange_listen,
        exchange_mb=settings.exchange_mb,
        query_stores=settings.query_stores,
        token=lambda: token_of(config),
        certificates=config.client,
        tls=config.tls,
        limits=config.server.limits,
        tenant=config.client.tenant,
        kept_open=kept_open,
    )


def token_of(config: Config) -> str:
    """What a worker presents, as it is now: a file may have been changed since."""
    name = config.auth.worker_token_file
    if name:
        try:
            return Path(name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            what = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "is not text"
            raise Refused("config.file", f"the token file {name} {what}", path="auth.worker_token_file") from None
    return config.auth.worker_token.reveal().strip() if config.auth.worker_token is not None else ""


def complaint(listener: Listener) -> Callable[[str], None]:
    """How an operator hears of logs that cannot be stored."""
    return lambda text: listener(Tell("logs.unshipped", (("error", text),)))


def ship_logs(parts: AsyncExitStack, folder: Path, blobs: Blobs, complain: Callable[[str], None]) -> LogShipper:
    """Have logs shipped from a folder, also those that an earlier worker has left there."""
    logs = LogShipper(blobs, LogFolder(folder), complain)
    parts.push_async_callback(logs.close, PATIENCE_S)
    logs.start()
    return logs


async def start_worker(
    parts: AsyncExitStack,
    working: Working,
    blobs: Blobs,
    logs: LogShipper,
    dial: Dial,
    clock: Callable[[], Millis],
    failing: Callable[[BaseException], None],
    tell: Listener,
) -> WorkerDriver:
    """Start a worker; `parts` stops it, and what it has not finished is handed back."""
    account = find_account(working.run_as) if working.run_as else None
    supervisor = Supervisor(logs, kept_open=working.kept_open, run_as=account)
    parts.push_async_callback(supervisor.close)
    await check_reachable(supervisor)
    bundles = BundleCache(blobs, working.folder / "bundles", account)
    parts.push_async_callback(bundles.close)
    memory = working.memory_mb << 20
    if working.threads:
        python: Runner = ThreadRunner(blobs, working.folder, slots=working.slots_in_all)
    else:
        # As many as may be at work: those that are over would be started again with the next burst.
        kept = Recycling(idle_max=working.slots_in_all)
        env = engine_memory(memory, memory_kb() << 10, working.slots_in_all)
        python = ProcessRunner(
            supervisor, blobs, working.folder, bundles, env=env, recycling=kept, memory_bytes_max=memory
        )
    runners: dict[str, Runner] = {
        PYTHON: python,
        COMMAND: CommandRunner(supervisor, python, bundles, memory_bytes_max=memory),
        HTTP: HttpRunner(blobs, working.folder, logs, EgressPolicy(working.egress_allow), python),
    }
    builds = await _builds(working, supervisor, logs, clock, tell)
    if builds is not None:
        runners[BUILD] = builds
    queries = _queries(parts, working, supervisor, blobs, bundles, tell)
    if queries is not None:
        runners[QUERY] = queries
    capacity = Capacity(
        slots=working.slots_in_all,
        kinds=tuple(runners),
        properties=await asyncio.to_thread(_properties, working, builds is not None, queries is not None),
        tenants=working.tenants,
        queues=working.queues,
    )
    machine = SyncMachine(
        working.tenant,
        WorkerId(working.id),
        Incarnation(working.incarnation),
        capacity,
        working.limits,
        working.cluster,
    )
    worker = WorkerDriver(machine, dial, runners, clock, failing=failing)
    parts.push_async_callback(_leave, worker)
    worker.start()
    return worker


async def _builds(
    working: Working,
    supervisor: Supervisor,
    logs: LogShipper,
    clock: Callable[[], Millis],
    tell: Listener,
) -> BuildRunner | None:
    """What carries out actions of builds, if all is installed that this takes."""
    lacking = why_no_builds()
    if lacking:
        tell(Tell("builds.off", (("why", lacking),)))
        return None
    try:
        sandbox = await asyncio.to_thread(find_sandbox, working.build_sandbox, working.build_paths)
    except Refused as refused:
        if working.build_sandbox != AUTO:
            raise
        tell(Tell("builds.off", (("why", f"{refused}"),)))
        return None
    runner = BuildRunner(
        supervisor,
        logs,
        working.folder / "builds",
        Sources(lambda url: _front_end(working, url), lambda url: token_for(working, url)),
        clock,
        worker=working.id,
        sandbox=sandbox,
        memory_bytes_max=working.memory_mb << 20,
        cache_bytes_max=working.build_cache_mb << 20,
    )
    runner.start()
    return runner


def query_memory(chosen_bytes: int, machine_bytes: int, slots: int) -> tuple[int, int]:
    """The address space of a process of queries, and the memory that a slot has, of which the engine is told a part.

    The engine counts most of what it holds, not all: without a limit, one query could take the whole machine.
    """
    share = machine_bytes // slots
    if chosen_bytes:
        return chosen_bytes, min(chosen_bytes, share)
    return share + RESERVED_BYTES, share


def engine_memory(chosen_bytes: int, machine_bytes: int, slots: int) -> dict[str, str]:
    """The variable by which a task with SQL in it is told how much its engine may use."""
    _, share = query_memory(chosen_bytes, machine_bytes, slots)
    return {ENGINE_MEMORY: str(int(share * ENGINE_SHARE))}


def _queries(
    parts: AsyncExitStack,
    working: Working,
    supervisor: Supervisor,
    blobs: Blobs,
    bundles: BundleCache,
    tell: Listener,
) -> QueryRunner | None:
    """What runs fragments of queries, if all is installed that this takes."""
    lacking = why_no_queries()
    if lacking:
        tell(Tell("queries.off", (("why", lacking),)))
        return None
    reach = _reach(working)
    check_reach(reach)
    # Processes of their own: tasks in threads cannot be killed, and what others may grow is little for a query.
    memory, share = query_memory(working.memory_mb << 20, memory_kb() << 10, working.slots_in_all)
    growth = max(QUERY_GROWTH_BYTES, share // 4)
    kept = Recycling(ahead=0, idle_max=working.slots_in_all, growth_bytes_max=growth)
    # Those that are given keys are for themselves.
    plain, keyed = (
        ProcessRunner(
            supervisor, blobs, working.folder, bundles, env=QUERY_ENV, recycling=kept, memory_bytes_max=memory
        )
        for _ in range(2)
    )
    for each in (plain, keyed):
        parts.push_async_callback(each.close)
    keyring = Keyring(os.environ, read_stores(working.query_stores, "worker.query_stores"), store_of_blobs(blobs))
    exchanges = Exchanges(
        working.folder / "exchange",
        worker=working.id,
        shared=working.exchange_folder,
        bytes_max=working.exchange_mb << 20,
        run_as=supervisor.run_as,
    )
    return QueryRunner(
        plain,
        exchanges,
        reach=reach,
        memory_bytes=int(share * ENGINE_SHARE),
        keyring=keyring,
        keyed=keyed,
        steps="rota.app.sql.stepped:run",
    )


def _reach(working: Working) -> Reach:
    """How peers reach the worker: with TLS if it has a certificate, unless they are all on this machine."""
    listen = read_address(working.exchange_listen, "worker.exchange_listen")
    tls = structs.replace(working.tls, client_ca="")
    read_server_tls(tls, wall_clock())
    ca = read_client_tls(structs.replace(working.certificates, cert="", key=""), wall_clock()).ca
    return Reach(listen, working.token, None if listen.is_loopback else server_context(tls), ca or b"")


def _properties(working: Working, has_builds: bool, has_queries: bool) -> Pairs:
    """What the worker advertises; of builds and queries only if it runs them and the settings do not say otherwise."""
    found = query_properties() if has_queries else {}
    if has_builds:
        found[SANDBOX] = NONE if working.build_sandbox == NONE else BUBBLEWRAP
    said = {name: value for name, value in found.items() if name not in working.property_commands}
    return describe({**said, **working.properties}, working.property_commands)


def _front_end(working: Working, url: str) -> "Place":
    """Where an address is, and with which certificates it is spoken to."""
    # Whoever runs embedded and builds nothing needs no gRPC, and it takes a while to load.
    from rota.wire.places import read_places

    side = structs.replace(working.certificates, coordinator=url)
    if not url.startswith("grpcs:"):
        side = structs.replace(side, ca="", cert="", key="")
    places = read_places(side, wall_clock())
    if len(places) != 1:
        raise Refused("config.value", "content is at one address", path="content")
    return places[0]


def token_for(working: Working, url: str) -> str:
    """A run names any address that it likes, and a token is only for those that the operator has named."""
    return working.token() if url in working.build_content else ""


async def start_resident(
    parts: AsyncExitStack, here: Host, working: Working, logs: LogShipper, dial: Dial | None = None
) -> WorkerDriver:
    """Start a worker in its coordinator's process; should that be killed, the next one knows that both are gone.

    It works for that coordinator, unless `dial` knows of others.
    """
    working = structs.replace(working, cluster=here.cluster)
    serves = working.tenants[0] if working.tenants else working.tenant
    note_resident(here.path, Resident(working.tenant, working.id, working.incarnation, serves))
    dial = dial or here.dial()
    tell = here.hosting.listener
    return await start_worker(parts, working, here.blobs, logs, dial, here.clock, here.driver.fail, tell)


async def _leave(worker: WorkerDriver) -> None:
    """Hand back what is not finished, so that it costs nothing, then stop."""
    worker.drain(0)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await worker.left.wait()
    except TimeoutError:
        # Nobody acknowledges any more; the leases end by themselves.
        pass
    await worker.stop()
