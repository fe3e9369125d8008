"""What happens to a run, as it becomes durable."""

import asyncio
from collections.abc import Callable

from rota.core.records import Story

# A watcher that is so far behind is cut off rather than fed from ever more memory; it can read the story instead.
BEHIND_MAX = 10_000


class Interrupted(Exception):
    """Something may have happened that was not told. Read the story, and watch anew."""


def nothing() -> None:
    """There is nothing to end."""


class Watching:
    """Stories that have not been read yet. It begins when it is made and ends with `close`."""

    def __init__(self) -> None:
        # What to call when nobody reads any more; whoever feeds this sets it.
        self.end: Callable[[], None] = nothing
        self._stories: asyncio.Queue[Story | None] = asyncio.Queue()
        self._is_lost = False

    def tell(self, story: Story) -> None:
        """One more."""
        if self._is_lost:
            return
        if self._stories.qsize() < BEHIND_MAX:
            self._stories.put_nowait(story)
        else:
            self.lose()

    def lose(self) -> None:
        """Nothing more will come, and the run may go on: read its story, and watch anew."""
        if not self._is_lost:
            self._is_lost = True
            self._stories.put_nowait(None)
            self.end()

    def __aiter__(self) -> "Watching":
        return self

    async def __anext__(self) -> Story:
        story = await self._stories.get()
        if story is None:
            self._stories.put_nowait(None)
            raise Interrupted
        return story

    def close(self) -> None:
        """Stop watching."""
        self.end()
