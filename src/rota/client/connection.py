"""A connection to the socket of a coordinator in another process on this machine."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.client.watching import Watching
from rota.core.commands import ClientCommand
from rota.core.errors import Refused, Unavailable
from rota.core.questions import Question
from rota.wire.requests import (
    LENGTH_BYTES,
    Request,
    Response,
    Unwatch,
    Watch,
    open_answer,
    pack_message,
    read_response,
)
from rota.wire.sockets import short_path

# Takes an answer; None when there will be none.
Take = Callable[[Response | None], None]


def ignore(response: Response | None) -> None:
    """Nobody waits."""


class Connection:
    """Asks and watches over one stream of messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._waiting: dict[int, Take] = {}
        self._is_lost = False
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    @classmethod
    async def open(cls, path: Path) -> "Connection":
        """Connect to a socket. Raises Unavailable if nobody listens."""
        try:
            with short_path(path) as name:
                reader, writer = await asyncio.open_unix_connection(name, limit=1 << 20)
        except (FileNotFoundError, ConnectionError) as error:
            raise Unavailable("leader.none", f"nobody answers at {path}: {error}.") from None
        except PermissionError as error:
            hint = "A coordinator answers only the user who started it."
            raise Refused("store.held", f"{path} may not be used: {error.strerror}.", hint) from None
        return cls(reader, writer)

    @property
    def is_lost(self) -> bool:
        """Whether the other side has hung up."""
        return self._is_lost

    async def ask(self, request: ClientCommand | Question) -> Any:
        """One request, one answer."""
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def take(response: Response | None) -> None:
            if not future.done():
                future.set_result(response)

        number = self._send(request, take)
        try:
            response = await future
        finally:
            self._waiting.pop(number, None)
        if response is None:
            raise Unavailable("leader.none", "the coordinator hung up.")
        return open_answer(request, response)

    def watch(self, run: str) -> Watching:
        """What happens to a run from now on."""
        request = Watch(run)
        watching = Watching()

        def take(response: Response | None) -> None:
            try:
                stories = None if response is None else open_answer(request, response)
            except Unavailable:
                stories = None
            if stories is None:
                watching.lose()
                return
            for story in stories:
                watching.tell(story)

        number = self._send(request, take)

        def end() -> None:
            if self._waiting.pop(number, None) is not None and not self._writer.is_closing():
                self._send(Unwatch(number), ignore)

        watching.end = end
        return watching

    def _send(self, body: Any, take: Take) -> int:
        self._number += 1
        if self.is_lost:
            take(None)
            return self._number
        if take is not ignore:
            self._waiting[self._number] = take
        self._writer.write(pack_message(Request(self._number, body)))
        return self._number

    async def _listen(self) -> None:
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
                response = read_response(await self._reader.readexactly(length))
                take = self._waiting.get(response.number)
                if take is not None:
                    take(response)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._is_lost = True
            for take in list(self._waiting.values()):
                take(None)

    async def close(self) -> None:
        """Hang up."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        self._writer.close()
