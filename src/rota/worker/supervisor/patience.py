"""Waiting for what must not be left half-way."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def outlast(awaitable: Awaitable[T]) -> T:
    """The result, waited for to the end; a cancellation that comes meanwhile is raised afterwards."""
    future = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        raise cancelled
    return future.result()
