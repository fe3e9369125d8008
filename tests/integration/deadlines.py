"""Waiting for something to be so, never for time to pass; and saying what it was when it does not come."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.01


def until(look: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """The first truthy answer of `look`."""
    give_up_at = time.monotonic() + patience_s
    pause = threading.Event()
    while not (found := look()):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"waited {patience_s} s in vain: {what}")
        pause.wait(_LOOK_EVERY_S)
    return found


async def until_so(look: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Until something holds, while the event loop goes on."""
    give_up_at = time.monotonic() + patience_s
    while not look():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"waited {patience_s} s in vain: {what}")
        await asyncio.sleep(_LOOK_EVERY_S)


def until_there(path: Path, patience_s: float = PATIENCE_S) -> Path:
    """Until a file exists."""
    until(path.exists, f"{path} to appear", patience_s)
    return path


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and was not reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def descendants(pid: int) -> list[int]:
    """What a process has started, and what that has; some of it may end while we look."""
    found: list[int] = []
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return found
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (thread / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found
