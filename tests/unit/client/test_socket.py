"""The socket of a folder: nonsense, somebody who never reads, and whose it is."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from rota.api import socket as module
from rota.api.socket import SOCKET
from rota.client.connection import SocketConnection
from rota.core.errors import Unavailable
from rota.core.questions import ListWorkers
from rota.core.records import Story
from rota.wire.requests import LENGTH_BYTES, Request, Watch, pack_message, read_response
from rota.wire.sockets import PATH_BYTES_MAX, short_path
from tests.unit.client.ways import TENANT, Connection, SocketBench, served


def test_what_is_not_understood_is_answered_under_its_number(tmp_path: Path):
    async def play(bench: SocketBench, connection: Connection) -> None:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / SOCKET))
        content = msgspec.msgpack.encode([8, {"type": "OfTomorrow"}])
        writer.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        response = read_response(await reader.readexactly(length))
        assert response.number == 8
        assert response.trouble is not None
        assert response.trouble.code == "field.type"
        writer.write((1 << 31).to_bytes(LENGTH_BYTES, "big") + b"\x92\x09" + bytes(64))
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        response = read_response(await reader.readexactly(length))
        assert response.number == 9
        assert response.trouble is not None
        assert (response.trouble.code, response.trouble.retry_after_ms) == ("field.size", 0), "it is not repeated"
        writer.close()
        assert await connection.ask(ListWorkers(tenant=TENANT)) == ()

    served(SocketBench, tmp_path, play)


def test_whoever_never_reads_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "UNREAD_BYTES_MAX", 100_000)

    async def play(bench: SocketBench, connection: Connection) -> None:
        host = bench.host
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

    served(SocketBench, tmp_path, play)


def test_nobody_there_is_said(tmp_path: Path):
    async def use() -> None:
        with pytest.raises(Unavailable, match="nobody answers at"):
            await SocketConnection.open(tmp_path / SOCKET, TENANT)

    asyncio.run(use())


def test_the_socket_is_for_its_owner_and_replaces_one_that_was_left_behind(tmp_path: Path):
    (tmp_path / SOCKET).write_text("left behind")

    async def play(bench: SocketBench, connection: Connection) -> None:
        assert (tmp_path / SOCKET).stat().st_mode & 0o777 == 0o600

    served(SocketBench, tmp_path, play)


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
