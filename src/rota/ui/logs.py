"""The log of a task on a page: whose it is, its end as text that can be shown, and when it has grown."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from rota.client.runs import Run
from rota.core.ids import TaskId
from rota.core.questions import RunView, TaskView
from rota.core.states import CANCELLED, FAILED, TERMINAL, UPSTREAM_FAILED
from rota.ui.reading import Reader
from rota.ui.telling import Tale
from rota.ui.words import command
from rota.wire.plain_text import show_text
from rota.wire.requests import LogPiece, ReadLog
from rota.wire.sse import event

SHOWN_BYTES = 64 * 1024
# Between one addition and the next.
REST_S = 0.2
# Of what a task waited for so many are asked about, and so many of those that went wrong are named.
CAUSES_ASKED_MAX = 50
CAUSES_SHOWN = 5
ATTEMPTS_SHOWN = 10
BAD = (FAILED, UPSTREAM_FAILED, CANCELLED)


async def read_about(
    reader: Reader, view: RunView, task: TaskView, tale: Tale, asked: int, url: Callable[[int], str]
) -> dict[str, Any]:
    """Which attempts there are, and what there is to read if nothing was printed.

    `asked`: the attempt that is wanted, 0 for the newest. `url`: where an attempt is shown.
    """
    run = reader.run(view.id)
    # One that was interrupted does not count, but it was made.
    newest = tale.attempt or task.attempt
    attempt = min(max(0, asked), newest) or newest
    chosen = ("--attempt", attempt) if asked else ()
    shown = range(max(1, newest - ATTEMPTS_SHOWN + 1), newest + 1)
    return {
        "task": task,
        "attempt": attempt,
        "newest": newest,
        "attempts": [(number, url(number)) for number in shown],
        "is_over": task.state in TERMINAL,
        "reasons": () if task.state in TERMINAL else await run.why(task.id),
        "causes": await _causes(reader, run, view, task) if task.state is UPSTREAM_FAILED else (),
        "log_cli": command("logs", view.id, task.id, *chosen, "--follow"),
    }


async def _causes(reader: Reader, run: Run, view: RunView, task: TaskView) -> list[TaskView]:
    """What a task waited for and what did not go well, a few of them."""
    graph = await reader.graph(view.graph)
    node = graph.index.get(task.id, graph.index.get(TaskId(task.id.rpartition("[")[0])))
    names = [graph.specs[up].id for up in graph.ups[node]] if node is not None else []
    found = await run.tasks(*names[:CAUSES_ASKED_MAX], states=BAD) if names else []
    return found[:CAUSES_SHOWN]


async def read_end(run: Run, task: str, attempt: int) -> tuple[str, bool]:
    """What an attempt printed last, and whether there is more before it; nothing of an attempt that there was not."""
    if not attempt:
        return "", False
    tenant = run.client.line.tenant
    log = ReadLog(tenant=tenant, run=run.id, task=task, attempt=attempt, tail_bytes=SHOWN_BYTES)
    piece: LogPiece = await run.client.ask(log)
    is_cut = len(piece.content) >= SHOWN_BYTES
    # From the beginning of a line on, if one begins there.
    whole = piece.content[piece.content.find(b"\n") + 1 :] if is_cut else piece.content
    return show_text((whole or piece.content).decode(errors="replace")), is_cut


async def follow(run: Run, task: str, attempt: int) -> AsyncIterator[bytes]:
    """An event whenever a log has grown, until the attempt has ended; the page then reads the lines that it shows."""
    async for _ in run.logs(task, attempt, follow=True, tail_bytes=SHOWN_BYTES):
        yield event("log", {"task": task, "attempt": attempt})
        await asyncio.sleep(REST_S)
