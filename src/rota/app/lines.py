"""Lines to a coordinator: in this process, or in another one that holds the same folder."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path

from rota.client.connection import Connection
from rota.client.logs import LogOf, stream_log
from rota.client.watching import Watching
from rota.control.driver import CoordinatorDriver
from rota.core.commands import ClientCommand
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.core.model import Graph
from rota.core.questions import ListTasks, Question, TasksPage, TaskView
from rota.core.records import Story
from rota.ports import Blobs, Ended, HistoryQuery, Page, Store


class Folder(ABC):
    """What is read from the folder itself, whoever its coordinator is: history, stories, logs, large values."""

    def __init__(self, store: Store, blobs: Blobs, tenant: str) -> None:
        self.store = store
        self.blobs = blobs
        self.tenant = tenant

    @abstractmethod
    async def ask(self, request: ClientCommand | Question) -> object:
        """Ask whoever is the coordinator."""

    async def history(self, query: HistoryQuery) -> Page:
        """See the protocol."""
        return await self.store.history(query)

    async def ended(self, run: str, created_at: Millis = 0) -> Ended | None:
        """See the protocol."""
        return await self.store.ended(self.tenant, run, created_at)

    async def graph(self, digest: str) -> Graph:
        """See the protocol."""
        graph = await self.store.graph(self.tenant, digest)
        if graph is None:
            raise Refused("graph.unknown", f"graph {digest[:12]!r} is gone", path="graph")
        return graph

    async def stories(self, run: str, created_at: Millis) -> list[Story]:
        """See the protocol."""
        return await self.store.stories(self.tenant, run, created_at)

    async def logs(self, run: str, task: str, attempt: int, *, follow: bool) -> AsyncIterator[bytes]:
        """See the protocol."""
        log = LogOf(self.tenant, run, task, attempt)
        async for piece in stream_log(self.blobs, log, lambda: self._view(run, task), wall_clock, follow=follow):
            yield piece

    async def _view(self, run: str, task: str) -> TaskView | None:
        """How a task of a live run stands; None if the run is in history."""
        try:
            page = await self.ask(ListTasks(tenant=self.tenant, run=run, names=(task,)))
        except Refused:
            return None
        assert isinstance(page, TasksPage), "tasks are listed on pages"
        return page.tasks[0] if page.tasks else None


def wall_clock() -> Millis:
    """The time of day."""
    return time.time_ns() // 1_000_000


class NearLine(Folder):
    """To the coordinator in this process."""

    def __init__(self, driver: CoordinatorDriver, blobs: Blobs, tenant: str) -> None:
        super().__init__(driver.store, blobs, tenant)
        self._driver = driver

    async def ask(self, request: ClientCommand | Question) -> object:
        """See the protocol."""
        try:
            return (await self._driver.ask(request))[0]
        except Unavailable:
            if self._driver.failed is not None:
                raise RuntimeError("Rota met an error of its own and has stopped") from self._driver.failed
            if self._driver.is_stopped:
                raise RuntimeError("this Rota is closed") from None
            raise

    def watch(self, run: str) -> Watching:
        """See the protocol."""
        watching = Watching()

        def tell(stories: list[Story] | None) -> None:
            if stories is None:
                watching.lose()
                return
            for story in stories:
                if story.run == run and story.tenant == self.tenant:
                    watching.tell(story)

        watching.end = self._driver.watch(tell)
        return watching


class SocketLine(Folder):
    """To the coordinator of a folder that another process on this machine holds; whichever that is at the moment."""

    def __init__(self, path: Path, store: Store, blobs: Blobs, tenant: str) -> None:
        super().__init__(store, blobs, tenant)
        self._path = path
        self._connection: Connection | None = None

    async def connect(self) -> Connection:
        """The connection, made anew if the other side hung up. Raises Unavailable if nobody is there."""
        if self._connection is None or self._connection.is_lost:
            await self.close()
            self._connection = await Connection.open(self._path)
        return self._connection

    async def ask(self, request: ClientCommand | Question) -> object:
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
