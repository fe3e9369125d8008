"""A scripted coordinator, and the ways by which a client in another process reaches one."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rota.api.auth import Principal, Role
from rota.api.desk import Desk
from rota.api.rpc import RpcServer
from rota.api.socket import SOCKET, SocketServer
from rota.client.connection import SocketConnection
from rota.client.rpc import RpcConnection
from rota.config.settings import ClientSide
from rota.control.events import Escalate, Tell
from rota.core.errors import Refused
from rota.core.model import PriorityClass
from rota.core.questions import RunView
from rota.core.records import Story
from rota.core.states import RunState
from rota.stores.blobs import open_blobs
from rota.stores.memory import MemoryStore
from rota.wire.frames import WorkerFrame
from rota.wire.places import Place, read_places
from rota.wire.requests import ServiceView
from rota.wire.routes import Route

TENANT = "t"
PATIENCE_S = 20
ADMIN = Principal("local", Role.ADMIN, TENANT)

Connection = SocketConnection | RpcConnection


def place_at(url: str, **files: str) -> Place:
    """A coordinator there, spoken to with these certificates."""
    return read_places(ClientSide(coordinator=url, **files), time.time_ns() // 1_000_000)[0]


class Host:
    """Whoever answers, scripted."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.answer: Callable[[Any], Any] = lambda request: ()
        self.watchers: list[Callable[[list[Story] | None], None]] = []

    async def ask(self, request: Any) -> tuple[object, object]:
        value = self.answer(request)
        if isinstance(value, Exception):
            raise value
        if isinstance(value, asyncio.Event):
            await value.wait()
            value = ()
        return value, None

    def watch(self, watcher: Callable[[list[Story] | None], None]) -> Callable[[], None]:
        self.watchers.append(watcher)
        return lambda: self.watchers.remove(watcher)

    def check_leads(self) -> None:
        """Here is nobody else."""


class NoStreams:
    """No worker comes here."""

    cluster = ""

    def open_stream(self, outlet: Any) -> int:
        raise AssertionError("no worker was expected")

    def hear(self, stream: int, frame: WorkerFrame) -> None:
        raise AssertionError("no worker was expected")

    def close_stream(self, stream: int) -> None:
        raise AssertionError("no worker was expected")

    def check_leads(self) -> None:
        """Here is nobody else."""

    def on_change(self, changed: Callable[[], None]) -> None:
        """Nothing changes."""


class OpenGate:
    """Lets everybody in."""

    version = 0

    def refused(self, refused: Refused, *, peer: str = "") -> None:
        raise AssertionError("nobody is refused")

    def admit(self, token: str | None, tenant: str | None = None, *, peer: str = "") -> Principal:
        return ADMIN


class Office:
    """A scripted host and the desk in front of it."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.told: list[Tell | Escalate] = []
        self.desk = Desk(host, open_blobs(folder / "blobs"), listener=self.told.append)
        self.desk.service = ServiceView(version="0", blobs="", home="")


class Bench(Office, ABC):
    """One way to a scripted host, open at both ends."""

    server: SocketServer | RpcServer

    @abstractmethod
    async def serve(self) -> None:
        """Open the host's end."""

    @abstractmethod
    async def connect(self) -> Connection:
        """Open the client's."""


class SocketBench(Bench):
    """By the socket in a folder."""

    async def serve(self) -> None:
        self.server = SocketServer(self.folder, ADMIN, self.desk)
        await self.server.start()

    async def connect(self) -> Connection:
        return await SocketConnection.open(self.folder / SOCKET, TENANT)


class RpcBench(Bench):
    """By gRPC."""

    async def serve(self) -> None:
        self.lines: list[str] = []
        self.counted: list[tuple[str, str, str]] = []
        self.server = RpcServer(
            self.desk,
            NoStreams(),
            OpenGate(),
            say=self.lines.append,
            count=lambda *what: self.counted.append(what),
        )
        self.port = await self.server.start()

    async def connect(self) -> Connection:
        return await RpcConnection.open(Route(place_at(f"grpc://127.0.0.1:{self.port}")), "", TENANT)


def served(kind: type[Bench], folder: Path, play: Callable[[Any, Connection], Awaitable[None]]) -> None:
    """Play something with a host that is served, and one connection to it."""

    async def use() -> None:
        bench = kind(Host(), folder)
        await bench.serve()
        connection = await bench.connect()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await play(bench, connection)
        finally:
            await connection.close()
            await bench.server.stop()

    asyncio.run(use())


def story(number: int, run: str = "r", tenant: str = TENANT) -> Story:
    return Story(tenant, run, 1, number, 5, b"")


def run_view(state: RunState) -> RunView:
    """A run that stands so."""
    names = dict.fromkeys(("name", "kind", "graph", "reason", "fault", "schedule", "parent"), "")
    instants = dict.fromkeys(("created_at", "started_at", "ended_at", "slot_at"), 0)
    return RunView(
        tenant=TENANT,
        id="r",
        state=state,
        priority=PriorityClass.NORMAL,
        paused=False,
        params=b"",
        total=1,
        tasks={},
        story=0,
        **names,  # pyright: ignore[reportArgumentType] - all of them are text
        **instants,  # pyright: ignore[reportArgumentType] - all of them are numbers
    )
