"""A coordinator in this process: what every way to run one has in common.

Its data is in memory, in a folder that is its own, or in a store that it shares with others, one of which leads.
"""

import asyncio
import atexit
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field, structs

from rota import __version__
from rota.api.analysts import Readable
from rota.api.auth import ANY_TENANT, Principal, Role
from rota.api.desk import Desk
from rota.api.desk import ignore as count_nothing
from rota.api.socket import SocketServer
from rota.api.streams import Streams
from rota.app.clocks import SystemClock, wall_clock
from rota.app.garbage import REST_S, keep_collecting
from rota.app.homes import check_own, find_mark, keep_mark, mark_home
from rota.app.inspecting import look_inside
from rota.app.lines import NearLine
from rota.app.loop_watchdog import LoopWatchdog, PauseLog
from rota.app.shared import Sharing, open_shared
from rota.app.survivors import Resident, RunnersLock, forget_residents, residents
from rota.control.driver import CoordinatorDriver, Listener, ignore
from rota.control.events import Level, Tell
from rota.control.recorder import Recorder
from rota.core.bounds import HISTORY_KEPT_MS, TASK_RETRIES, TimeLimits
from rota.core.cluster import cluster_id
from rota.core.commands import ForgetWorker
from rota.core.errors import Refused, Unavailable
from rota.core.ids import DEFAULT_TENANT, CommandId, Millis, WorkerId
from rota.core.ladder import ClimbRule
from rota.core.questions import ListWorkers, WorkerView
from rota.ports import Blobs, Candidate, SharedStore, Store
from rota.stores.blobs import open_blobs
from rota.stores.memory import MemoryStore
from rota.stores.sqlite import FolderLock, SqliteStore, held, read_identity_file
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.wire.requests import ServiceView
from rota.worker.driver import Dial

if TYPE_CHECKING:
    # Its library takes a tenth of a second to import, which an embedded coordinator need not wait for.
    from rota.control.telemetry import Telemetry

# A database that is being failed over is a replica for a while.
_PASSING = ("store.read_only",)
_PASSING_S = 2.0
# Whoever has the folder may ask for everything in it.
LOCAL = Principal("local", Role.OWNER, ANY_TENANT)


class Hosting(Struct, frozen=True, kw_only=True):
    """What may be chosen about a coordinator. Without a folder everything is in memory and ends with the process."""

    folder: str | os.PathLike[str] | None = None
    limits: TimeLimits = TimeLimits()
    listener: Listener = ignore
    keep_ms: Millis = HISTORY_KEPT_MS
    blobs: str = ""
    task_retries: int = TASK_RETRIES
    # How many sessions a starved task is told to in a cycle (0: all that could claim it), and which tasks climb.
    fan_out_max: int = 0
    climb_rule: ClimbRule = ClimbRule.UNSERVED
    telemetry: "Telemetry | None" = None
    # Is told what is counted, as it happens.
    recorder: Recorder | None = None
    refused: Callable[[Refused], None] = count_nothing
    # Tables, files and folders, here or in buckets, that analysts may read.
    readable: Readable = Readable()
    # Whoever may open the socket in the folder is asked for nothing, so a coordinator that asks for tokens has none.
    has_socket: bool = True
    # Where streams of each tenant are; `streams` in the folder, of the default one, unless it is said.
    streams: Mapping[str, Sequence[Path]] = field(default_factory=dict[str, Sequence[Path]])
    # A store that others use too.
    sharing: Sharing | None = None


class Host(Struct, frozen=True):
    """A coordinator and what belongs to it. It stands for election from `begin` on."""

    path: Path
    clock: SystemClock
    driver: CoordinatorDriver
    # Where the blobs are, as settings name it.
    place: str
    blobs: Blobs
    desk: Desk
    # What supervisors keep open until nothing is left of what they started.
    lock: RunnersLock
    # The store again, if it is shared.
    shared: SharedStore | None
    hosting: Hosting

    @property
    def cluster(self) -> str:
        """The cluster id; empty before `begin`."""
        return self.desk.service.cluster if self.desk.service is not None else ""

    def line(self) -> NearLine:
        """A line for the program that this is in."""
        return NearLine(self.desk, self.driver, LOCAL, DEFAULT_TENANT)

    def dial(self) -> Dial:
        """How a worker in the same process reaches it."""

        async def dial(hear: Callable[[CoordinatorFrame | None], None]) -> NearLink:
            return NearLink(self.driver, hear)

        return dial


