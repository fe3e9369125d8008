"""A coordinator in this process, with its data in a folder or in memory: what every way to run one has in common."""

import asyncio
import atexit
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from rota import __version__
from rota.api.auth import ANY_TENANT, Principal, Role
from rota.api.desk import Desk
from rota.api.desk import ignore as count_nothing
from rota.api.socket import SocketServer
from rota.app.clocks import SystemClock
from rota.app.garbage import keep_collecting
from rota.app.homes import check_own, find_mark, mark_home, own_mark
from rota.app.lines import NearLine
from rota.app.survivors import RunnersLock, forget_residents, residents
from rota.control.driver import CoordinatorDriver, Listener, ignore
from rota.core.bounds import HISTORY_KEPT_MS, TASK_RETRIES, TimeLimits
from rota.core.commands import ForgetWorker
from rota.core.errors import Refused, Unavailable
from rota.core.ids import DEFAULT_TENANT, Millis
from rota.core.questions import ListWorkers, WorkerView
from rota.ports import Blobs, Candidate, Store
from rota.stores.blobs import open_blobs
from rota.stores.memory import MemoryStore
from rota.stores.sqlite import SqliteStore, held
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.wire.requests import ServiceView
from rota.worker.driver import Dial

if TYPE_CHECKING:
    # Its library takes a tenth of a second to import, which an embedded coordinator need not wait for.
    from rota.control.telemetry import Telemetry

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
    telemetry: "Telemetry | None" = None
    refused: Callable[[Refused], None] = count_nothing
    # Whoever may open the socket in the folder is asked for nothing, so a coordinator that asks for tokens has none.
    has_socket: bool = True


class Host(Struct, frozen=True):
    """A coordinator that reigns, and what belongs to it."""

    path: Path
    clock: SystemClock
    driver: CoordinatorDriver
    blobs: Blobs
    desk: Desk
    # What supervisors keep open until nothing is left of what they started.
    lock: RunnersLock

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


async def host(parts: AsyncExitStack, hosting: Hosting) -> Host:
    """Start a coordinator; `parts` stops it. Raises `store.held` if another process has the folder."""
    clock = SystemClock()
    path = _make_folder(hosting.folder, parts)
    store = _open_store(path if hosting.folder is not None else None, parts)
    driver = CoordinatorDriver(
        store,
        hosting.limits,
        clock,
        who=Candidate(f"{socket.gethostname()}:{os.getpid()}"),
        listener=hosting.listener,
        keep_ms=hosting.keep_ms,
        telemetry=hosting.telemetry,
    )
    driver.machine.task_retries = hosting.task_retries
    parts.push_async_callback(driver.stop)
    driver.start()
    await _win(driver, store, path)
    lock = RunnersLock(path)
    parts.callback(lock.free)
    if await lock.take():
        await _strike_off(driver, path)
    place = hosting.blobs or str(path / "blobs")
    blobs = open_blobs(place)
    home = await _settle(hosting, path, blobs, place)
    service = ServiceView(version=__version__, blobs=place, home=home)
    desk = Desk(driver, blobs, service, hosting.refused, hosting.listener)
    if hosting.folder is not None:
        if hosting.has_socket:
            server = SocketServer(path, LOCAL, desk)
            parts.push_async_callback(server.stop)
            await server.start()
        collecting = asyncio.create_task(
            keep_collecting(store, blobs, home, path, clock, hosting.listener), name="rota-garbage"
        )
        parts.push_async_callback(_end, collecting)
    return Host(path, clock, driver, blobs, desk, lock)


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


async def _win(driver: CoordinatorDriver, store: Store, path: Path) -> None:
    if await driver.reigns():
        return
    if isinstance(store, SqliteStore):
        raise held(path)
    raise Unavailable("leader.none", f"the coordinator of {path} could not start")


async def _strike_off(driver: CoordinatorDriver, path: Path) -> None:
    """Forget the workers of this folder's last holders: they lived in those processes, and nothing of them is left.

    What they had not finished can be granted at once, instead of when their silence has lasted long enough.
    """
    for past in residents(path):
        workers, _ = await driver.ask(ListWorkers(tenant=past.serves))
        assert isinstance(workers, tuple), "workers are listed in a tuple"
        known = {(each.tenant, each.id, each.incarnation) for each in cast(tuple[WorkerView, ...], workers)}
        if (past.tenant, past.id, past.incarnation) in known:
            name = f"forget-{past.incarnation}-{secrets.token_hex(4)}"
            await driver.ask(ForgetWorker(tenant=past.tenant, command_id=name, actor="rota", worker=past.id))
    forget_residents(path)


async def _settle(hosting: Hosting, path: Path, blobs: Blobs, place: str) -> str:
    """Make sure that the blobs are ours alone; the mark that says so."""
    if hosting.folder is None and hosting.blobs:
        # What is in memory removes nothing, so others like it may be there too, and would find a mark left behind by
        # one that was killed. Where a folder's coordinator is, it would lose what that one does not know of.
        await check_own(blobs, "", place)
        return ""
    # Those in the folder are the folder's, also if it was put together from a backup.
    home = own_mark(path, await find_mark(blobs) if not hosting.blobs else "")
    await mark_home(blobs, home, place)
    return home


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
