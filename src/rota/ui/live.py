"""Keeping a page current: when something happens it is read again, and what changed of it is sent.

However much happens and however slow a browser is, the coordinator is not kept: what it tells is taken at once and
only counted, a page is read again at most so often, and only after the browser has taken what it was sent before.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self

from rota.client.line import Line
from rota.client.watching import Interrupted
from rota.core.records import Story
from rota.ui.rendering import Fragment
from rota.wire.sse import RETRY, event

# How long a page rests after it was read, at least, and as a multiple of what reading it took.
REST_S = 0.4
REST_FACTOR = 10
# Commits that are kept for a page that tells a story. One that falls further behind is sent anew.
PARTS_KEPT_MAX = 2_000

Look = Callable[[list[Story]], Awaitable[list[Fragment]]]


class Ear:
    """Hears what becomes durable about a run, or about any if none is named, from when it is entered until its end."""

    def __init__(self, line: Line, run: str = "") -> None:
        self._line = line
        self._run = run
        self._parts: list[Story] = []
        self._news = asyncio.Event()
        self._is_lost = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        watching = self._line.watch(self._run)

        async def listen() -> None:
            try:
                async for story in watching:
                    if self._run and len(self._parts) < PARTS_KEPT_MAX:
                        self._parts.append(story)
                    elif self._run:
                        break
                    self._news.set()
            except Interrupted:
                pass
            finally:
                watching.close()
            self._is_lost = True
            self._news.set()

        self._task = asyncio.get_running_loop().create_task(listen(), name="rota-page")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self, most_s: float) -> list[Story] | None:
        """Until there is news, or for so long: what was told since. None: something may have been missed."""
        try:
            async with asyncio.timeout(most_s):
                await self._news.wait()
        except TimeoutError:
            return []
        self._news.clear()
        parts, self._parts = self._parts, []
        return None if self._is_lost else parts


async def keep_current(ear: Ear, look: Look, *, every_s: Callable[[], float]) -> AsyncIterator[bytes]:
    """What changes of a page, as events: all of it at first, and nothing that its reader has already.

    `every_s` is how often it is looked at though nothing was told: reasons change with what others do. It ends when
    something may have been missed; whoever reads connects again, and begins anew.
    """
    yield RETRY
    marks: dict[str, str] = {}
    parts: list[Story] | None = []
    clock = asyncio.get_running_loop().time
    while parts is not None:
        began_at = clock()
        fragments = [each for each in await look(parts) if marks.get(each.id) != each.mark]
        took_s = clock() - began_at
        if fragments:
            marks |= {each.id: each.mark for each in fragments}
            yield event("fragments", fragments)
        await asyncio.sleep(max(REST_S, took_s * REST_FACTOR))
        parts = await ear.wait(every_s())
