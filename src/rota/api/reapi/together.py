"""Doing the same for many things, some of them at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Thing = TypeVar("Thing")
Done = TypeVar("Done")


async def each(act: Callable[[Thing], Awaitable[Done]], things: Iterable[Thing], width: int) -> list[Done]:
    """What `act` makes of each, in order; at most so many are under way. The first error ends all of it.

    What does not have to wait is done one after the other: a task for each would cost more than most of them do.
    """
    waiting = list(things)
    if len(waiting) == 1:
        return [await act(waiting[0])]
    numbers = iter(range(len(waiting)))
    done: dict[int, Done] = {}

    async def work() -> None:
        for number in numbers:
            done[number] = await act(waiting[number])

    tasks = [asyncio.ensure_future(work()) for _ in range(min(width, len(waiting)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [done[number] for number in range(len(waiting))]
