"""What a client needs of a coordinator, near or far."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from rota.client.watching import Watching
from rota.core.commands import ClientCommand
from rota.core.questions import Question


class Line(Protocol):
    """A way to a coordinator."""

    tenant: str

    async def ask(self, request: ClientCommand | Question) -> Any:
        """Carry out a command, or answer a question. Raises Refused or Unavailable."""
        ...

    def watch(self, run: str) -> Watching:
        """What happens to a run from now on, as it becomes durable."""
        ...


class Connection(Protocol):
    """An open connection to a coordinator in another process."""

    tenant: str

    @property
    def is_lost(self) -> bool:
        """Whether nothing more will come."""
        ...

    async def ask(self, request: ClientCommand | Question) -> Any:
        """One request, one answer."""
        ...

    def watch(self, run: str) -> Watching:
        """What happens to a run from now on."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


class FarLine:
    """To a coordinator in another process, over a connection that is made anew when it was lost."""

    def __init__(self, tenant: str, dial: Callable[[], Awaitable[Connection]]) -> None:
        """`dial` opens a connection. It raises Unavailable if nobody is there."""
        self.tenant = tenant
        self._dial = dial
        self._connection: Connection | None = None
        self._dialling = asyncio.Lock()

    async def connect(self) -> Connection:
        """The connection, made anew if the other side hung up; those who ask together share it."""
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        async with self._dialling:
            if self._connection is None or self._connection.is_lost:
                await self.close()
                self._connection = await self._dial()
            return self._connection

    async def ask(self, request: ClientCommand | Question) -> Any:
        """See the protocol."""
        return await (await self.connect()).ask(request)

    def watch(self, run: str) -> Watching:
        """See the protocol."""
        if self._connection is not None and not self._connection.is_lost:
            return self._connection.watch(run)
        watching = Watching()
        watching.lose()
        return watching

    async def close(self) -> None:
        """Hang up."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
