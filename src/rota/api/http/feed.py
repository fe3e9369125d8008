"""What happens to all runs of a tenant, for whoever watches: the newest events are kept, so that who was cut off for a
moment misses nothing.

One feed serves all readers of a tenant. A reader that comes too late, or after our own view was interrupted, is told
to read anew: a gap is never passed over in silence.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator
from itertools import islice

from msgspec import structs

from rota.api.auth import Principal, Role
from rota.api.desk import Desk
from rota.api.http.paging import is_number
from rota.api.line import DeskLine
from rota.client.happenings import Happening, Names, happenings
from rota.client.runs import Client
from rota.client.watching import Interrupted
from rota.core.errors import Refused, Unavailable
from rota.core.history import GetStories
from rota.core.records import Story
from rota.core.story import read_story
from rota.wire.sse import event

EVENTS_KEPT_MAX = 10_000
BYTES_KEPT_MAX = 8 * 1024 * 1024
RUNS_KNOWN_MAX = 1_000
# How long events are kept when nobody reads any more: its reader may only have been cut off.
LINGER_S = 60.0


class Feed:
    """The events of one tenant's runs."""

    def __init__(self, desk: Desk, tenant: str) -> None:
        who = Principal("events", Role.READER, tenant)
        self._client = Client(DeskLine(desk, who, tenant))
        self._names: dict[tuple[str, int], Names | None] = {}
        # The newest, the last of them with the number `_last`.
        self._kept: deque[bytes] = deque()
        self._bytes = 0
        self._last = 0
        self._life = secrets.token_hex(4)
        self._more = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._listen(), name="rota-feed")

    async def stop(self) -> None:
        """Tell no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def read(self, last_event_id: str) -> AsyncIterator[bytes]:
        """Events after the one named, or from now on, for ever."""
        life, place = self._life, self._last
        if last_event_id:
            life, _, number = last_event_id.partition(".")
            place = int(number) if is_number(number) else -1
        else:
            yield event("open", {}, self._id(place))
        while True:
            if life != self._life or not self._first - 1 <= place <= self._last:
                life, place = self._life, self._last
                yield event("reset", {}, self._id(place))
            more = self._more
            if place < self._last:
                # Events are numbered without gaps, so those that are new are so many at the end.
                found = list(islice(reversed(self._kept), self._last - place))
                place = self._last
                yield b"".join(reversed(found))
                continue
            await more.wait()

    @property
    def _first(self) -> int:
        return self._last - len(self._kept) + 1

    def _id(self, number: int) -> str:
        return f"{self._life}.{number}"

    async def _listen(self) -> None:
        while True:
            watching = self._client.line.watch("")
            try:
                async for story in watching:
                    for happening in await self._read(story):
                        self._keep(story, happening)
                    self._wake()
            except Interrupted:
                # Something may have happened that nobody told us; whoever reads has to look again.
                self._life = secrets.token_hex(4)
                self._kept.clear()
                self._bytes = 0
                self._wake()
            finally:
                watching.close()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def _keep(self, story: Story, happening: Happening) -> None:
        self._last += 1
        content = event("happening", as_event(story, happening), self._id(self._last))
        self._kept.append(content)
        self._bytes += len(content)
        while len(self._kept) > EVENTS_KEPT_MAX or self._bytes > BYTES_KEPT_MAX:
            self._bytes -= len(self._kept.popleft())

    async def _read(self, story: Story) -> Iterator[Happening]:
        key = (story.run, story.created_at)
        if key in self._names:
            names = self._names.pop(key)
        else:
            names = await self._learn(story)
        # At the end: the run that was heard of longest ago is forgotten first.
        self._names[key] = names
        if len(self._names) > RUNS_KNOWN_MAX:
            self._names.pop(next(iter(self._names)))
        if names is not None:
            await self._client.learn_moves(names, (story,))
            return names.read(story)
        return (each for change in read_story(story) for each in happenings(story.at, change))

    async def _learn(self, story: Story) -> Names | None:
        """The names of a run's tasks, with those it grew by so far. None if the run is gone: numbers have to do."""
        try:
            view = await self._client.run(story.run).status()
            if view.created_at != story.created_at:
                return None
            parts: list[Story] = [story]
            if story.number:
                question = GetStories(tenant=story.tenant, run=story.run, created_at=story.created_at)
                parts = await self._client.ask(question)
            names = await self._client.names(view, parts)
            for part in parts:
                if part.number < story.number:
                    names.learn(part)
            return names
        except (Refused, Unavailable):
            return None


class Feeds:
    """The feeds of those tenants whose events somebody reads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._feeds: dict[str, Feed] = {}
        self._readers: dict[str, int] = {}
        self._closing: dict[str, asyncio.TimerHandle] = {}
        self._stopping: dict[asyncio.Task[None], None] = {}

    async def read(self, tenant: str, last_event_id: str) -> AsyncIterator[bytes]:
        """A tenant's events after the one named, or from now on."""
        closing = self._closing.pop(tenant, None)
        if closing is not None:
            closing.cancel()
        feed = self._feeds.get(tenant)
        if feed is None:
            feed = self._feeds[tenant] = Feed(self._desk, tenant)
        self._readers[tenant] = self._readers.get(tenant, 0) + 1
        try:
            async for content in feed.read(last_event_id):
                yield content
        finally:
            self._readers[tenant] -= 1
            if not self._readers[tenant]:
                self._closing[tenant] = asyncio.get_running_loop().call_later(LINGER_S, self._close, tenant)

    def _close(self, tenant: str) -> None:
        self._closing.pop(tenant, None)
        feed = self._feeds.pop(tenant, None)
        if feed is not None:
            task = asyncio.get_running_loop().create_task(feed.stop())
            self._stopping[task] = None
            task.add_done_callback(lambda done: self._stopping.pop(done, None))

    async def stop(self) -> None:
        """Tell nobody any more."""
        for handle in self._closing.values():
            handle.cancel()
        self._closing.clear()
        for tenant in list(self._feeds):
            self._close(tenant)
        await asyncio.gather(*self._stopping)


def as_event(story: Story, happening: Happening) -> dict[str, object]:
    """A happening with the run it happened to."""
    return {"run": story.run, "created_at": story.created_at, **structs.asdict(happening)}