class NearLink:
    """A worker's stream to the coordinator in the same process."""

    def __init__(self, driver: CoordinatorDriver, hear: Callable[[CoordinatorFrame | None], None]) -> None:
        self._driver = driver
        self._stream = driver.open_stream(hear)

    def send(self, frame: WorkerFrame) -> None:
        """Say something."""
        self._driver.hear(self._stream, frame)

    def close(self) -> None:
        """Hang up."""
        self._driver.close_stream(self._stream)


def host(parts: AsyncExitStack, hosting: Hosting) -> Host:
    """Put a coordinator together; `parts` takes it apart again."""
    clock = SystemClock()
    path = _make_folder(hosting.folder, parts)
    shared: SharedStore | None = None
    if hosting.sharing is not None:
        place = _shared_blobs(hosting)
        blobs = open_blobs(place)
        store = shared = _open_shared(hosting, hosting.sharing, path, blobs, parts)
    else:
        store = _open_store(path if hosting.folder is not None else None, parts)
        place = hosting.blobs or str(path / "blobs")
        blobs = open_blobs(place)
    driver = CoordinatorDriver(
        store,
        hosting.limits,
        clock,
        who=Candidate(f"{socket.gethostname()}:{os.getpid()}"),
        listener=hosting.listener,
        keep_ms=hosting.keep_ms,
        telemetry=hosting.telemetry,
        shared=shared,
    )
    machine = driver.machine
    machine.task_retries = hosting.task_retries
    machine.wake_settings = structs.replace(
        machine.wake_settings, fan_out_max=hosting.fan_out_max, rule=hosting.climb_rule
    )
    driver.set_recorder(hosting.recorder)
    parts.push_async_callback(driver.stop)
    lock = RunnersLock(path)
    parts.callback(lock.free)
    desk = Desk(driver, blobs, hosting.refused, hosting.listener, hosting.readable)
    desk.streams = Streams(hosting.streams or {DEFAULT_TENANT: (path / "streams",)}, driver, wall_clock)
    return Host(path, clock, driver, place, blobs, desk, lock, shared, hosting)


async def begin(parts: AsyncExitStack, here: Host) -> None:
    """Stand for election. Alone, it is won or `store.held` is raised; among others, this one may follow."""
    hosting, driver = here.hosting, here.driver
    watchdog = LoopWatchdog(PauseLog(hosting.listener))
    watchdog.start()
    parts.callback(watchdog.stop)
    if here.shared is not None:
        if await here.lock.take():
            _strike_off_later(driver, here.path)
        home = await _join(here, here.shared)
    else:
        await _inherit(here)
        driver.start()
        await _win(driver, here.path)
        if await here.lock.take():
            await _strike_off(driver, residents(here.path))
            forget_residents(here.path)
        home = await _settle(here)
    cluster = cluster_id(await driver.store.identity())
    here.desk.service = ServiceView(version=__version__, blobs=here.place, home=home, cluster=cluster)
    if here.desk.inspect is None:
        here.desk.inspect = partial(look_inside, driver)
    if hosting.folder is None:
        return
    if hosting.has_socket and here.shared is None:
        server = SocketServer(here.path, LOCAL, here.desk)
        parts.push_async_callback(server.stop)
        await server.start()
    driver.on_reign(
        "garbage",
        lambda: keep_collecting(
            driver.store,
            here.blobs,
            home,
            here.path,
            here.clock,
            hosting.listener,
            rest_s=REST_S if here.shared is not None else 0.0,
        ),
    )


async def _join(here: Host, shared: SharedStore) -> str:
    """Become one of several coordinators, as soon as their store answers; the mark that all of them leave."""
    home = ""
    while not home:
        try:
            home = await _settle_shared(here, shared)
        except (Refused, Unavailable) as away:
            await asyncio.sleep(_wait_out(here, away))
    here.driver.start()
    try:
        await here.driver.reigns()
    except (Refused, Unavailable) as away:
        # It goes on trying.
        _wait_out(here, away)
    return home


async def _settle_shared(here: Host, shared: SharedStore) -> str:
    """Make sure that store and blobs belong together, before anything is made; the mark that says so."""
    place, mark, found = here.place, await find_mark(here.blobs), await shared.look()
    if mark and not found.identity:
        # Begun anew, it would issue fences again that were issued before.
        text = f"there is nothing in the store, and {place} is of one that was ({mark[:8]}…)"
        hint = "Is it the right one? Restore it from its backup; to begin anew, use another place for blobs."
        raise Refused("store.missing", text, hint, path="server.store")
    if not mark and found.epoch:
        text = f"{place} is empty, and the store knows of results and logs that should be there"
        hint = "Is it mounted here? Name the place that the other coordinators use."
        raise Refused("blobs.elsewhere", text, hint, path="server.blobs")
    home = await shared.identity()
    await mark_home(here.blobs, home, place)
    return home


