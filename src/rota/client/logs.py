"""Reading a log: one piece after the other, and on and on until whoever writes is done.

Logs are shipped a moment after they were written, and the end of an attempt is known before its last words are here. So
an ended attempt is read until its last chunk; if that does not come, because the worker died or the blobs were out of
its reach, it is given up a while after the end. An attempt that printed nothing has no chunk at all, so its end is
waited for only as long as a first chunk normally takes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import Struct, structs

from rota.core.ids import NO_FENCE, Fence, Millis
from rota.core.questions import TaskView
from rota.core.states import LEASED, TERMINAL
from rota.wire.requests import LogPiece, ReadLog

# How long a log is left alone that had nothing new: twice as long each time, until something comes.
LOOK_S_MIN = 0.1
LOOK_S_MAX = 2.0
# How long after the end of an attempt its last chunk is waited for, and its first if it has none.
LAST_CHUNK_MS = 10_000
FIRST_CHUNK_MS = 2_000
LONG_AGO_MS = 1 << 40

Read = Callable[[ReadLog], Awaitable[LogPiece]]
Look = Callable[[], Awaitable[TaskView | None]]


class Over(Struct, frozen=True):
    """An attempt has ended: how long ago at least, and under which fence if that is known."""

    age_ms: Millis
    fence: Fence = NO_FENCE


async def stream_log(
    read: Read, log: ReadLog, look: Look, clock: Callable[[], Millis], *, follow: bool
) -> AsyncIterator[bytes]:
    """A log from its beginning: what there is, and with `follow` what comes until the attempt has ended.

    `look` gives the task as it stands, None if its run is in history.
    """
    wanted = log.attempt
    if follow and not wanted:
        view = await look()
        if view is not None and view.state not in TERMINAL:
            # The one that is under way, or the next.
            wanted = max(1, view.attempt + (0 if view.state in LEASED else 1))
    log = structs.replace(log, attempt=wanted)
    ended_at = None
    saw_it_run = False
    fence, wait_s = 0, LOOK_S_MIN
    while True:
        # Asked before reading: what was shipped before the end is read after it.
        view = await look()
        over = how_it_stands(view, wanted, clock())
        if over is None and not follow:
            over = Over(LONG_AGO_MS)
        if over is None:
            saw_it_run = True
        else:
            if ended_at is None:
                # Its last words are on their way.
                ended_at, wait_s = clock(), LOOK_S_MIN
            over = Over(age_of(over, clock() - ended_at, saw_it_run=saw_it_run), over.fence)
        log = structs.replace(log, seeks=over is not None or view is None or view.fence > fence)
        while (piece := await read(log)).content:
            wait_s = LOOK_S_MIN
            if over is not None and not log.cursor and is_early(piece, over):
                break
            log = structs.replace(log, cursor=piece.cursor)
            yield piece.content
        else:
            log = structs.replace(log, cursor=piece.cursor)
            if over is not None and is_all(piece, over):
                return
        fence = piece.fence
        await asyncio.sleep(wait_s)
        wait_s = min(LOOK_S_MAX, wait_s * 2)


def how_it_stands(view: TaskView | None, wanted: int, now: Millis) -> Over | None:
    """Whether an attempt of a task has ended, and how long ago; None if not. Attempt 0 is the newest."""
    if view is None:
        return Over(LONG_AGO_MS)
    if wanted and view.attempt > wanted:
        return Over(0)
    if view.state in TERMINAL:
        age_ms = max(0, now - view.ended_at) if view.ended_at else 0
        return Over(age_ms, view.fence) if view.attempt and view.attempt >= wanted else Over(LONG_AGO_MS)
    # An attempt that was handed back unspent has not ended: its number is given again.
    if view.state not in LEASED and view.attempt and view.attempt == (wanted or view.attempt):
        return Over(0, view.fence)
    return None


def age_of(over: Over, noticed_ms: Millis, *, saw_it_run: bool) -> Millis:
    """How long ago an attempt ended that was noticed to have ended so long ago.

    Whoever saw it run counts from there: the instant in the view is by the coordinator's clock, and ours may be hours
    off.
    """
    return noticed_ms if saw_it_run and over.age_ms < LONG_AGO_MS else max(over.age_ms, noticed_ms)


def is_early(piece: LogPiece, over: Over) -> bool:
    """Whether a log that was found is perhaps not the one that is wanted: that of a later lease may still come."""
    return piece.fence < over.fence and over.age_ms < FIRST_CHUNK_MS


def is_all(piece: LogPiece, over: Over) -> bool:
    """Whether nothing more is to be expected after a piece that was empty."""
    is_of_the_last = bool(piece.cursor) and piece.fence >= over.fence
    if is_of_the_last and piece.is_complete:
        return True
    return over.age_ms >= (LAST_CHUNK_MS if is_of_the_last else FIRST_CHUNK_MS)


def wall_clock() -> Millis:
    """The time of day on this machine."""
    return time.time_ns() // 1_000_000
