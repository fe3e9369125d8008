"""Lines to a coordinator: in this process, or in another one that holds the same folder."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rota.client.connection import Connection
from rota.client.logs import follow as follow_log
from rota.client.watching import Watching
from rota.control.driver import CoordinatorDriver
from rota.core.commands import ClientCommand
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.core.model import Graph
from rota.core.questions import ListTasks, Question, TasksPage, TaskView
from rota.core.records import Story
from rota.core.states import LEASED, TERMINAL
from rota.ports import Blobs, Ended, HistoryQuery, Page, Store
from rota.worker.logs import LogFolder, read_on


class Folder(ABC):
    """What is read from the folder itself, whoever its coordinator is: history, stories, logs, large values."""

    def __init__(self, store: Store, blobs: Blobs, logs: LogFolder, tenant: str) -> None:
        self.store = store
        self.blobs = blobs
        self.log_files = logs
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
        wanted = attempt
        if follow and not attempt:
            view = await self._view(run, task)
            if view is not None and view.state not in TERMINAL:
                # The one that is under way, or the next.
                wanted = max(1, view.attempt + (0 if view.state in LEASED else 1))
        log = _Log(lambda: self._find_log(run, task, wanted))

        async def has_ended() -> bool:
            view = await self._view(run, task)
            if view is None or view.state in TERMINAL or (wanted and view.attempt > wanted):
                return True
            # An attempt that was handed back unspent has not ended: its number is given again.
            return view.attempt == wanted and view.state not in LEASED

        async for piece in follow_log(log.read_on, has_ended, follow=follow):
            yield piece

    def _find_log(self, run: str, task: str, attempt: int) -> Path | None:
        found = self.log_files.find(self.tenant, run, task)
        if attempt:
            found = [path for path in found if path.name.startswith(f"{attempt}-")]
        return found[-1] if found else None

    async def _view(self, run: str, task: str) -> TaskView | None:
        """How a task of a live run stands; None if the run is in history."""
        try:
            page = await self.ask(ListTasks(tenant=self.tenant, run=run, names=(task,)))
        except Refused:
            return None
        assert isinstance(page, TasksPage), "tasks are listed on pages"
        return page.tasks[0] if page.tasks else None


class _Log:
    """What an attempt prints, from file to file: one that was interrupted goes on in a file of its own."""

    def __init__(self, find: Callable[[], Path | None]) -> None:
        self._find = find
        self._path: Path | None = None
        self._offset = 0

    def read_on(self) -> bytes:
        """What is new."""
        # Looked for each time: the file is made with the first byte.
        path = self._find()
        if path is None:
            return b""
        if path != self._path:
            self._path, self._offset = path, 0
        piece, self._offset = read_on(path, self._offset)
        return piece


class NearLine(Folder):
    """To the coordinator in this process."""

    def __init__(self, driver: CoordinatorDriver, blobs: Blobs, logs: LogFolder, tenant: str) -> None:
        super().__init__(driver.store, blobs, logs, tenant)
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

    def __init__(self, path: Path, store: Store, blobs: Blobs, logs: LogFolder, tenant: str) -> None:
        super().__init__(store, blobs, logs, tenant)
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
