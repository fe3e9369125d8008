"""Rota in this process: a coordinator, a worker and a client, with their data in a folder or in memory."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

from rota.app import DEFAULT_FOLDER
from rota.app.folder_line import LOOK_EVERY_S, PATIENCE_S, FolderLine
from rota.app.hosting import Hosting, begin, host
from rota.app.lines import NearLine
from rota.app.remote import RemoteOptions, open_line
from rota.app.working import Working, complaint, ship_logs, start_resident
from rota.client.blocking import BlockingClient
from rota.client.deploying import Deployed
from rota.client.line import FarLine
from rota.client.runs import Client
from rota.client.threads import LoopThread
from rota.control.driver import Listener, ignore
from rota.control.recorder import Recorder
from rota.core.bounds import HISTORY_KEPT_MS, INTEGER_MAX, WORKER_SLOTS_MAX, TimeLimits
from rota.core.errors import Refused
from rota.core.graph import check_number
from rota.core.ids import DEFAULT_TENANT
from rota.running import Loading
from rota.wire.deployments import LOAD_S

DAY_MS = 24 * 3_600_000
KEEP_DAYS = HISTORY_KEPT_MS / DAY_MS


class Options(TypedDict, total=False):
    """What may be chosen about an embedded Rota.

    `slots`: how many tasks run at once; as many as there are processors unless told otherwise, and none with 0.
    `threads`: run Python tasks in threads of this process, which is quickest, but one that hangs cannot be killed.
    `memory_mb`: how much address space each process of a task may have; no limit unless told otherwise.
    `keep_days`: how long ended runs stay in history; 30.
    `egress_allow`: networks that are not public and may be asked by `rota.http`, such as `("10.0.0.0/8",)`.
    `blobs`: where large values are kept, a folder or a URL such as `s3://bucket/prefix`; in the data folder.
    `limits`: the ladder of time limits. `listener`: is told what an operator should know.
    `recorder`: is told of each decision of the scheduler and each move of a task, for metrics (`rota.Recorder`).
    """

    slots: int | None
    threads: bool
    memory_mb: int
    keep_days: float
    egress_allow: Sequence[str]
    blobs: str
    limits: TimeLimits | None
    listener: Listener
    recorder: Recorder


class AsyncRota(Client):
    """A client for async programs, which brings its coordinator along or reaches one elsewhere."""

    def __init__(self, line: NearLine | FarLine | FolderLine, parts: AsyncExitStack, *, trust: bool) -> None:
        """`trust`: open pickled results, as is safe where the coordinator is this program's or this folder's own."""
        super().__init__(line, trust=trust)
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
                async with AsyncExitStack() as parts:
                    line = await _start(parts, folder, options)
                    return cls(line, parts.pop_all(), trust=True)
            except Refused as refused:
                if refused.code != "store.held" or time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(LOOK_EVERY_S)

    @classmethod
    async def open(cls, folder: str | os.PathLike[str] = DEFAULT_FOLDER) -> Self:
        """Reach a folder's runs: through the process that holds it, or by reading them if none does.

        Reading holds nothing. The first command holds the folder, without a worker, until this is closed.
        """
        path = Path(folder)
        if not (path / "rota.db").exists():
            raise Refused(
                "store.missing",
                f"there is no data in {path}",
                "Start something with `rota run`, or name the folder. A coordinator with a shared store is named with"
                " --coordinator.",
            )
        async with AsyncExitStack() as parts:
            line = FolderLine(path, _hold)
            parts.push_async_callback(line.close)
            await line.connect()
            return cls(line, parts.pop_all(), trust=True)

    @classmethod
    async def connect(cls, url: str | None = None, **options: Unpack[RemoteOptions]) -> Self:
        """Reach a coordinator elsewhere: `grpc://host:port`, or `grpcs://host:port` for TLS.

        Without a URL it is where the variable `ROTA_COORDINATOR` says; `RemoteOptions` says what else may be chosen.
        """
        async with AsyncExitStack() as parts:
            line = await open_line(url, DEFAULT_TENANT, **options)
            parts.push_async_callback(line.close)
            return cls(line, parts.pop_all(), trust=options.get("trust", False))

    @property
    def is_host(self) -> bool:
        """Whether no other process is spoken to: the coordinator is in this one, or a folder is only read."""
        return self.line.is_alone if isinstance(self.line, FolderLine) else isinstance(self.line, NearLine)

    async def deploy(
        self,
        path: str | os.PathLike[str],
        *,
        strict: bool = False,
        timeout_s: float = LOAD_S,
        env: Mapping[str, str] | None = None,
    ) -> list[Deployed]:
        """Deploy the workflows of a Python file, or of all files in a folder, with the code they need.

        Raises `DeployFailed` if any cannot be; the others are deployed, unless it has to be all or nothing
        (`strict`). `timeout_s` is how long each file may take to load, `env` what it finds in its environment.
        """
        if not os.fspath(path):
            raise Refused("field.value", "the path is empty", "Name a file, or a folder: this one is `.`.", path="PATH")
        # Most programs deploy nothing, and it takes a while to load.
        from rota.kinds.workflow.deployment import prepare

        prepared = await prepare(Path(path), timeout_s=timeout_s, env=env)
        return await self.deploy_all(prepared.workflows, prepared.broken, prepared.bundle, strict=strict)

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
        """Reach a folder's runs; see `AsyncRota.open`."""
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

    @property
    def is_host(self) -> bool:
        """Whether no other process is spoken to; see `AsyncRota.is_host`."""
        return self._rota.is_host

    def deploy(
        self,
        path: str | os.PathLike[str],
        *,
        strict: bool = False,
        timeout_s: float = LOAD_S,
        env: Mapping[str, str] | None = None,
    ) -> list[Deployed]:
        """Deploy the workflows of a Python file, or of all files in a folder; see `AsyncRota.deploy`."""
        return self._thread.call(self._rota.deploy(path, strict=strict, timeout_s=timeout_s, env=env))

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


async def _start(parts: AsyncExitStack, folder: str | os.PathLike[str] | None, options: Options) -> NearLine:
    """Start a coordinator, and a worker unless there are to be no slots; a line to it."""
    listener = options.get("listener", ignore)
    hosting = Hosting(
        folder=folder,
        limits=options.get("limits") or TimeLimits(),
        listener=listener,
        keep_ms=round(options.get("keep_days", KEEP_DAYS) * DAY_MS),
        blobs=options.get("blobs", ""),
        recorder=options.get("recorder"),
    )
    here = host(parts, hosting)
    await begin(parts, here)
    logs = ship_logs(parts, here.path, here.blobs, complaint(listener))
    slots = options.get("slots")
    if slots != 0:
        working = Working(
            folder=here.path,
            slots=slots or 0,
            threads=options.get("threads", False),
            memory_mb=options.get("memory_mb", 0),
            egress_allow=options.get("egress_allow", ()),
            limits=hosting.limits,
            kept_open=(here.lock.fd,),
        )
        await start_resident(parts, here, working, logs)
    return here.line()


async def _hold(parts: AsyncExitStack, folder: Path) -> NearLine:
    return await _start(parts, folder, {"slots": 0})


def _check(options: Options) -> None:
    slots = options.get("slots")
    if slots is not None:
        check_number(slots, 0, WORKER_SLOTS_MAX, "slots")
    check_number(options.get("memory_mb", 0), 0, INTEGER_MAX >> 20, "memory_mb")
    if options.get("keep_days", KEEP_DAYS) < 0:
        raise Refused("field.value", "history cannot be kept for less than no time", path="keep_days")
