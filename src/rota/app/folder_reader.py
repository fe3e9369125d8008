"""Answers questions from a data folder that no process holds: nothing is elected, locked or written.

Live records are loaded as a coordinator loads them, into a state of this process's own, and again when the folder has
changed. Workers that lived in the folder's last holder are left out: that process is gone.
"""

import asyncio
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota import __version__
from rota.api.desk import Desk, Heard
from rota.api.line import DeskLine
from rota.api.streams import Streams
from rota.app.clocks import wall_clock
from rota.app.hosting import LOCAL
from rota.app.left_logs import LeftLogs
from rota.app.survivors import residents
from rota.control.events import Wake
from rota.core.bounds import TimeLimits
from rota.core.cluster import cluster_id
from rota.core.decide.workers import gone
from rota.core.errors import Refused, Unavailable
from rota.core.evolve import evolve
from rota.core.ids import DEFAULT_TENANT, Epoch, Millis, WorkerId, WorkerKey
from rota.core.load import load
from rota.core.questions import Question, answer
from rota.core.state import State
from rota.stores.blobs import open_blobs
from rota.stores.sqlite import DiskReader, SqliteReader, holder_of, read_identity_file
from rota.wire.requests import ServiceInside, ServiceView

LOOK_EVERY_S = 0.2


class FolderReader:
    """Stands where a coordinator does, for those who only ask (`rota.api.desk.Coordinator`)."""

    def __init__(self, folder: Path) -> None:
        """Raises Refused if there is nothing in the folder that can be read."""
        self.folder = folder
        self._disk = DiskReader(folder)
        self.store = SqliteReader(self._disk)
        self._state: State | None = None
        self._seen = -1
        self._loading = asyncio.Lock()
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def clock(self) -> Callable[[], Millis]:
        """The time of day."""
        return wall_clock

    def is_current(self) -> bool:
        """Whether the folder is of this version; another one has to be brought up to date first, by a holder."""
        return self._disk.is_current()

    def close(self) -> None:
        """Tell watchers nothing more, and close the database."""
        for looking in list(self._watches):
            looking.cancel()
        self.store.close()

    def line(self) -> DeskLine:
        """A line for the program that this is in."""
        place = self.folder / "blobs"
        blobs = open_blobs(place if place.is_dir() else "memory:///")
        desk = Desk(self, blobs)
        desk.logs = LeftLogs(blobs, self.folder)
        desk.streams = Streams({DEFAULT_TENANT: (self.folder / "streams",)}, self, wall_clock)
        identity = read_identity_file(self.folder)
        cluster = cluster_id(identity) if identity else ""
        desk.service = ServiceView(version=__version__, blobs=str(place), home=identity, cluster=cluster)
        desk.inspect = self._inspect
        return DeskLine(desk, LOCAL, DEFAULT_TENANT)

    async def ask(self, request: Any) -> tuple[object, object]:
        """Answer a question."""
        assert isinstance(request, Question), "commands are for a coordinator"
        return answer(await self._current(), request, wall_clock()), None

    async def ask_all(self, requests: Sequence[Any]) -> list[tuple[object, object]]:
        """Answer several."""
        return [await self.ask(request) for request in requests]

    def watch(self, watcher: Heard) -> Callable[[], None]:
        """Say once that something has happened, when another process has written, or holds the folder."""
        looking = asyncio.get_running_loop().create_task(self._look(watcher, self._seen))
        self._watches.add(looking)
        looking.add_done_callback(self._watches.discard)

        def end() -> None:
            looking.cancel()

        return end

    def check_leads(self) -> None:
        """No other process has to be asked instead."""

    def on_wake(self, worker: WorkerKey, waker: Callable[[Wake | None], None]) -> Callable[[], None]:
        """No worker is woken here."""
        return lambda: None

    async def _look(self, watcher: Heard, before: int) -> None:
        """`before` is the version that was answered from last, so that no commit after it is missed."""
        with suppress(Refused, Unavailable, OSError):
            # What keeps the folder from being read is raised by the question that the watcher asks next.
            if before < 0:
                before = await self.store.version()
            while not holder_of(self.folder) and await self.store.version() == before:
                await asyncio.sleep(LOOK_EVERY_S)
        watcher(None)

    async def _current(self) -> State:
        async with self._loading:
            version = await self.store.version()
            if self._state is None or version != self._seen:
                self._state, self._seen = await self.store.read(self._load), version
            return self._state

    def _load(self) -> State:
        now = wall_clock()
        records = [record for some in self._disk.live(None) for record in some]
        state = load(Epoch(self._disk.epoch() + 1), TimeLimits(), records, now)
        for each in residents(self.folder):
            worker = state.workers.get((each.tenant, WorkerId(each.id)))
            if worker is not None and worker.row.incarnation == each.incarnation:
                for change in gone(worker, now, "its worker has ended"):
                    evolve(state, change)
        return state

    def _inspect(self) -> ServiceInside:
        return ServiceInside(
            pid=os.getpid(),
            version=__version__,
            python=platform.python_version(),
            role="none",
            epoch=self._state.epoch - 1 if self._state is not None else 0,
            memory_bytes_max=0,
        )
