"""A coordinator's socket in its data folder: how other programs of the same user reach an embedded coordinator.

Who may open the file may ask: the socket is readable by its owner only.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rota.core.commands import ClientCommand
from rota.core.errors import Refused, Unavailable
from rota.core.questions import Question
from rota.core.records import Story
from rota.wire.requests import (
    LENGTH_BYTES,
    MESSAGE_BYTES_MAX,
    Request,
    Response,
    Unwatch,
    Watch,
    answered,
    number_of,
    pack_message,
    read_request,
    troubled,
)
from rota.wire.sockets import short_path

SOCKET = "rota.sock"
UNREAD_BYTES_MAX = 2 * MESSAGE_BYTES_MAX


class Asked(Protocol):
    """Whoever answers: the coordinator's driver."""

    async def ask(self, request: Any) -> tuple[object, object]:
        """Carry out a command or answer a question."""
        ...

    def watch(self, watcher: Callable[[list[Story] | None], None]) -> Callable[[], None]:
        """Be told what happened; None when that is not known any more."""
        ...


class SocketServer:
    """Serves the socket of one data folder."""

    def __init__(self, folder: Path, tenant: str, host: Asked) -> None:
        self.path = folder / SOCKET
        self.tenant = tenant
        self._host = host
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[Any], None] = {}

    async def start(self) -> None:
        """Begin to listen. The folder's lock is ours, so a socket that is there was left behind."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(self.path) as name:
                listening.bind(name)
            # Before anybody can connect: nobody listens yet.
            self.path.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._serve, sock=listening)
        except BaseException:
            listening.close()
            raise

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        with suppress(FileNotFoundError):
            self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._clients[task] = None
        connection = Connection(self, writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                if length > MESSAGE_BYTES_MAX:
                    return
                connection.take(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._clients.pop(task, None)
            connection.close()

    async def ask(self, request: ClientCommand | Question) -> object:
        """Ask the coordinator, as this socket's tenant whatever the request says."""
        if request.tenant != self.tenant:
            raise Refused("field.value", f"this socket speaks for tenant {self.tenant!r}", path="tenant")
        return (await self._host.ask(request))[0]

    def watch(self, watcher: Callable[[list[Story] | None], None]) -> Callable[[], None]:
        """Be told what happened."""
        return self._host.watch(watcher)


class Connection:
    """One client of the socket."""

    def __init__(self, server: SocketServer, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._writer = writer
        self._watching: dict[int, Callable[[], None]] = {}
        self._asking: dict[asyncio.Task[None], None] = {}

    def take(self, content: bytes) -> None:
        """A message came."""
        try:
            request = read_request(content)
        except Refused as refused:
            # Whoever waits for the answer must hear of it, though we did not understand the question.
            self._say(troubled(number_of(content), refused))
            return
        match request.body:
            case Watch(run=run):
                self._watch(request.number, run)
            case Unwatch(number=number):
                end = self._watching.pop(number, None)
                if end is not None:
                    end()
            case _:
                task = asyncio.get_running_loop().create_task(self._ask(request))
                self._asking[task] = None
                task.add_done_callback(lambda done: self._asking.pop(done, None))

    async def _ask(self, request: Request) -> None:
        assert isinstance(request.body, ClientCommand | Question), "watching is not asked"
        try:
            self._say(answered(request.number, await self._server.ask(request.body)))
        except (Refused, Unavailable) as trouble:
            self._say(troubled(request.number, trouble))
        except Exception as error:  # an error of ours; whoever asked must not wait for ever
            text = f"the coordinator met an error: {type(error).__name__}: {error}."
            self._say(troubled(request.number, Unavailable("leader.none", text)))

    def _watch(self, number: int, run: str) -> None:
        tenant = self._server.tenant

        def tell(stories: list[Story] | None) -> None:
            if stories is None:
                self._watching.pop(number, None)
                lost = Unavailable("leader.none", "watching was interrupted; begin again.")
                self._say(troubled(number, lost))
                return
            wanted = [story for story in stories if story.run == run and story.tenant == tenant]
            if wanted:
                self._say(answered(number, wanted, more=True))

        self._watching[number] = self._server.watch(tell)

    def _say(self, response: Response) -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            # It does not read what it asked for. Others must not pay for that with our memory.
            self._writer.transport.abort()
            return
        self._writer.write(pack_message(response))

    def close(self) -> None:
        """The client is gone."""
        for end in self._watching.values():
            end()
        for task in list(self._asking):
            task.cancel()
        self._writer.close()
