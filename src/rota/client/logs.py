"""Following what an attempt prints until it has ended."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from rota.core.errors import Refused
from rota.core.questions import ListTasks, TasksPage, TaskView
from rota.core.states import LEASED, TERMINAL
from rota.wire.requests import LogPiece, ReadLog

# How often a log that grows is looked at.
LOOK_EVERY_S = 0.1

Ask = Callable[[Any], Awaitable[Any]]


async def follow(ask: Ask, tenant: str, run: str, task: str, attempt: int, *, follow: bool) -> AsyncIterator[bytes]:
    """What an attempt printed, the newest if none is named; with `follow` also what it prints until it has ended."""
    if follow and not attempt:
        view = await _view(ask, tenant, run, task)
        if view is not None and view.state not in TERMINAL:
            # The one that is under way, or the next.
            attempt = max(1, view.attempt + (0 if view.state in LEASED else 1))

    async def has_ended() -> bool:
        view = await _view(ask, tenant, run, task)
        if view is None or view.state in TERMINAL or (attempt and view.attempt > attempt):
            return True
        # An attempt that was handed back unspent has not ended: its number is given again.
        return view.attempt == attempt and view.state not in LEASED

    cursor = ""
    while True:
        # Asked before reading: what was written before the end is read after it.
        ended = not follow or await has_ended()
        while True:
            piece: LogPiece = await ask(ReadLog(tenant=tenant, run=run, task=task, attempt=attempt, cursor=cursor))
            cursor = piece.cursor
            if not piece.content:
                break
            yield piece.content
        if ended:
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _view(ask: Ask, tenant: str, run: str, task: str) -> TaskView | None:
    """How a task of a live run stands; None if the run is in history."""
    try:
        page: TasksPage = await ask(ListTasks(tenant=tenant, run=run, names=(task,)))
    except Refused:
        return None
    return page.tasks[0] if page.tasks else None
