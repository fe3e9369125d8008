"""Lines to a coordinator: in this process, or in another one that holds the same folder."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rota.client.connection import Connection
from rota.client.logs import follow as follow_log
from rota.client.watching import Watching
from rota.control.driver import CoordinatorDriver
from rota.core.commands import ClientCommand
from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.model import Graph
from rota.core.questions import ListTasks, Question, TasksPage
from rota.core.records import Story
from rota.core.states import LEASED
from rota.ports import Blobs, Ended, HistoryQuery, Page, Store
from rota.worker.logs import LogFolder, read_on


class Folder:
    """What is read from the folder itself, whoever its coordinator is: history, stories, logs, large values."""

    def __init__(self, store: Store, blobs: Blobs, logs: LogFolder, tenant: str, clock: Callable[[], Millis]) -> None:
        self.store = store
        self.blobs = blobs
        self.log_files = logs
        self.tenant = tenant
        self.clock = clock

    async def ask(self, request: ClientCommand | Question) -> object:
        """See the protocol."""
        raise NotImplementedError

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

        def read(offset: int) -> tuple[bytes, int]:
            # Looked for each time until it is there: the file is made with the first byte.
            path = self._log(run, task, attempt)
            return (b"", offset) if path is None else read_on(path, offset)

        async def has_ended() -> bool:
            return not await self._is_at_it(run, task)

        async for piece in follow_log(read, has_ended, follow=follow):
            yield piece

    def _log(self, run: str, task: str, attempt: int) -> Path | None:
        found = self.log_files.find(self.tenant, run, task)
        if attempt:
            found = [path for path in found if path.name.startswith(f"{attempt}-")]
        return found[-1] if found else None

    async def _is_at_it(self, run: str, task: str) -> bool:
        try:
            page = await self.ask(ListTasks(tenant=self.tenant, run=run, names=(task,)))
        except Refused:
            return False
        assert isinstance(page, TasksPage), "tasks are listed on pages"
        return any(view.state in LEASED for view in page.tasks)


class NearLine(Folder):
    """To the coordinator in this process."""

    def __init__(self, driver: CoordinatorDriver, blobs: Blobs, logs: LogFolder, tenant: str) -> None:
        super().__init__(driver.store, blobs, logs, tenant, driver.clock)
        self._driver = driver

    async def ask(self, request: ClientCommand | Question) -> object:
        """See the protocol."""
        return (await self._driver.ask(request))[0]

    def watch(self, run: str) -> Watching:
        """See the protocol."""

        def tell(stories: list[Story]) -> None:
            for story in stories:
                if story.run == run and story.tenant == self.tenant:
                    watching.tell(story)

        end = self._driver.watch(tell)
        watching = Watching(end)
        return watching


class SocketLine(Folder):
    """To the coordinator of a folder that another process on this machine holds."""

    def __init__(
        self,
        connection: Connection,
        store: Store,
        blobs: Blobs,
        logs: LogFolder,
        tenant: str,
        clock: Callable[[], Millis],
    ) -> None:
        super().__init__(store, blobs, logs, tenant, clock)
        self._connection = connection

    async def ask(self, request: ClientCommand | Question) -> object:
        """See the protocol."""
        return await self._connection.ask(request)

    def watch(self, run: str) -> Watching:
        """See the protocol."""
        return self._connection.watch(run)
