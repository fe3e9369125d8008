"""The line to a data folder: to the process that holds it, or to what is stored there while none does.

Who only asks never holds the folder, so that a service can be started on it at any moment. The first command does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rota.api.auth import NEEDS, Role
from rota.api.line import DeskLine
from rota.api.socket import SOCKET
from rota.app.folder_reader import FolderReader
from rota.app.lines import NearLine
from rota.client.connection import SocketConnection
from rota.client.line import FarLine
from rota.client.watching import Watching
from rota.core.commands import ClientCommand
from rota.core.errors import Refused, Unavailable
from rota.core.history import ListAudits
from rota.core.ids import DEFAULT_TENANT
from rota.core.questions import ListTenants, Question
from rota.stores.sqlite import holder_of
from rota.wire.requests import AwaitRun, InspectService

# How long a folder that is busy is waited for: another process may be leaving, or has just begun.
PATIENCE_S = 2.0
LOOK_EVERY_S = 0.05

READS = frozenset(kind for kind, need in NEEDS.items() if need is Role.READER) | {
    ListTenants,
    ListAudits,
    InspectService,
}

# Starts a coordinator without a worker; what is started is taken apart by the stack.
Hold = Callable[[AsyncExitStack, Path], Awaitable[NearLine]]


def only_reads(request: ClientCommand | Question) -> bool:
    """Whether a request changes nothing. Who waits for a run that it abandons has it cancelled."""
    return type(request) in READS and not (isinstance(request, AwaitRun) and request.abandon_ms > 0)


class FolderLine:
    """Asks whichever process holds the folder; reads it while none does, and holds it for the first command."""

    def __init__(self, folder: Path, hold: Hold) -> None:
        self.tenant = DEFAULT_TENANT
        self._folder = folder
        self._hold = hold
        # What was opened or started on the way.
        self._parts = AsyncExitStack()
        self._line: DeskLine | NearLine | FarLine | None = None
        self._changing = asyncio.Lock()

    @property
    def is_alone(self) -> bool:
        """Whether no other process is spoken to."""
        return not isinstance(self._line, FarLine)

    async def connect(self) -> None:
        """Find out who holds the folder. Raises Refused or Unavailable if it cannot be reached."""
        async with self._changing:
            await self._find(is_reading=True)

    async def ask(self, request: ClientCommand | Question) -> Any:
        """See `rota.client.line.Line`."""
        async with self._changing:
            line = await self._find(is_reading=only_reads(request))
        return await line.ask(request)

    def watch(self, run: str) -> Watching:
        """See `rota.client.line.Line`."""
        assert self._line is not None, "connected before anything is watched"
        return self._line.watch(run)

    async def close(self) -> None:
        """Hang up, close what was read, or free the folder."""
        await self._parts.aclose()

    async def _find(self, *, is_reading: bool) -> DeskLine | NearLine | FarLine:
        """The line for a request, as the folder is held now."""
        if isinstance(self._line, NearLine | FarLine):
            return self._line
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            if holder := holder_of(self._folder):
                try:
                    self._line = await self._reach()
                    return self._line
                except Unavailable:
                    if time.monotonic() > give_up_at:
                        raise _no_answer(self._folder, holder) from None
            elif is_reading and (line := self._line or self._open()) is not None:
                self._line = line
                return line
            else:
                try:
                    self._line = await self._take()
                    return self._line
                except Refused as refused:
                    # Another process was sooner, and is asked from now on.
                    if refused.code != "store.held" or time.monotonic() > give_up_at:
                        raise
            await asyncio.sleep(LOOK_EVERY_S)

    def _open(self) -> DeskLine | None:
        """A line to what is stored; None if the folder has to be brought to this version first."""
        reader = FolderReader(self._folder)
        if not reader.is_current():
            reader.close()
            return None
        self._parts.callback(reader.close)
        return reader.line()

    async def _reach(self) -> FarLine:
        """A line to the process that holds the folder."""
        line = FarLine(DEFAULT_TENANT, lambda: SocketConnection.open(self._folder / SOCKET, DEFAULT_TENANT))
        await line.connect()
        self._parts.push_async_callback(line.close)
        return line

    async def _take(self) -> NearLine:
        """A line to a coordinator in this process, which holds the folder from now on."""
        async with AsyncExitStack() as parts:
            line = await self._hold(parts, self._folder)
            self._parts.push_async_exit(parts.pop_all())
            return line


def _no_answer(folder: Path, holder: str) -> Unavailable:
    text = (
        f"the data folder {folder} is in use by {holder}. It does not answer here; if it asks for tokens, use "
        "--coordinator and a token."
    )
    return Unavailable("leader.none", text)
