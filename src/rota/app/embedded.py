"""Rota in this process: a coordinator, a worker and a client, with their data in a folder or in memory."""

import asyncio
import atexit
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack, cast

from rota.api.auth import ANY_TENANT, Principal, Role
from rota.api.desk import Desk
from rota.api.socket import SOCKET, SocketServer
from rota.app.garbage import keep_collecting
from rota.app.lines import NearLine
from rota.app.remote import RemoteOptions, open_line
from rota.app.survivors import RunnersLock
from rota.client.blocking import BlockingClient, LoopThread
from rota.client.connection import SocketConnection
from rota.client.line import FarLine
from rota.client.runs import Client
from rota.control.driver import CoordinatorDriver, Listener, ignore
from rota.control.events import Tell
from rota.core.bounds import HISTORY_KEPT_MS, INTEGER_MAX, WORKER_SLOTS_MAX, TimeLimits
from rota.core.commands import ForgetWorker
from rota.core.errors import Refused, Unavailable
from rota.core.graph import check_number
from rota.core.ids import Millis
from rota.core.model import Capacity
from rota.core.questions import ListWorkers, WorkerView
from rota.ports import Blobs, Store
from rota.running import Loading
from rota.stores.blobs import open_blobs
from rota.stores.memory import MemoryStore
from rota.stores.sqlite import SqliteStore, held
from rota.wire.frames import CoordinatorFrame, WorkerFrame
from rota.wire.work import COMMAND, HTTP, PYTHON
from rota.worker.driver import Dial, WorkerDriver
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.properties import describe
from rota.worker.runners import Runner
from rota.worker.runners.command import CommandRunner
from rota.worker.runners.egress import EgressPolicy
from rota.worker.runners.http import HttpRunner
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.thread import ThreadRunner
from rota.worker.supervisor.driver import Supervisor
from rota.worker.sync import SyncMachine

DEFAULT_FOLDER = ".rota"
DEFAULT_TENANT = "default"
DAY_MS = 24 * 3_600_000
KEEP_DAYS = HISTORY_KEPT_MS / DAY_MS
WORKER_PREFIX = "local-"
# How long a folder that is busy is waited for: another command may be looking at it for a moment.
PATIENCE_S = 2.0
LOOK_EVERY_S = 0.05


