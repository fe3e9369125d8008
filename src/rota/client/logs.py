"""Following a log until whoever writes it is done."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

# How often a log that grows is looked at.
LOOK_EVERY_S = 0.1


async def follow(
    read_on: Callable[[], bytes], has_ended: Callable[[], Awaitable[bool]], *, follow: bool
) -> AsyncIterator[bytes]:
    """What is in a log, and, if it is to be followed, what is added until `has_ended`. `read_on` gives what is new."""
    while True:
        # Asked before reading: what was written before the end is read after it.
        ended = not follow or await has_ended()
        while piece := read_on():
            yield piece
        if ended:
            return
        await asyncio.sleep(LOOK_EVERY_S)
