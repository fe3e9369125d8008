"""Asynchronous tests that are played in a folder of their own."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any


def played(test: Callable[..., Any], play: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    """A test as pytest takes it, with the name of `test`: `play` makes what it needs and calls it."""

    async def inside(folder: Path) -> None:
        await play(folder)

    def run(tmp_path: Path) -> None:
        asyncio.run(inside(tmp_path))

    functools.update_wrapper(run, test)
    # Else pytest would look for what the test itself takes.
    del run.__wrapped__
    run.__annotations__ = {"tmp_path": Path}
    return run
