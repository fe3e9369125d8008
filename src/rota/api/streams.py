"""At the desk: streams in the folders that a coordinator was told of, how each stands and what is asked of it.

Whoever runs a stream is elsewhere; what is known of it, and wanted of it, are small files in its folder. They are read
in threads of their own, so that a folder that does not answer keeps nobody but those who asked about streams.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import structs

from rota.api.auth import Principal
from rota.core.commands import SteerStream
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis, RunId, TaskId
from rota.core.questions import ListTasks, TasksPage
from rota.wire.standings import (
    GetStream,
    ListStreams,
    StreamsView,
    StreamView,
    is_stream,
    is_text,
    read_told,
    view_stream,
)
from rota.wire.wishes import VERBS, Wish, ask, check_wish

# Of more streams in all folders the first by name are looked at.
STREAMS_MAX = 100
# How many names of a folder are looked at to find them.
NAMES_MAX = 10_000
# How long a folder may take to answer.
PATIENCE_S = 5.0
# How many look at folders at once: one at all of them, and one at what somebody asked for.
_THREADS = 2
# How often they are looked at for metrics.
LOOK_EVERY_S = 5.0

T = TypeVar("T")


class Asked(Protocol):
    """The coordinator."""

    async def ask(self, request: Any) -> tuple[object, object]:
        """Carry out a command or answer a question."""
        ...


class Streams:
    """The streams of all tenants. What one of them has keeps no other waiting, whatever becomes of its disk."""

    def __init__(self, folders: Mapping[str, Sequence[Path]], coordinator: Asked, clock: Callable[[], Millis]) -> None:
        self._of = {tenant: Shelf(each, coordinator, clock) for tenant, each in folders.items()}
        # For tenants that have none.
        self._none = Shelf((), coordinator, clock)

    @property
    def seen(self) -> dict[str, StreamsView]:
        """As they were when somebody last looked, by tenant."""
        return {tenant: shelf.seen for tenant, shelf in self._of.items()}

    async def answer(self, who: Principal, request: ListStreams | GetStream | SteerStream) -> StreamsView | StreamView:
        """What was asked about them, or of one."""
        shelf = self._of.get(request.tenant, self._none)
        match request:
            case ListStreams():
                return await shelf.list(request)
            case GetStream():
                return await shelf.get(request.tenant, request.stream)
            case SteerStream():
                return await shelf.steer(structs.replace(request, actor=who.name))

    async def keep_looking(self) -> None:
        """Look now and then, so that whoever asks for metrics need not wait for a disk."""
        while True:
            await asyncio.gather(*(shelf.look_anew() for shelf in self._of.values()))
            await asyncio.sleep(LOOK_EVERY_S)


class Shelf:
    """The streams in some folders, directly below each: those of one tenant."""

    def __init__(self, folders: Sequence[Path], coordinator: Asked, clock: Callable[[], Millis]) -> None:
        self._folders = tuple(folders)
        self._coordinator = coordinator
        self._clock = clock
        # Nobody else's: a disk that hangs would take one thread after the other from those who read blobs.
        self._threads = ThreadPoolExecutor(_THREADS, "rota-streams")
        self._looking: asyncio.Task[StreamsView] | None = None
        self._asking = asyncio.Lock()
        self._read_at = 0.0
        # As they were when somebody last looked.
        self.seen = StreamsView()

    async def list(self, request: ListStreams) -> StreamsView:
        """All of them; or those that a run's tasks run, as they were lately: a page about a run waits for no disk."""
        if not request.run:
            return await self.look()
        if asyncio.get_running_loop().time() - self._read_at > LOOK_EVERY_S:
            self._begin_to_look()
        return structs.replace(self.seen, streams=tuple(each for each in self.seen.streams if each.run == request.run))

    async def look(self) -> StreamsView:
        """All of them as they are now. Who asks while somebody looks hears the same."""
        return await _within(asyncio.shield(self._begin_to_look()))

    async def look_anew(self) -> None:
        """Look for whoever asks later; what is not read is not shown as if it were."""
        try:
            await self.look()
        except Unavailable:
            self.seen = StreamsView()

    def _begin_to_look(self) -> asyncio.Task[StreamsView]:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="rota-streams")
        return self._looking

    async def _look(self) -> StreamsView:
        try:
            self.seen = await self._aside(look_at, self._folders, self._clock())
            self._read_at = asyncio.get_running_loop().time()
            return self.seen
        finally:
            self._looking = None

    def _aside(self, act: Callable[..., T], *given: object) -> asyncio.Future[T]:
        """Do something with folders, in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._threads, act, *given)

    async def get(self, tenant: str, name: str) -> StreamView:
        """One of them, with the worker that has it."""
        folder = await _within(self._aside(find_folder, self._folders, name))
        view = await _within(self._aside(view_stream, folder, name, self._clock()))
        return structs.replace(view, worker=await self._worker_of(tenant, view)) if view.run else view

    async def _worker_of(self, tenant: str, view: StreamView) -> str:
        """Who has the task that runs it. Its folder says which task that is, and may be wrong."""
        question = ListTasks(tenant=tenant, run=RunId(view.run), names=(TaskId(view.task),), limit=1)
        try:
            page = (await self._coordinator.ask(question))[0]
        except Refused:
            return ""
        assert isinstance(page, TasksPage), "tasks are answered with a page of them"
        return page.tasks[0].worker if page.tasks else ""

    async def steer(self, command: SteerStream) -> StreamView:
        """Ask something of one: who asked is durable first, and then it is asked, once for each command."""
        verb = VERBS.get(command.verb)
        if verb is None:
            text = f"a stream cannot be asked to {command.verb[:40]!r}"
            raise Refused("field.value", text, f"There are: {', '.join(VERBS)}.", path="verb")
        wish = Wish(id=command.command_id, verb=verb, which=command.which, stop=command.stop)
        folder = await _within(self._aside(find_folder, self._folders, command.stream))
        # One at a time: what was looked at is still so when it is asked.
        async with self._asking:
            await _within(self._aside(_check, folder, wish))
            await self._coordinator.ask(command)
            await _within(self._aside(ask, folder, wish))
        return await self.get(command.tenant, command.stream)


async def _within(reading: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await reading
    except TimeoutError:
        text = f"the folders of streams do not answer within {PATIENCE_S:.0f} s."
        raise Unavailable("service.busy", text) from None


def _check(folder: Path, wish: Wish) -> None:
    try:
        told = read_told(folder)
    except ValueError as wrong:
        raise Refused("stream.folder", f"{folder}: {wrong}", "Remove that file; it is written anew.") from None
    check_wish(folder, wish, told.restorable if told is not None else ())


def look_at(folders: Sequence[Path], now: Millis) -> StreamsView:
    """All streams in some folders. One that has the name of another is shown as what cannot be reached."""
    found: dict[str, Path] = {}
    hidden: list[tuple[str, Path]] = []
    for folder in folders:
        for name in _names_in(folder):
            if name in found:
                hidden.append((name, folder / name))
            else:
                found[name] = folder / name
    shown = sorted(found)[:STREAMS_MAX]
    views = [view_stream(found[name], name, now) for name in shown]
    for name, path in hidden[:STREAMS_MAX]:
        trouble = f"{found[name]} has the same name, and is the one that is meant by it"
        views.append(StreamView(name=name, folder=str(path), state="broken", trouble=trouble))
    return StreamsView(
        as_of=now,
        streams=tuple(views),
        folders=tuple(str(each) for each in folders),
        left_out=len(found) - len(shown),
    )


def _names_in(folder: Path) -> list[str]:
    """What streams there are directly below a folder. Links lead elsewhere, and are left alone."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(NAMES_MAX), entries, strict=False):
                if is_text(entry.name) and entry.is_dir(follow_symlinks=False) and is_stream(Path(entry.path)):
                    found.append(entry.name)
    except OSError:
        # Nothing was ever put there, or it is not ours to see.
        return []
    return sorted(found)


def find_folder(folders: Sequence[Path], name: str) -> Path:
    """The folder of a stream by its name, which is that of a folder and no way to another place."""
    if name not in ("", ".", "..") and os.sep not in name and "\0" not in name:
        for folder in folders:
            path = folder / name
            try:
                is_folder = stat.S_ISDIR(path.lstat().st_mode)
            except (OSError, UnicodeError):
                continue
            if is_folder and is_stream(path):
                return path
    hint = "`rota stream list` shows those that are known here; streams.folders says where they are looked for."
    raise Refused("stream.unknown", f"there is no stream {name[:100]!r}", hint, path="stream")
