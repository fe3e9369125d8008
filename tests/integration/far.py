"""A coordinator that listens on a port, in a thread of its own, and workers that reach it over the network."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rota.api.auth import Principal, Role
from rota.api.desk import Desk
from rota.api.rpc import RpcServer
from rota.app.clocks import SystemClock
from rota.app.inspecting import look_inside
from rota.client.threads import LoopThread
from rota.control.driver import CoordinatorDriver
from rota.core.bounds import TimeLimits
from rota.core.errors import Refused
from rota.core.model import Capacity
from rota.ports import Candidate
from rota.stores.blobs import open_blobs
from rota.wire.places import Place
from rota.wire.requests import ServiceView
from rota.wire.routes import Route
from rota.wire.work import COMMAND, PYTHON
from rota.worker.bundles.driver import BundleCache
from rota.worker.driver import Dial, WorkerDriver
from rota.worker.logs.driver import LogShipper
from rota.worker.logs.folder import LogFolder
from rota.worker.remote.driver import dial_to
from rota.worker.runners.command import CommandRunner
from rota.worker.runners.process import ProcessRunner
from rota.worker.supervisor.driver import Supervisor
from rota.worker.sync import SyncMachine
from tests.unit.client.ways import place_at
from tests.unit.control.sharing import Shared

TENANT = "default"
SERVICE = ServiceView(version="0", blobs="", home="")
ADMIN, WORKER, READER, ELSEWHERE = "admin-token", "worker-token", "reader-token", "worker-of-another"


class Tokens:
    """Whom each token stands for; a test may change it while it is used."""

    def __init__(self) -> None:
        self.version = 0
        self.told: list[str] = []
        self.known = {
            ADMIN: Principal("admin", Role.ADMIN, TENANT),
            WORKER: Principal("worker", Role.WORKER, "*"),
            READER: Principal("reader", Role.READER, TENANT),
            ELSEWHERE: Principal("stranger", Role.WORKER, "another"),
        }

    def revoke(self, token: str) -> None:
        del self.known[token]
        self.version += 1

    def refused(self, refused: Refused, *, peer: str = "") -> None:
        self.told.append(refused.code)

    def admit(self, token: str | None, tenant: str | None = None, *, peer: str = "") -> Principal:
        if token is None:
            raise Refused("auth.missing", "this call carries no token")
        who = self.known.get(token.removeprefix("Bearer "))
        if who is None:
            raise Refused("auth.wrong", "this token is not accepted")
        if tenant is not None and who.tenant not in ("*", tenant):
            raise Refused("auth.tenant", f"{who.name} may not act for tenant {tenant!r}")
        return who


class Service:
    """A coordinator with a port. It may be stopped and started again on the same one."""

    def __init__(
        self, folder: Path, credentials: Any = None, limits: TimeLimits | None = None, beside: "Service | None" = None
    ) -> None:
        """Of those beside each other one leads."""
        self.folder = folder
        self.tokens = Tokens()
        self.lines: list[str] = []
        self.counted: list[tuple[str, str, str]] = []
        self.store = Shared(beside.store.disk if beside is not None else None)
        self.clock = SystemClock()
        self.limits = limits or TimeLimits()
        self.port = 0
        self.scheme = "grpc" if credentials is None else "grpcs"
        self.thread = beside.thread if beside is not None else LoopThread()
        self._credentials = credentials
        self._workers: list[tuple[WorkerDriver, Supervisor, LogShipper]] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}"

    async def start(self) -> None:
        """Listen."""
        self.driver = CoordinatorDriver(self.store, self.limits, self.clock, who=Candidate("a test"), shared=self.store)
        desk = Desk(self.driver, open_blobs(self.folder / "blobs"))
        desk.service = SERVICE
        desk.inspect = partial(look_inside, self.driver)
        self.server = RpcServer(
            desk,
            self.driver,
            self.tokens,
            address=f"localhost:{self.port}",
            credentials=self._credentials,
            say=self.lines.append,
            count=lambda *what: self.counted.append(what),
        )
        self.port = await self.server.start()
        self.driver.who = Candidate(f"port {self.port}", self.url)
        self.driver.start()
        await self.driver.reigns()

    async def stop(self) -> None:
        """Hang up and free the port."""
        await self.server.stop()
        await self.driver.stop()

    def restart(self) -> None:
        """A new life on the same port and data."""
        self.thread.call(self.stop())
        self.thread.call(self.start())

    def add_worker(
        self, said: Callable[[str], None], token: Callable[[], str] = lambda: WORKER, place: Place | None = None
    ) -> None:
        """A worker that dials the port and runs tasks in processes."""
        dial = dial_to(Route(place or place_at(self.url)), token, lambda cause, text: said(text))
        self.thread.call(self._add_worker(dial))

    async def _add_worker(self, dial: Dial) -> None:
        blobs = open_blobs(self.folder / "blobs")
        logs = LogShipper(blobs, LogFolder(self.folder / f"worker-{len(self._workers)}"))
        supervisor = Supervisor(logs)
        bundles = BundleCache(blobs, self.folder / "bundles")
        calls = ProcessRunner(supervisor, blobs, self.folder, bundles)
        runners = {PYTHON: calls, COMMAND: CommandRunner(supervisor, calls, bundles)}
        number = str(len(self._workers))
        machine = SyncMachine(
            TENANT, f"far-{number}", f"life-{number}", Capacity(slots=2, kinds=tuple(runners)), self.limits
        )
        worker = WorkerDriver(machine, dial, runners, self.clock, raise_it)
        self._workers.append((worker, supervisor, logs))
        worker.start()

    async def stop_workers(self) -> None:
        """Kill what is left, and hang up."""
        for worker, supervisor, logs in self._workers:
            await worker.stop()
            await supervisor.close()
            await logs.close(10)
        self._workers.clear()


def raise_it(error: BaseException) -> None:
    """A worker must not fail."""
    raise error


@contextmanager
def service(
    folder: Path, credentials: Any = None, limits: TimeLimits | None = None, beside: Service | None = None
) -> Iterator[Service]:
    """A coordinator on a free port, until the end of the block."""
    one = Service(folder, credentials, limits, beside)
    try:
        one.thread.call(one.start())
        yield one
    finally:
        one.thread.call(one.stop_workers())
        one.thread.call(one.stop())
        if beside is None:
            one.thread.stop()


def shout(port: int, content: bytes) -> None:
    """Send bytes to a port, and wait until it hangs up."""
    with socket.create_connection(("localhost", port), timeout=20) as one, suppress(OSError):
        one.sendall(content)
        one.shutdown(socket.SHUT_WR)
        while one.recv(1 << 16):
            pass


@asynccontextmanager
async def proxy(port: int) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Another port that leads to this one; while the event is not set nothing passes, and nobody is told."""
    flows = asyncio.Event()
    flows.set()
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(1 << 16):
            await flows.wait()
            writer.write(content)

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("localhost", port)
        writers.extend((writer, there_writer))
        tasks.append(asyncio.create_task(pass_on(reader, there_writer)))
        tasks.append(asyncio.create_task(pass_on(there_reader, writer)))

    server = await asyncio.start_server(between, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], flows
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()
