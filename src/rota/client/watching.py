"""What happens to a run, as it becomes durable."""

import asyncio
from collections.abc import Callable

from rota.core.errors import Unavailable
from rota.core.records import Story

# A watcher that is so far behind is cut off rather than fed from ever more memory; it can read the story instead.
BEHIND_MAX = 10_000


class Watching:
    """Stories that have not been read yet. It begins when it is made and ends with `close`."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._stories: asyncio.Queue[Story | None] = asyncio.Queue()

    def tell(self, story: Story) -> None:
        """One more."""
        if self._stories.qsize() < BEHIND_MAX:
            self._stories.put_nowait(story)
        else:
            self.lose()

    def lose(self) -> None:
        """Nothing more will come, and the run may go on."""
        self._end()
        self._stories.put_nowait(None)

    def __aiter__(self) -> "Watching":
        return self

    async def __anext__(self) -> Story:
        story = await self._stories.get()
        if story is None:
            self._stories.put_nowait(None)
            raise Unavailable("leader.none", "watching ended before the run did")
        return story

    def close(self) -> None:
        """Stop watching."""
        self._end()
