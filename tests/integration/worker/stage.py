"""A supervisor and runners in a folder of their own, and ways to see what is left of what they started."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid1

from msgspec.structs import replace

from rota.core.decide.leases import Input, Offer
from rota.stores.blobs import open_blobs
from rota.wire.names import attempt_name
from rota.wire.values import pack, unpack
from rota.wire.work import CommandWork, OutputOf, ParamOf, PythonWork, Value, decode_value, encode_work
from rota.worker.accounts import Account
from rota.worker.bundles.driver import BundleCache
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.runners.command import CommandRunner
from rota.worker.runners.pool import Recycling
from rota.worker.runners.process import ProcessRunner
from rota.worker.supervisor import trees
from rota.worker.supervisor.driver import LOG_BYTES_MAX, Supervisor
from rota.worker.sync import AttemptOver
from tests.integration.playing import played

ROOT = Path(__file__).parents[3]
# What makes a program that is started somebody else's.
AS_NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
TASKS = "tests.integration.worker.tasks"
PATIENCE_S = 60


def python_work(function: str, *args: object, **kwargs: object) -> PythonWork:
    """A call of one of our tasks; arguments may be values, OutputOf or ParamOf."""
    return PythonWork(
        function=function if ":" in function else f"{TASKS}:{function}",
        path=str(ROOT),
        args=tuple(argument(value) for value in args),
        kwargs=tuple((name, argument(value)) for name, value in kwargs.items()),
    )


def argument(value: object) -> Any:
    return value if isinstance(value, OutputOf | ParamOf) else Value(*pack(value))


def value_of(over: AttemptOver) -> Any:
    """What a successful attempt returned, if it was small."""
    assert over.outcome == "success", over.error
    assert over.result is not None
    value = decode_value(over.result)
    assert isinstance(value, Value)
    return unpack(value.encoding, value.content, trusted=True)


class Stage:
    """Everything a worker needs to run attempts."""

    def __init__(
        self, folder: Path, *, log_bytes_max: int, recycling: Recycling, memory_bytes_max: int, run_as: Account | None
    ) -> None:
        self.folder = folder
        self.mark = f"TEST_MARK={uuid1()}"
        self.blobs = open_blobs(folder / "blobs")
        self.shipper = LogShipper(self.blobs, LogFolder(folder))
        self.supervisor = Supervisor(self.shipper, log_bytes_max=log_bytes_max, run_as=run_as)
        name, _, value = self.mark.partition("=")
        env = {name: value}
        self.bundles = BundleCache(self.blobs, folder / "bundles", run_as)
        self.process = ProcessRunner(
            self.supervisor,
            self.blobs,
            folder,
            self.bundles,
            env=env,
            recycling=recycling,
            memory_bytes_max=memory_bytes_max,
        )
        self.command = CommandRunner(
            self.supervisor, self.process, self.bundles, env=env, memory_bytes_max=memory_bytes_max
        )
        self._fence = 0

    def offer(self, work: PythonWork | CommandWork, **changes: Any) -> Offer:
        self._fence += 1
        offer = Offer(
            tenant="acme",
            run="run/1",
            task=0,
            task_id="extract[0]",
            fence=self._fence,
            attempt=1,
            kind="python" if isinstance(work, PythonWork) else "command",
            work=encode_work(work),
            params=b"",
            timeout_ms=0,
            lease_ms=30_000,
        )
        return replace(offer, **changes)

    async def run(self, offer: Offer) -> AttemptOver:
        """Run an attempt, and wait until its log is where readers find it."""
        over = await (self.process if offer.kind == "python" else self.command).run(offer)
        await self.shipper.settled()
        return over

    async def call(self, function: str, *args: object, **changes: Any) -> AttemptOver:
        return await self.run(self.offer(python_work(function, *args), **changes))

    async def sh(self, line: str, *, work: dict[str, Any] | None = None, **changes: Any) -> AttemptOver:
        return await self.run(self.offer(CommandWork(shell=line, **(work or {})), **changes))

    def log(self, fence: int | None = None) -> bytes:
        """What an attempt has printed, as it was shipped."""
        return self._chunks(attempt_name("acme", "run/1", "extract[0]", 1, fence or self._fence))

    def log_of(self, offer: Offer) -> bytes:
        return self._chunks(attempt_name(offer.tenant, offer.run, offer.task_id, offer.attempt, offer.fence))

    def _chunks(self, attempt: str) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((self.folder / "blobs" / attempt / "log").glob("*")))

    def unshipped(self) -> list[str]:
        """Logs that still lie in the worker's folder."""
        return self.shipper.folder.left()

    def left(self) -> list[int]:
        """The living processes that belong to attempts, or are waiting for one."""
        return trees.marked(self.mark)

    async def left_but_warm(self) -> list[int]:
        """The same, after every process that only waits has been ended."""
        await self.process.close()
        return self.left()

    def fifo(self, name: str = "fifo") -> str:
        path = self.folder / name
        os.mkfifo(path)
        return str(path)


async def told(fifo: str) -> None:
    """Wait until a task says that it is where the test wants it."""
    pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        await readable(pipe)
        assert os.read(pipe, 64) == b"ready"
    finally:
        os.close(pipe)


async def readable(fd: int) -> None:
    """Wait until there is something to read, in a way that can be cancelled."""
    ready = asyncio.Event()
    asyncio.get_running_loop().add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        asyncio.get_running_loop().remove_reader(fd)


async def ended(pid: int) -> None:
    """Wait until a process that is not our child is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    await readable(pidfd)
    os.close(pidfd)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@asynccontextmanager
async def open_stage(
    folder: Path,
    *,
    log_bytes_max: int = LOG_BYTES_MAX,
    recycling: Recycling | None = None,
    memory_bytes_max: int = 0,
    run_as: Account | None = None,
) -> AsyncIterator[Stage]:
    stage = Stage(
        folder,
        log_bytes_max=log_bytes_max,
        recycling=recycling or Recycling(ahead=0),
        memory_bytes_max=memory_bytes_max,
        run_as=run_as,
    )
    try:
        yield stage
    finally:
        await stage.process.close()
        await stage.supervisor.close()
        await stage.shipper.close(PATIENCE_S)
        assert stage.left() == [], "nothing is left when everything was closed"


def staged(**options: Any) -> Callable[[Callable[[Stage], Awaitable[None]]], Callable[[Path], None]]:
    """Run an asynchronous test on a stage of its own."""

    def decorate(test: Callable[[Stage], Awaitable[None]]) -> Callable[[Path], None]:
        async def play(folder: Path) -> None:
            async with asyncio.timeout(PATIENCE_S), open_stage(folder, **options) as stage:
                await test(stage)

        return played(test, play)

    return decorate


def group(task: str, *results: bytes | None) -> Input:
    return Input(task, results, is_group=True)
