"""Following a log until whoever writes it is done."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

# How often a log that grows is looked at.
LOOK_EVERY_S = 0.1

# From an offset: what was written since, and the offset to ask for next.
ReadOn = Callable[[int], tuple[bytes, int]]


async def follow(read_on: ReadOn, has_ended: Callable[[], Awaitable[bool]], *, follow: bool) -> AsyncIterator[bytes]:
    """What is in a log, and, if it is to be followed, what is added until `has_ended`."""
    offset = 0
    while True:
        # Asked before reading: what was written before the end is read after it.
        ended = not follow or await has_ended()
        while True:
            piece, offset = read_on(offset)
            if not piece:
                break
            yield piece
        if ended:
            return
        await asyncio.sleep(LOOK_EVERY_S)
