"""The socket of a folder, from both ends: answers, watching, nonsense, and somebody who never reads."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api import socket as module
from rota.api.auth import Principal, Role
from rota.api.desk import Desk
from rota.api.socket import SOCKET, SocketServer
from rota.client.connection import SocketConnection as Connection
from rota.client.watching import Interrupted
from rota.core.commands import CancelRun
from rota.core.errors import Refused, Unavailable
from rota.core.questions import ListWorkers
from rota.core.records import Story
from rota.stores.blobs import open_blobs
from rota.stores.memory import MemoryStore
from rota.wire.requests import LENGTH_BYTES, LogPiece, ReadLog, Request, pack_message, read_response
from rota.wire.sockets import PATH_BYTES_MAX, short_path

TENANT = "t"


async def no_logs(request: ReadLog) -> LogPiece:
    return LogPiece(b"", "")


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


def served(folder: Path, play: Callable[[Host, Connection, SocketServer], Any]) -> None:
    async def use() -> None:
        host = Host()
        server = SocketServer(folder, Principal("local", Role.OWNER, TENANT), Desk(host, open_blobs(folder / "blobs")))
        await server.start()
        connection = await Connection.open(folder / SOCKET, TENANT)
        try:
            async with asyncio.timeout(20):
                await play(host, connection, server)
        finally:
            await connection.close()
            await server.stop()
        assert not (folder / SOCKET).exists()

    asyncio.run(use())


def story(number: int, run: str = "r", tenant: str = TENANT) -> Story:
    return Story(tenant, run, 1, number, 5, b"")


def test_questions_and_trouble_come_back(tmp_path: Path):
    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()
        host.answer = lambda request: "r"
        assert await connection.ask(CancelRun(tenant=TENANT, command_id="c", run="r")) == "r"
        host.answer = lambda request: Refused("run.unknown", "none")
        with pytest.raises(Refused, match="none"):
            await connection.ask(ListWorkers(tenant=TENANT))
        host.answer = lambda request: Unavailable("leader.none", "not now.")
        with pytest.raises(Unavailable, match="not now"):
            await connection.ask(ListWorkers(tenant=TENANT))
        with pytest.raises(Refused, match="may not act for tenant 'another'"):
            await connection.ask(ListWorkers(tenant="another"))

    served(tmp_path, play)


def test_an_error_of_the_host_is_answered_and_not_waited_for(tmp_path: Path):
    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        host.answer = lambda request: KeyError("ours")
        with pytest.raises(Unavailable, match="the coordinator met an error: KeyError: 'ours'"):
            await connection.ask(ListWorkers(tenant=TENANT))
        host.answer = lambda request: ()
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(tmp_path, play)


def test_many_questions_are_under_way_at_once(tmp_path: Path):
    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        gate = asyncio.Event()
        host.answer = lambda request: gate
        slow = [asyncio.create_task(connection.ask(ListWorkers(tenant=TENANT))) for _ in range(10)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*slow) == [()] * 10

    served(tmp_path, play)


def test_watching_tells_what_concerns_the_run_until_it_ends(tmp_path: Path):
    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        watching = connection.watch("r")
        await connection.ask(ListWorkers(tenant=TENANT))
        (watcher,) = host.watchers
        watcher([story(0), story(0, "other"), story(0, tenant="u")])
        watcher([story(0, "other")])
        watcher([story(1)])
        assert [(await anext(watching)).number, (await anext(watching)).number] == [0, 1]
        watching.close()
        await connection.ask(ListWorkers(tenant=TENANT))
        assert host.watchers == []

    served(tmp_path, play)


def test_watching_that_is_interrupted_there_is_interrupted_here(tmp_path: Path):
    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        watching = connection.watch("r")
        await connection.ask(ListWorkers(tenant=TENANT))
        host.watchers[0](None)
        with pytest.raises(Interrupted):
            await anext(watching)
        again = connection.watch("r")
        await server.stop()
        with pytest.raises(Interrupted):
            await anext(again)
        assert connection.is_lost
        with pytest.raises(Interrupted):
            await anext(connection.watch("r"))
        with pytest.raises(Unavailable, match="the coordinator hung up"):
            await connection.ask(ListWorkers(tenant=TENANT))

    served(tmp_path, play)


def test_a_client_that_leaves_is_forgotten(tmp_path: Path):
    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        other = await Connection.open(tmp_path / SOCKET, TENANT)
        other.watch("r")
        await other.ask(ListWorkers(tenant=TENANT))
        assert len(host.watchers) == 1
        await other.close()
        while host.watchers:
            await asyncio.sleep(0)
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(tmp_path, play)


def test_what_is_not_understood_is_answered_under_its_number(tmp_path: Path):
    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        content = msgspec.msgpack.encode([8, {"type": "OfTomorrow"}])
        writer.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        response = read_response(await reader.readexactly(length))
        assert response.number == 8
        assert response.trouble is not None
        assert response.trouble.code == "field.type"
        writer.write((1 << 31).to_bytes(LENGTH_BYTES, "big"))
        assert await reader.read() == b"", "what is too long is hung up on"
        writer.close()
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(tmp_path, play)


def test_whoever_never_reads_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "UNREAD_BYTES_MAX", 100_000)

    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        from rota.wire.requests import Watch

        _, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a stream's transport reads
        writer.write(pack_message(Request(1, Watch(TENANT, "r"))))
        while not host.watchers:
            await asyncio.sleep(0)
        large = Story(TENANT, "r", 1, 0, 5, b"x" * 100_000)
        count = 0
        while host.watchers:
            host.watchers[0]([large])
            count += 1
            await asyncio.sleep(0)
        assert count < 100
        writer.close()
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(tmp_path, play)


def test_nobody_there_is_said(tmp_path: Path):
    async def use() -> None:
        with pytest.raises(Unavailable, match="nobody answers at"):
            await Connection.open(tmp_path / SOCKET, TENANT)

    asyncio.run(use())


def test_the_socket_is_for_its_owner_and_replaces_one_that_was_left_behind(tmp_path: Path):
    (tmp_path / SOCKET).write_text("left behind")

    async def play(host: Host, connection: Connection, server: SocketServer) -> None:
        assert (tmp_path / SOCKET).stat().st_mode & 0o777 == 0o600

    served(tmp_path, play)


def test_a_path_is_short_enough_however_deep_it_is(tmp_path: Path):
    short = Path("/run/rota.sock")
    with short_path(short) as name:
        assert name == "/run/rota.sock"
    deep = tmp_path.joinpath(*["folder"] * 20)
    deep.mkdir(parents=True)
    (deep / SOCKET).write_text("here")
    with short_path(deep / SOCKET) as name:
        assert len(name) <= PATH_BYTES_MAX < len(str(deep / SOCKET))
        assert Path(name).read_text() == "here"