class SystemClock:
    """Wall time at the start, monotonic from there: it never runs back and never jumps."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> Millis:
        return (time.monotonic_ns() + self._offset) // 1_000_000


class Options(TypedDict, total=False):
    """What may be chosen about an embedded Rota.

    `slots`: how many tasks run at once; as many as there are processors unless told otherwise, and none with 0.
    `threads`: run Python tasks in threads of this process, which is quickest, but one that hangs cannot be killed.
    `memory_mb`: how much address space each process of a task may have; no limit unless told otherwise.
    `keep_days`: how long ended runs stay in history; 30.
    `egress_allow`: networks that are not public and may be asked by `rota.http`, such as `("10.0.0.0/8",)`.
    `blobs`: where large values are kept, a folder or a URL such as `s3://bucket/prefix`; in the data folder.
    `limits`: the ladder of time limits. `listener`: is told what an operator should know.
    """

    slots: int | None
    threads: bool
    memory_mb: int
    keep_days: float
    egress_allow: Sequence[str]
    blobs: str
    limits: TimeLimits | None
    listener: Listener


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


class AsyncRota(Client):
    """A client for async programs, which brings its coordinator along or reaches one elsewhere."""

    def __init__(self, line: NearLine | FarLine, parts: AsyncExitStack) -> None:
        super().__init__(line)
        self._parts = parts

    @classmethod
    async def embedded(cls, folder: str | os.PathLike[str] | None = None, **options: Unpack[Options]) -> Self:
        """Start a coordinator and a worker here; `Options` says what may be chosen.

        Without a folder everything is in memory and ends with the program. A folder has one coordinator: another
        process that holds it is named in the refusal.
        """
        _check(options)
        if Loading.current:
            raise RuntimeError(
                f"{Loading.current[-1]} starts Rota when it is loaded, and a worker loads it to find its functions. "
                'Put what starts Rota under `if __name__ == "__main__":`.'
            )
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await cls._start(folder, options)
            except Refused as refused:
                if refused.code != "store.held" or time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(LOOK_EVERY_S)

    @classmethod
    async def _start(cls, folder: str | os.PathLike[str] | None, options: Options) -> Self:
        limits = options.get("limits") or TimeLimits()
        listener = options.get("listener", ignore)
        async with AsyncExitStack() as parts:
            clock = SystemClock()
            path = _make_folder(folder, parts)
            store = _open_store(path if folder is not None else None, parts)
            keep_ms = round(options.get("keep_days", KEEP_DAYS) * DAY_MS)
            driver = CoordinatorDriver(store, limits, clock, who=_who(), listener=listener, keep_ms=keep_ms)
            parts.push_async_callback(driver.stop)
            driver.start()
            await _win(driver, store, path)
            lock = RunnersLock(path)
            parts.callback(lock.free)
            if await lock.take():
                await _strike_off(driver)
            blobs = open_blobs(options.get("blobs") or path / "blobs")
            logs = LogShipper(blobs, LogFolder(path), lambda text: listener(Tell("logs.unshipped", (("error", text),))))
            parts.push_async_callback(logs.close, PATIENCE_S)
            logs.start()
            desk = Desk(driver, blobs)
            who = Principal("local", Role.OWNER, ANY_TENANT)
            if folder is not None:
                server = SocketServer(path, who, desk)
                parts.push_async_callback(server.stop)
                await server.start()
                collecting = asyncio.create_task(
                    keep_collecting(store, blobs, path, DEFAULT_TENANT, clock, listener), name="rota-garbage"
                )
                parts.push_async_callback(_end, collecting)
            slots = options.get("slots")
            count = (os.cpu_count() or 1) if slots is None else slots
            if count:
                runners = _runners(path, blobs, count, logs, lock, parts, options)
                machine = _machine(runners, count, limits)
                worker = WorkerDriver(machine, _dial(driver), runners, clock, failing=driver.fail)
                parts.push_async_callback(_leave, worker)
                worker.start()
            else:
                # Whoever only looks wants to see what a program that was killed has left behind.
                with suppress(TimeoutError):
                    await asyncio.wait_for(logs.settled(), PATIENCE_S)
            return cls(NearLine(desk, driver, who, DEFAULT_TENANT), parts.pop_all())

    @classmethod
    async def open(cls, folder: str | os.PathLike[str] = DEFAULT_FOLDER) -> Self:
        """Reach a folder's runs: through the process that holds it; if none does, by holding it without a worker."""
        path = Path(folder)
        if not (path / "rota.db").exists():
            raise Refused(
                "store.missing", f"there is no data in {path}", "Start something with `rota run`, or name the folder."
            )
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await cls._start(path, {"slots": 0})
            except Refused as refused:
                if refused.code != "store.held":
                    raise
            try:
                return await cls._connect(path)
            except Unavailable:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(LOOK_EVERY_S)

    @classmethod
    async def _connect(cls, path: Path) -> Self:
        async with AsyncExitStack() as parts:
            line = FarLine(DEFAULT_TENANT, lambda: SocketConnection.open(path / SOCKET, DEFAULT_TENANT))
            await line.connect()
            parts.push_async_callback(line.close)
            return cls(line, parts.pop_all())

    @classmethod
    async def connect(cls, url: str | None = None, **options: Unpack[RemoteOptions]) -> Self:
        """Reach a coordinator elsewhere: `grpc://host:port`, or `grpcs://host:port` for TLS.

        Without a URL it is where the variable `ROTA_COORDINATOR` says; `RemoteOptions` says what else may be chosen.
        """
        async with AsyncExitStack() as parts:
            line = await open_line(url, DEFAULT_TENANT, **options)
            parts.push_async_callback(line.close)
            return cls(line, parts.pop_all())

    async def close(self) -> None:
        """Hang up; or stop the worker (what it has not finished is returned unspent) and free the folder."""
        await self._parts.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Rota(BlockingClient):
    """A client for ordinary programs, which brings its coordinator along or reaches one elsewhere."""

    def __init__(self, thread: LoopThread, rota: AsyncRota) -> None:
        super().__init__(thread, rota)
        self._rota = rota

    @classmethod
    def embedded(cls, folder: str | os.PathLike[str] | None = None, **options: Unpack[Options]) -> Self:
        """Start a coordinator and a worker here; see `AsyncRota.embedded`."""
        thread = LoopThread()
        try:
            return cls(thread, thread.call(AsyncRota.embedded(folder, **options)))
        except BaseException:
            thread.stop()
            raise

    @classmethod
    def open(cls, folder: str | os.PathLike[str] = DEFAULT_FOLDER) -> Self:
        """Reach a folder's runs, whoever holds it; see `AsyncRota.open`."""
        thread = LoopThread()
        try:
            return cls(thread, thread.call(AsyncRota.open(folder)))
        except BaseException:
            thread.stop()
            raise

    @classmethod
    def connect(cls, url: str | None = None, **options: Unpack[RemoteOptions]) -> Self:
        """Reach a coordinator elsewhere; see `AsyncRota.connect`."""
        thread = LoopThread()
        try:
            return cls(thread, thread.call(AsyncRota.connect(url, **options)))
        except BaseException:
            thread.stop()
            raise

    def close(self) -> None:
        """Hang up; or stop the worker and the coordinator, and free the folder. It may be called twice.

        In a process that was forked from this one it does nothing: what is there is not its own.
        """
        if self._thread.is_ours and not self._thread.loop.is_closed():
            try:
                self._thread.call(self._rota.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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


async def _strike_off(driver: CoordinatorDriver) -> None:
    """Forget the workers of this folder's last holder: they lived in its process, and nothing of it is left.

    What they had not finished can be granted at once, instead of when their silence has lasted long enough.
    """
    workers, _ = await driver.ask(ListWorkers(tenant=DEFAULT_TENANT))
    assert isinstance(workers, tuple), "workers are listed in a tuple"
    for worker in cast(tuple[WorkerView, ...], workers):
        if worker.id.startswith(WORKER_PREFIX):
            name = f"forget-{worker.id}-{worker.incarnation}-{secrets.token_hex(4)}"
            await driver.ask(ForgetWorker(tenant=DEFAULT_TENANT, command_id=name, actor="rota", worker=worker.id))


def _check(options: Options) -> None:
    slots = options.get("slots")
    if slots is not None:
        check_number(slots, 0, WORKER_SLOTS_MAX, "slots")
    check_number(options.get("memory_mb", 0), 0, INTEGER_MAX >> 20, "memory_mb")
    if options.get("keep_days", KEEP_DAYS) < 0:
        raise Refused("field.value", "history cannot be kept for less than no time", path="keep_days")


def _runners(
    path: Path,
    blobs: Blobs,
    slots: int,
    logs: LogShipper,
    lock: RunnersLock,
    parts: AsyncExitStack,
    options: Options,
) -> dict[str, Runner]:
    supervisor = Supervisor(logs, kept_open=(lock.fd,))
    parts.push_async_callback(supervisor.close)
    memory = options.get("memory_mb", 0) << 20
    if options.get("threads", False):
        python: Runner = ThreadRunner(blobs, path, slots=slots)
    else:
        python = ProcessRunner(supervisor, blobs, path, memory_bytes_max=memory)
    return {
        PYTHON: python,
        COMMAND: CommandRunner(supervisor, memory_bytes_max=memory),
        HTTP: HttpRunner(blobs, path, logs, EgressPolicy(options.get("egress_allow", ()))),
    }


def _who() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _dial(driver: CoordinatorDriver) -> Dial:
    async def dial(hear: Callable[[CoordinatorFrame | None], None]) -> NearLink:
        return NearLink(driver, hear)

    return dial


def _machine(runners: dict[str, Runner], slots: int, limits: TimeLimits) -> SyncMachine:
    capacity = Capacity(slots=slots, kinds=tuple(runners), properties=describe())
    return SyncMachine(DEFAULT_TENANT, f"{WORKER_PREFIX}{socket.gethostname()}", secrets.token_hex(8), capacity, limits)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


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
