"""One browser that looks at a page with a log: fragments and log on one stream, whoever has news first."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

from rota.client.runs import Run
from rota.core.errors import Refused, Unavailable
from rota.core.records import Story
from rota.ui.live import Ear, keep_current
from rota.ui.logs import follow
from rota.ui.reading import Reader
from rota.ui.rendering import Fragment

# Reasons change with what others do: workers that come and go, pools that empty.
LOOK_EVERY_S = 1.0
# What has ended changes only if it is told to run again.
OVER_EVERY_S = 60.0
# One that printed nothing so far may have a log that is on its way.
UNSAID_EVERY_S = 5.0
# So many events wait for a browser to take them; whoever makes them waits too.
EVENTS_WAITING_MAX = 8


class Seen(Struct, frozen=True):
    """How a page stands: its fragments, whether nothing more is expected of them, and whose log is followed. No task
    or attempt: there is none yet.
    """

    fragments: list[Fragment]
    is_over: bool
    task: str
    attempt: int


Look = Callable[[list[Story]], Awaitable[Seen]]


class Following:
    """One browser. `look` reads the page, given what happened since it did so before."""

    def __init__(self, reader: Reader, run: Run, look: Look) -> None:
        self._reader = reader
        self._run = run
        self._look = look
        # None at the end.
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue(EVENTS_WAITING_MAX)
        self._is_over = False
        # Whoever looked has gone: nobody takes what is said any more.
        self._is_left = False
        self._logging: asyncio.Task[None] | None = None
        self._logged = 0

    async def events(self) -> AsyncIterator[bytes]:
        """Until something may have been missed."""
        async with Ear(self._reader.line, self._run.id) as ear:
            looking = asyncio.get_running_loop().create_task(self._keep_looking(ear), name="rota-page")
            try:
                while (piece := await self._said.get()) is not None:
                    yield piece
                await looking
            finally:
                self._is_left = True
                tasks = [task for task in (looking, self._logging) if task is not None]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_looking(self, ear: Ear) -> None:
        async def look(parts: list[Story]) -> list[Fragment]:
            seen = await self._look(parts)
            self._is_over = seen.is_over
            await self._follow(seen.task, seen.attempt)
            return seen.fragments

        def every_s() -> float:
            if not self._is_over:
                return LOOK_EVERY_S
            return OVER_EVERY_S if self._logged else UNSAID_EVERY_S

        try:
            async for piece in keep_current(ear, look, every_s=every_s):
                await self._said.put(piece)
        finally:
            if not self._is_left:
                await self._said.put(None)

    async def _follow(self, task: str, attempt: int) -> None:
        """Follow the log of this attempt instead of the one before."""
        if attempt == self._logged or not attempt:
            return
        if self._logging is not None:
            self._logging.cancel()
            await asyncio.gather(self._logging, return_exceptions=True)
        self._logged = attempt

        async def pump() -> None:
            has_said = False
            # A log that cannot be read just now is read again with the page, and so is one of which nothing was there
            # in time: a worker with much to do ships it later.
            with suppress(Refused, Unavailable):
                async for piece in follow(self._run, task, attempt):
                    has_said = True
                    await self._said.put(piece)
            if not has_said and self._logged == attempt:
                self._logged = 0

        self._logging = asyncio.get_running_loop().create_task(pump(), name="rota-page-log")