def _wait_out(here: Host, away: Refused | Unavailable) -> float:
    """How long to wait for a store in trouble that passes; what somebody has to put right is raised."""
    if isinstance(away, Refused) and away.code not in _PASSING:
        raise away
    here.hosting.listener(Tell("store.away", (("error", str(away)),), Level.WARNING))
    return away.retry_after_ms / 1000 if isinstance(away, Unavailable) else _PASSING_S


def _make_folder(folder: str | os.PathLike[str] | None, parts: AsyncExitStack) -> Path:
    if folder is None:
        return _make_passing_folder(parts)
    path = Path(folder).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        what = "is not a folder" if path.exists() else f"cannot be made: {error.strerror}"
        raise Refused("store.missing", f"{path} {what}.", "Name a folder that Rota may write to.") from None
    return path


def _make_passing_folder(parts: AsyncExitStack) -> Path:
    """A folder that ends with us, also if nobody closes us."""
    path, owner = Path(tempfile.mkdtemp(prefix="rota-")), os.getpid()

    def remove() -> None:
        atexit.unregister(remove)
        # Not by a process that was forked from ours and ends before it.
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    parts.callback(remove)
    return path


def _open_store(path: Path | None, parts: AsyncExitStack) -> Store:
    if path is None:
        return MemoryStore()
    store = SqliteStore(path)
    parts.callback(store.close)
    return store


def _shared_blobs(hosting: Hosting) -> str:
    if not hosting.blobs:
        text = "with a shared store, logs and large values must be where every coordinator and worker finds them"
        hint = "Name a folder that all of them have, or a bucket such as s3://bucket/prefix."
        raise Refused("config.value", text, hint, path="server.blobs")
    return hosting.blobs


def _open_shared(hosting: Hosting, sharing: Sharing, path: Path, blobs: Blobs, parts: AsyncExitStack) -> SharedStore:
    # What is in the folder belongs to one process, though the records are elsewhere.
    lock = FolderLock(path)
    if not lock.take("a coordinator with a shared store"):
        raise held(path)
    parts.callback(lock.free)

    def warn(text: str) -> None:
        hosting.listener(Tell("store.crowded", (("warning", text),), Level.WARNING))

    store = open_shared(sharing, blobs, term_ms=hosting.limits.term_ms, warn=warn)
    parts.push_async_callback(store.close)
    return store


async def _win(driver: CoordinatorDriver, path: Path) -> None:
    if await driver.reigns():
        return
    if isinstance(driver.store, SqliteStore):
        raise held(path)
    raise Unavailable("leader.none", f"the coordinator of {path} could not start")


async def _strike_off(driver: CoordinatorDriver, past: Sequence[Resident]) -> None:
    """Forget the workers of this folder's last holders: they lived in those processes, and nothing of them is left.

    What they had not finished can be granted at once, instead of when their silence has lasted long enough.
    """
    for each in past:
        workers, _ = await driver.ask(ListWorkers(tenant=each.serves))
        assert isinstance(workers, tuple), "workers are listed in a tuple"
        known = {(view.tenant, view.id, view.incarnation) for view in cast(tuple[WorkerView, ...], workers)}
        if (each.tenant, each.id, each.incarnation) in known:
            name = f"forget-{each.incarnation}-{secrets.token_hex(4)}"
            await driver.ask(
                ForgetWorker(tenant=each.tenant, command_id=CommandId(name), actor="rota", worker=WorkerId(each.id))
            )


def _strike_off_later(driver: CoordinatorDriver, path: Path) -> None:
    """The same as soon as this coordinator leads, if it ever does; another one waits until their leases are over."""
    past = residents(path)
    forget_residents(path)
    if past:
        driver.on_reign("strike-off", lambda: _strike_off(driver, past))


async def _settle(here: Host) -> str:
    """Make sure that the blobs are ours alone; the mark that says so."""
    hosting = here.hosting
    if hosting.folder is None and hosting.blobs:
        # What is in memory removes nothing, so others like it may be there too, and would find a mark left behind by
        # one that was killed. Where a folder's coordinator is, it would lose what that one does not know of.
        await check_own(here.blobs, "", here.place)
        return ""
    home = await here.driver.store.identity()
    await mark_home(here.blobs, home, here.place)
    keep_mark(here.path, home)
    return home


async def _inherit(here: Host) -> None:
    """Let a store without an identity take that of the blobs in its folder, which was put together from a backup."""
    hosting = here.hosting
    if hosting.folder is not None and not hosting.blobs and not read_identity_file(here.path):
        mark = await find_mark(here.blobs)
        if mark:
            keep_mark(here.path, mark)
