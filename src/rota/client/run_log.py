"""The log of a whole run: the lines of its tasks, each with the task and the attempt that printed it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from msgspec import Struct

from rota.client.logs import stream_log, wall_clock
from rota.core.questions import TaskView
from rota.core.states import RUN_TERMINAL
from rota.wire.requests import ReadLog

if TYPE_CHECKING:
    from rota.client.runs import Run

# So many attempts are followed at once, and so many lines wait for their reader.
FOLLOWED_MAX = 200
LINES_WAITING_MAX = 1_000


class TaskLine(Struct, frozen=True):
    """A line that a task printed, without its end."""

    task: str
    attempt: int
    line: bytes


async def read_run_log(run: "Run") -> AsyncIterator[TaskLine]:
    """What all attempts have printed so far: task by task in the order in which they started, attempt by attempt."""
    for task in sorted(await run.tasks(), key=lambda task: (task.started_at or sys.maxsize, task.idx)):
        for attempt in range(1, task.attempt + 1):
            async for line in _lines(task.id, attempt, _pieces(run, task, attempt)):
                yield line


async def follow_run_log(run: "Run") -> AsyncIterator[TaskLine]:
    """The same, and what is printed until the run has ended, as it comes."""
    if (await run.status()).state in RUN_TERMINAL:
        async for line in read_run_log(run):
            yield line
        return
    # None after the last.
    printed: asyncio.Queue[TaskLine | None] = asyncio.Queue(LINES_WAITING_MAX)
    followed = asyncio.Semaphore(FOLLOWED_MAX)
    readers: dict[tuple[str, int], asyncio.Task[None]] = {}
    create_task = asyncio.get_running_loop().create_task

    async def read(task: str, attempt: int) -> None:
        async with followed:
            async for line in _lines(task, attempt, run.logs(task, attempt, follow=True)):
                await printed.put(line)

    async def watch() -> None:
        async for happening in run.events():
            key = (happening.task or "", happening.attempt)
            if all(key) and key not in readers:
                readers[key] = create_task(read(*key), name="rota-log")
        await asyncio.gather(*readers.values())

    async def watch_to_the_end() -> None:
        try:
            await watch()
        except Exception:
            await printed.put(None)
            raise
        await printed.put(None)

    watching = create_task(watch_to_the_end(), name="rota-logs")
    try:
        while (line := await printed.get()) is not None:
            yield line
        await watching
    finally:
        for task in (watching, *readers.values()):
            task.cancel()
        await asyncio.gather(watching, *readers.values(), return_exceptions=True)


def _pieces(run: "Run", task: TaskView, attempt: int) -> AsyncIterator[bytes]:
    """The log of an attempt of a task as it was looked at, so that no more is asked about each of many tasks."""

    async def look() -> TaskView | None:
        # An earlier attempt has ended long ago.
        return task if attempt == task.attempt else None

    log = ReadLog(tenant=run.client.line.tenant, run=run.id, task=task.id, attempt=attempt)
    return stream_log(run.client.ask, log, look, wall_clock, follow=False)


async def _lines(task: str, attempt: int, pieces: AsyncIterator[bytes]) -> AsyncIterator[TaskLine]:
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield TaskLine(task, attempt, line)
    if rest:
        yield TaskLine(task, attempt, rest)
