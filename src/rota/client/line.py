"""What a client needs of a coordinator, near or far."""

from collections.abc import AsyncIterator
from typing import Protocol

from rota.client.watching import Watching
from rota.core.commands import ClientCommand
from rota.core.ids import Millis
from rota.core.model import Graph
from rota.core.questions import Question
from rota.core.records import Story
from rota.ports import Blobs, Ended, HistoryQuery, Page


class Line(Protocol):
    """A way to a coordinator."""

    tenant: str
    blobs: Blobs

    async def ask(self, request: ClientCommand | Question) -> object:
        """Carry out a command, or answer a question. Raises Refused or Unavailable."""
        ...

    async def history(self, query: HistoryQuery) -> Page:
        """Runs that have ended and moved to history."""
        ...

    async def ended(self, run: str, created_at: Millis = 0) -> Ended | None:
        """One run of history."""
        ...

    async def graph(self, digest: str) -> Graph:
        """The definition of an ended run."""
        ...

    async def stories(self, run: str, created_at: Millis) -> list[Story]:
        """What is told about a run."""
        ...

    def watch(self, run: str) -> Watching:
        """What happens to a run from now on, as it becomes durable."""
        ...

    def logs(self, run: str, task: str, attempt: int, *, follow: bool) -> AsyncIterator[bytes]:
        """What an attempt printed; attempt 0 means the newest. `follow` goes on until the attempt has ended."""
        ...
