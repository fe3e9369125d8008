"""Reading logs from the blobs: one piece after the other, and on and on until whoever writes is done.

A log is numbered chunks under its attempt's name, of which the last says that it is the last (`rota.worker.logs`). They
are shipped a moment after they were written, and the end of an attempt is known before its last words are here. So:
an ended attempt is read until its last chunk; if that does not come, because the worker died or the blobs were out of
its reach, it is given up a while after the end. An attempt that printed nothing has no chunk at all, so its end is
waited for only as long as a first chunk normally takes.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Fence, Millis
from rota.core.questions import TaskView
from rota.core.states import LEASED, TERMINAL
from rota.ports import BlobLost, Blobs
from rota.wire.names import END, task_name

# How often a log that grows is looked at.
LOOK_EVERY_S = 0.1
PIECE_BYTES_MAX = 1024 * 1024
# How long after the end of an attempt its last chunk is waited for, and its first if it has none.
LAST_CHUNK_MS = 10_000
FIRST_CHUNK_MS = 2_000
LONG_AGO_MS = 1 << 40

_attempt = re.compile(r"(\d{1,19})-(\d{1,19})").fullmatch
_cursor = re.compile(r"(\d{1,19}-\d{1,19})\.(\d{1,6})\.(\d{1,12})").fullmatch


class LogOf(Struct, frozen=True):
    """Which log: of a task's attempt, or of the newest that printed anything."""

    tenant: str
    run: str
    task: str
    attempt: int = 0


class LogPiece(Struct, frozen=True):
    """What comes next in a log, where to go on after it, and whether that was the end of what its worker wrote.

    The cursor is for `read_log` only; empty means that there is no log yet.
    """

    content: bytes
    cursor: str
    is_complete: bool


class Over(Struct, frozen=True):
    """An attempt has ended: how long ago at least, and under which fence if that is known."""

    age_ms: Millis
    fence: Fence = 0


async def read_log(blobs: Blobs, log: LogOf, cursor: str = "", bytes_max: int = PIECE_BYTES_MAX) -> LogPiece:
    """The next piece of a log; empty if there is nothing new.

    An attempt that was interrupted goes on under another fence, in a log of its own; when one has been read, the
    newer follows.
    """
    place = _Place.after(cursor)
    home = task_name(log.tenant, log.run, log.task)
    piece = await place.read(blobs, home, bytes_max) if place is not None else LogPiece(b"", "", is_complete=False)
    if piece.content:
        return piece
    newest = await _newest(blobs, home, log.attempt)
    if newest is None or (place is not None and _order(newest) <= _order(place.attempt)):
        return piece
    return await _Place(newest, 0, 0).read(blobs, home, bytes_max)


async def stream_log(
    blobs: Blobs,
    log: LogOf,
    look: Callable[[], Awaitable[TaskView | None]],
    clock: Callable[[], Millis],
    *,
    follow: bool,
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
    log = LogOf(log.tenant, log.run, log.task, wanted)
    cursor, ended_at = "", None
    while True:
        # Asked before reading: what was shipped before the end is read after it.
        over = how_it_stands(await look(), wanted, clock())
        if over is None and not follow:
            over = Over(LONG_AGO_MS)
        if over is not None:
            ended_at = ended_at or clock()
            over = Over(max(over.age_ms, clock() - ended_at), over.fence)
        while (piece := await read_log(blobs, log, cursor)).content:
            if over is not None and not cursor and is_early(piece, over):
                break
            cursor = piece.cursor
            yield piece.content
        else:
            cursor = piece.cursor
            if over is not None and is_all(piece, over):
                return
        await asyncio.sleep(LOOK_EVERY_S)


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


def is_early(piece: LogPiece, over: Over) -> bool:
    """Whether a log that was found is perhaps not the one that is wanted: that of a later lease may still come."""
    return fence_of(piece.cursor) < over.fence and over.age_ms < FIRST_CHUNK_MS


def is_all(piece: LogPiece, over: Over) -> bool:
    """Whether nothing more is to be expected after a piece that was empty."""
    is_of_the_last = bool(piece.cursor) and fence_of(piece.cursor) >= over.fence
    if is_of_the_last and piece.is_complete:
        return True
    return over.age_ms >= (LAST_CHUNK_MS if is_of_the_last else FIRST_CHUNK_MS)


def fence_of(cursor: str) -> Fence:
    """The fence of the lease under which a log was written."""
    place = _Place.after(cursor)
    return 0 if place is None else _order(place.attempt)[1]


class _Place(Struct, frozen=True):
    """A place in a log: up to here it has been read."""

    attempt: str
    chunk: int
    offset: int

    @classmethod
    def after(cls, cursor: str) -> "_Place | None":
        """Where a cursor points; None if it is empty."""
        if not cursor:
            return None
        found = _cursor(cursor)
        if found is None:
            raise Refused("field.value", f"{cursor[:80]!r} is no place in a log", path="cursor")
        return cls(found[1], int(found[2]), int(found[3]))

    async def read(self, blobs: Blobs, home: str, bytes_max: int) -> LogPiece:
        """What follows."""
        folder = f"{home}/{self.attempt}/log"
        content, chunk, offset, is_complete = b"", self.chunk, self.offset, False
        for listed in await blobs.list(folder):
            number = int(listed.name[:6])
            if number < chunk:
                continue
            if number > chunk:
                chunk, offset = number, 0
            wanted = min(listed.size - offset, bytes_max - len(content))
            if wanted > 0:
                try:
                    content += await blobs.read(f"{folder}/{listed.name}", offset, wanted)
                except BlobLost:
                    break
                offset += wanted
            if offset < listed.size:
                break
            is_complete = listed.name.endswith(END)
        return LogPiece(content, f"{self.attempt}.{chunk}.{offset}", is_complete)


async def _newest(blobs: Blobs, home: str, attempt: int) -> str | None:
    """The newest attempt that has a log, by name."""
    found = [each.name for each in await blobs.list(home) if each.is_folder and _attempt(each.name)]
    for name in sorted(found, key=_order, reverse=True):
        if attempt and _order(name)[0] != attempt:
            continue
        if any(each.name == "log" for each in await blobs.list(f"{home}/{name}")):
            return name
    return None


def _order(attempt: str) -> tuple[int, int]:
    number, _, fence = attempt.partition("-")
    return int(number), int(fence)
