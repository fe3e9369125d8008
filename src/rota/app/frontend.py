"""A front end for builds: the Remote Execution API in a process of its own, for a coordinator elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rota.api.reapi.action_cache import ActionCache
from rota.api.reapi.bytestream import ByteStream
from rota.api.reapi.capabilities import Capabilities
from rota.api.reapi.content import ContentStorage
from rota.api.reapi.desks import Desks
from rota.api.reapi.driver import BacklogDriver
from rota.api.reapi.execution import Execution, read_result
from rota.api.reapi.ongoing import Conclusion, Ongoing
from rota.api.reapi.operations import Operations
from rota.api.reapi.results import Results
from rota.api.reapi.server import ReapiServer
from rota.api.reapi.trees import Trees
from rota.api.tokens import Gate, check_exposure, count_nothing
from rota.app.beside import front_end_url
from rota.app.clocks import SystemClock, wall_clock
from rota.app.journal import Journal
from rota.client.line import FarLine
from rota.client.rpc import RpcConnection
from rota.config import Config, read_address, read_server_tls
from rota.control.events import Tell
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.kinds.build.queue import BUILDS_QUEUE, check_queues
from rota.ports import ActionResults, Checked, Content, ContentLost
from rota.stores.blobs import open_blobs
from rota.stores.cas import ContentBounds, open_content, open_results
from rota.wire.builds import BUBBLEWRAP, NONE, SANDBOX, decode_result
from rota.wire.places import read_places, server_credentials
from rota.wire.reapi import remote_execution_pb2 as pb
from rota.wire.routes import Route

if TYPE_CHECKING:
    from rota.app.measuring import Measuring

LISTEN = "127.0.0.1:8980"
# How long a start waits for the coordinator to list its queues.
QUEUES_S = 5.0
# The least time between two messages to a coordinator. A message and a commit cost more there than an action does, so
# in a build of quick actions these share them; an action that comes alone is told of at once.
PACE_S = 0.005


class FrontEnd(Struct, frozen=True):
    """Where it is reached, and where its content is."""

    url: str
    folder: Path
    # Where its metrics are; empty if they are nowhere.
    http: str = ""


async def start_front_end(parts: AsyncExitStack, config: Config) -> FrontEnd:
    """Start a front end as the settings say; `parts` stops it."""
    builds = config.builds
    listen = read_address(builds.listen or LISTEN, "builds.listen")
    tls = read_server_tls(config.tls, wall_clock())
    clock = SystemClock()
    journal = Journal(clock)
    parts.callback(journal.close)
    journal.start()
    measuring = _measuring(config)
    gate = Gate(config.auth, clock, tell=journal, count=measuring.calls.auth_refused if measuring else count_nothing)
    addresses = [listen] if measuring is None else [listen, measuring.address]
    for warning in check_exposure(addresses, is_open=gate.is_open, has_tls=tls is not None):
        journal(Tell("exposed", (("warning", warning),)))
    folder = Path(builds.data or Path(config.server.data, "builds"))
    content, kept = await _open_stores(parts, config, folder, clock)
    trees = Trees(content)
    sandbox = sandbox_of(config)
    results = Results(content, kept, trees, sandbox=sandbox)

    def say(line: str) -> None:
        journal(Tell("builds", (("line", line),)))

    def failed(what: str, error: Exception) -> Refused:
        text = f"{type(error).__name__}: {error}"
        journal(Tell("request.failed", (("request", what[:200]), ("error", text[:1000]))))
        return Refused("service.failed", "the front end met an error of its own", "Its journal says more.")

    where = _Where()
    desks = Desks(_lines(config), content, clock, say, where=where.url, queues=builds.instances, queue=builds.queue)
    parts.push_async_callback(desks.close)
    desks.keep = _keeper(results, content, say)
    requires = ((SANDBOX, sandbox),) if sandbox else ()
    execution = Execution(desks, content, results, trees, requires=requires)
    services = (
        Capabilities(can_execute=True, instances=desks.instances),
        ContentStorage(content, trees, desks.instances),
        ByteStream(content, desks.instances),
        ActionCache(results, desks.instances),
        execution,
        Operations(desks, execution),
    )
    credentials = server_credentials(tls) if tls is not None else None
    counted = {"count": measuring.calls.request} if measuring is not None else {}
    server = ReapiServer(services, gate, failed, addresses=[str(listen)], credentials=credentials, say=say, **counted)
    (port,) = await server.start()
    parts.push_async_callback(server.stop)
    where.at = front_end_url(config, listen, port)
    await _look_after_own(config, gate, desks)
    if measuring is None:
        return FrontEnd(where.at, folder)
    shown = await measuring.show(parts, config, gate, server, desks=desks, results=results, content=content)
    return FrontEnd(where.at, folder, shown)


async def _look_after_own(config: Config, gate: Gate, desks: Desks) -> None:
    """From the start on, also if no client comes back: runs of the tenant whose token this process has, or needs none.

    Those of others are looked after from when somebody comes with a token for them.
    """
    token = "" if config.auth.token is None else config.auth.token.reveal().strip()
    if gate.is_open or token:
        backlog = await desks.open(token, gate.admit(token or None).acting_tenant)
        named = (config.builds.queue, *config.builds.instances.values())
        if any(name != BUILDS_QUEUE for name in named):
            await _check_queues(config, backlog)


async def _check_queues(config: Config, backlog: BacklogDriver) -> None:
    """Refuse queues that are not defined, if a coordinator is there to say so."""
    try:
        async with asyncio.timeout(QUEUES_S):
            there = await backlog.queues()
    except (Refused, Unavailable, TimeoutError):
        return
    check_queues(config.builds.queue, config.builds.instances, there)


def sandbox_of(config: Config) -> str:
    """How actions of this front end are walled off; empty if they are not."""
    asked = config.builds.sandbox or config.worker.build_sandbox
    return "" if asked == NONE else BUBBLEWRAP


async def _open_stores(
    parts: AsyncExitStack, config: Config, folder: Path, clock: Callable[[], Millis]
) -> tuple[Content, ActionResults]:
    """What a front end keeps, in its folder."""
    builds = config.builds
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    blobs = open_blobs(builds.blobs or str(folder / "blobs"))
    bounds = ContentBounds(bytes_max=builds.content_gb << 30)
    content = await open_content(folder / "content", blobs, clock=clock, bounds=bounds)
    parts.push_async_callback(content.close)
    kept = await open_results(folder / "results", clock=clock, bytes_max=builds.results_mb << 20)
    parts.push_async_callback(kept.close)
    return content, kept


async def check_content(config: Config) -> Checked:
    """Read all content of a front end that is not running, and drop what is damaged. Refuses if it runs."""
    folder = Path(config.builds.data or Path(config.server.data, "builds"))
    if not folder.is_dir():
        raise Refused("config.value", f"there is no folder {folder}", "Say which with --data.", path="builds.data")
    async with AsyncExitStack() as parts:
        content, _ = await _open_stores(parts, config, folder, SystemClock())
        return await content.check()


def _measuring(config: Config) -> "Measuring | None":
    """Who counts, if anybody wants to know."""
    if not config.builds.http:
        return None
    from rota.app.measuring import Measuring  # it takes a while to load, and clients wait for who is started again

    return Measuring(read_address(config.builds.http, "builds.http"))


class _Where:
    """The address that workers are told. It is known when the port is."""

    at = ""

    def url(self) -> str:
        return self.at


def _lines(config: Config) -> Callable[[str, str], Awaitable[FarLine]]:
    """How a caller's line to the coordinator is opened, with the caller's own token."""
    route = Route(*read_places(config.client, wall_clock()))

    async def open_line(token: str, tenant: str) -> FarLine:
        async def dial() -> RpcConnection:
            return await RpcConnection.open(route, token, tenant, pace_s=PACE_S)

        return FarLine(tenant, dial)

    return open_line


def _keeper(
    results: Results, content: Content, say: Callable[[str], None]
) -> Callable[[str, Ongoing, Conclusion], Awaitable[None]]:
    """Writes the action cache when an end has been accepted; whatever is wrong with a result, its client is told."""

    async def keep(tenant: str, ongoing: Ongoing, end: Conclusion) -> None:
        if end.result is None or not await _is_cacheable(content, tenant, ongoing):
            return
        try:
            build = decode_result(end.result)
            if build.status or build.exit_code:
                return
            result, _ = await read_result(content, tenant, end.result, ongoing.queued_at)
            await results.keep(tenant, ongoing.work.instance, ongoing.work.action, result, end.fence)
        except (Refused, ContentLost, msgspec.MsgspecError) as error:
            say(f"the result of {ongoing.run} was not kept: {error}")

    return keep


async def _is_cacheable(content: Content, tenant: str, ongoing: Ongoing) -> bool:
    """Whether others may be given the result; an action that nobody can read any more says nothing."""
    work = ongoing.work
    try:
        raw = work.action_bytes or await content.get(tenant, work.action)
    except ContentLost:
        return False
    # It was read when it was accepted.
    action = await asyncio.to_thread(pb.Action.FromString, raw) if len(raw) > 1 << 20 else pb.Action.FromString(raw)
    return not action.do_not_cache
