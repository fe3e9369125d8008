"""Reading logs from the blobs, piece by piece.

A log is numbered chunks under its attempt's name, of which the last says that it is the last (`rota.worker.logs`).
"""

import re
from typing import Protocol

from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Fence
from rota.ports import BlobLost, Listed
from rota.wire.names import END, task_name
from rota.wire.requests import LogPiece, ReadLog

PIECE_BYTES_MAX = 1024 * 1024

_attempt = re.compile(r"(\d{1,19})-(\d{1,19})").fullmatch
_cursor = re.compile(r"(\d{1,19}-\d{1,19})\.(\d{1,6})\.(\d{1,12})").fullmatch


class LogChunks(Protocol):
    """Where the chunks of logs are: blobs, or what looks like them."""

    async def list(self, prefix: str) -> list[Listed]:
        """See `rota.ports.Blobs`."""
        ...

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """See `rota.ports.Blobs`."""
        ...


async def read_log(blobs: LogChunks, request: ReadLog, bytes_max: int = PIECE_BYTES_MAX) -> LogPiece:
    """The next piece of a log; empty if there is nothing new.

    An attempt that was interrupted goes on under another fence, in a log of its own; when one has been read, the
    newer follows.
    """
    place = _Place.after(request.cursor)
    home = task_name(request.tenant, request.run, request.task)
    if request.tail_bytes < 0:
        raise Refused("field.value", f"there is no end of {request.tail_bytes} bytes", path="tail_bytes")
    piece = await place.read(blobs, home, bytes_max) if place is not None else LogPiece(b"", "")
    if piece.content or (place is not None and not piece.is_complete and not request.seeks):
        return piece
    newest = await newest_log(blobs, home, request.attempt)
    if newest is None or (place is not None and _order(newest) <= _order(place.attempt)):
        return piece
    start = _Place(newest, 0, 0)
    if request.tail_bytes and place is None:
        start = await start.skipped(blobs, home, request.tail_bytes)
    return await start.read(blobs, home, bytes_max)


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

    async def skipped(self, blobs: LogChunks, home: str, tail_bytes: int) -> "_Place":
        """The same log so many bytes before its end; its beginning if it has fewer."""
        for listed in reversed(await blobs.list(f"{home}/{self.attempt}/log")):
            if listed.size >= tail_bytes:
                return _Place(self.attempt, int(listed.name[:6]), listed.size - tail_bytes)
            tail_bytes -= listed.size
        return self

    async def read(self, blobs: LogChunks, home: str, bytes_max: int) -> LogPiece:
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
        return LogPiece(content, f"{self.attempt}.{chunk}.{offset}", Fence(_order(self.attempt)[1]), is_complete)


def check_log(name: str) -> str:
    """The name of a log of a task, `attempt-fence`. Raises Refused."""
    if not _attempt(name):
        raise Refused("field.value", f"{name[:80]!r} is not the name of a log", path="log")
    return name


async def newest_log(blobs: LogChunks, home: str, attempt: int) -> str | None:
    """The name of the newest log of a task; of one attempt, if it is not 0."""
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
