"""Logs by lines: how many a log has, some of them, and which contain a text or look like errors.

A line ends with a newline and nothing else, as for `grep -n` on the raw log, so that a number means the same line
everywhere. An index counts the lines that end before each step of a log. It grows with the log; the indexes of the
logs that were read last are kept. A search decodes one window at a time, in a thread, so that the loop stays free.
"""

import asyncio
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from rota.api.logs import LogChunks, check_log, newest_log
from rota.core.errors import Refused
from rota.ports import BlobLost, Listed
from rota.wire.names import task_name
from rota.wire.plain_text import output_text
from rota.wire.requests import LogLines, LogMatches, ReadLogLines, SearchLog

INDEXES_KEPT_MAX = 32
LINES_MAX = 1_000
MATCHES_MAX = 10_000
TEXT_CHARS_MAX = 200
STEP_BYTES = 64 * 1024
# Lines are read, and searched, so much at a time.
PAGE_BYTES = 64 * 1024
WINDOW_BYTES = 256 * 1024
# A thread is worth its while from here on.
THREAD_BYTES_MIN = 16 * 1024
# One request searches so much; the next one goes on from there.
SEARCHED_BYTES_MAX = 32 * 1024 * 1024
# Of a longer line its beginning and its end are given.
HEAD_BYTES = 6 * 1024
TAIL_BYTES = 2 * 1024
READS_AT_ONCE = 16
READ_BYTES_MAX = 1024 * 1024
# Windows of one very long line share so much, in which a text is found that lies across their border.
OVERLAP_BYTES = 4 * 1024

# Words one of which is in every match of the pattern; to look for them is much faster.
_ERROR_WORDS = ("error", "exception", "traceback", "fatal", "panic", "segmentation fault")
_ERROR = re.compile(r"(?:error|exception|\btraceback|\bfatal|\bpanic(?:ked)?|\bsegmentation fault)\b", re.ASCII)

# From the bytes of whole lines to the places of those that match, counted from 0.
Match = Callable[[bytes], list[int]]


class LogIndexes:
    """Answers requests for lines, with an index for each log that was read lately."""

    def __init__(self, kept_max: int = INDEXES_KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._indexes: dict[str, LineIndex] = {}

    async def answer(self, blobs: LogChunks, request: ReadLogLines | SearchLog) -> LogLines | LogMatches:
        """Some lines, or the numbers of some."""
        if isinstance(request, ReadLogLines):
            return await self._read(blobs, request)
        return await self._search(blobs, request)

    async def _read(self, blobs: LogChunks, request: ReadLogLines) -> LogLines:
        if not 0 <= request.count <= LINES_MAX:
            raise Refused(
                "field.value", f"{request.count} lines were asked for", f"At most {LINES_MAX:,}.", path="count"
            )
        log, index = await self._find(blobs, request)
        if index is None:
            return LogLines()
        first = request.first if request.first > 0 else max(1, index.total - request.count + 1)
        lines = await index.lines(first, request.count)
        errors = tuple(first + place for place, line in enumerate(lines) if line.is_error)
        return LogLines(log, index.total, first, tuple(line.text for line in lines), errors)

    async def _search(self, blobs: LogChunks, request: SearchLog) -> LogMatches:
        if len(request.text) > TEXT_CHARS_MAX or "\n" in request.text:
            text = f"a search is for one line of at most {TEXT_CHARS_MAX} characters"
            raise Refused("field.value", text, path="text")
        if not 1 <= request.limit <= MATCHES_MAX:
            raise Refused(
                "field.value", f"{request.limit} lines were asked for", f"1 to {MATCHES_MAX:,}.", path="limit"
            )
        log, index = await self._find(blobs, request)
        if index is None:
            return LogMatches()
        match = partial(lines_with, request.text.lower()) if request.text else lines_with_error
        lines, following, is_end = await index.search(max(1, request.first), match, request.limit)
        return LogMatches(log, tuple(lines), following, is_end)

    async def _find(self, blobs: LogChunks, request: ReadLogLines | SearchLog) -> "tuple[str, LineIndex | None]":
        """The log that is asked about with its index as of now; none if there is no such log."""
        home = task_name(request.tenant, request.run, request.task)
        log = check_log(request.log) if request.log else await newest_log(blobs, home, request.attempt)
        if log is None:
            return "", None
        folder = f"{home}/{log}/log"
        index = self._indexes.pop(folder, None) or LineIndex(blobs, folder)
        self._keep(folder, index)
        if not await index.refresh():
            index = LineIndex(blobs, folder)
            self._keep(folder, index)
            await index.refresh()
        return log, index

    def __len__(self) -> int:
        return len(self._indexes)

    def _keep(self, folder: str, index: "LineIndex") -> None:
        self._indexes[folder] = index
        if len(self._indexes) > self._kept_max:
            del self._indexes[next(iter(self._indexes))]


class ShownLine(Struct, frozen=True):
    """One line as it is shown."""

    text: str
    is_error: bool


class LineIndex:
    """Where the lines of one log are."""

    def __init__(self, blobs: LogChunks, folder: str) -> None:
        self._blobs = blobs
        self._folder = folder
        self._lock = asyncio.Lock()
        self._chunks: list[Listed] = []
        # Where each chunk begins, and how many lines end before each step.
        self._starts: list[int] = []
        self._ended_before = array("Q", [0])
        self._ended = 0
        self._is_open = False
        self.size = 0

    @property
    def total(self) -> int:
        """How many lines there are; the last one may have no end yet."""
        return self._ended + self._is_open

    async def refresh(self) -> bool:
        """Count what was added; False if what was counted is not there any more."""
        async with self._lock:
            listed = await self._blobs.list(self._folder)
            if listed[: len(self._chunks)] != self._chunks:
                return False
            new = listed[len(self._chunks) :]
            for some in (new[at : at + READS_AT_ONCE] for at in range(0, len(new), READS_AT_ONCE)):
                try:
                    contents = await asyncio.gather(*(self._read_chunk(chunk) for chunk in some))
                except BlobLost:
                    # The log is being removed.
                    break
                for chunk, pieces in zip(some, contents, strict=True):
                    self._add(chunk, pieces)
        return True

    async def _read_chunk(self, chunk: Listed) -> list[bytes]:
        name = f"{self._folder}/{chunk.name}"
        return [
            await self._blobs.read(name, offset, min(READ_BYTES_MAX, chunk.size - offset))
            for offset in range(0, chunk.size, READ_BYTES_MAX)
        ]

    def _add(self, chunk: Listed, pieces: list[bytes]) -> None:
        self._chunks.append(chunk)
        self._starts.append(self.size)
        for piece in pieces:
            begin = 0
            while begin < len(piece):
                end = min(len(piece), begin + STEP_BYTES - self.size % STEP_BYTES)
                self._ended += piece.count(b"\n", begin, end)
                self.size += end - begin
                if self.size % STEP_BYTES == 0:
                    self._ended_before.append(self._ended)
                begin = end
            self._is_open = not piece.endswith(b"\n")

    async def lines(self, first: int, count: int) -> list[ShownLine]:
        """Lines as text, so many at most; at least one if there is one."""
        if first > self.total or not count:
            return []
        begin = await self._begin_of(first)
        content = await self._read(begin, PAGE_BYTES)
        if not content:
            return []
        if begin + len(content) < self.size:
            whole = content.rfind(b"\n") + 1
            if not whole:
                return [await self._long_line(begin, await self._end_of(first))]
            content = content[:whole]
        return [_shown(line) for line in content.removesuffix(b"\n").split(b"\n")[:count]]

    async def search(self, first: int, match: Match, limit: int) -> tuple[list[int], int, bool]:
        """Numbers of lines that match, so many at most; the line to go on from; and whether there are no more."""
        found: list[int] = []
        number = min(first, self.total + 1)
        begin = await self._begin_of(number)
        stop = begin + SEARCHED_BYTES_MAX
        while begin < min(self.size, stop):
            content = await self._read(begin, WINDOW_BYTES)
            if not content:
                # The log is being removed.
                return found, number, True
            if begin + len(content) < self.size:
                content = content[: content.rfind(b"\n") + 1]
            if not content:
                end = await self._end_of(number)
                found += [number] if await self._is_in_long_line(begin, end, match) else []
                number, begin = number + 1, await self._begin_of(number + 1)
            else:
                found += [number + place for place in await _matched(match, content)]
                number, begin = number + content.count(b"\n"), begin + len(content)
            if len(found) >= limit:
                return found[:limit], found[limit - 1] + 1, False
        return found, number, begin >= self.size

    # Bytes.

    async def _read(self, begin: int, size: int) -> bytes:
        """Part of the log; less at its end, or if it is being removed."""
        end = min(begin + size, self.size)
        parts: list[tuple[str, int, int]] = []
        for number in range(max(0, bisect_right(self._starts, begin) - 1), len(self._chunks)):
            chunk, start = self._chunks[number], self._starts[number]
            if start >= end:
                break
            skipped = max(0, begin - start)
            parts.append((f"{self._folder}/{chunk.name}", skipped, min(chunk.size, end - start) - skipped))
        content = bytearray()
        for some in (parts[at : at + READS_AT_ONCE] for at in range(0, len(parts), READS_AT_ONCE)):
            try:
                pieces = await asyncio.gather(*(self._blobs.read(*part) for part in some if part[2] > 0))
            except BlobLost:
                break
            content += b"".join(pieces)
        return bytes(content)

    async def _begin_of(self, number: int) -> int:
        """Where a line begins; the end of the log for the one after the last."""
        before = number - 1
        if before > self._ended:
            return self.size
        if not before:
            return 0
        step = bisect_left(self._ended_before, before) - 1
        content = await self._read(step * STEP_BYTES, STEP_BYTES)
        at = -1
        for _ in range(before - self._ended_before[step]):
            at = content.find(b"\n", at + 1)
        return step * STEP_BYTES + at + 1

    async def _end_of(self, number: int) -> int:
        """Where a line ends, without its newline."""
        return await self._begin_of(number + 1) - 1 if number <= self._ended else self.size

    async def _long_line(self, begin: int, end: int) -> ShownLine:
        """A line that is longer than a page."""
        head = await self._read(begin, HEAD_BYTES)
        tail = await self._read(end - TAIL_BYTES, TAIL_BYTES)
        text = _without_middle(head, end - begin - HEAD_BYTES - TAIL_BYTES, tail)
        return ShownLine(text, is_error(text))

    async def _is_in_long_line(self, begin: int, end: int, match: Match) -> bool:
        while begin < end:
            content = await self._read(begin, min(WINDOW_BYTES, end - begin))
            if not content or await _matched(match, content):
                return bool(content)
            begin += max(1, len(content) - OVERLAP_BYTES) if begin + len(content) < end else len(content)
        return False


# Text.


def _shown(line: bytes) -> ShownLine:
    """A line as text; of a long one its beginning and its end."""
    text = _line_text(line)
    if len(line) <= HEAD_BYTES + TAIL_BYTES:
        return ShownLine(text, is_error(text))
    middle = len(line) - HEAD_BYTES - TAIL_BYTES
    return ShownLine(_without_middle(line[:HEAD_BYTES], middle, line[-TAIL_BYTES:]), is_error(text))


def _without_middle(head: bytes, left_out: int, tail: bytes) -> str:
    return f"{_line_text(head)} … {left_out:,} bytes left out … {_line_text(tail)}"


def _line_text(line: bytes) -> str:
    """A carriage return inside a line starts a new row of it, as a progress bar does."""
    return output_text(line).rstrip("\r").replace("\r", "\n")


async def _matched(match: Match, content: bytes) -> list[int]:
    return match(content) if len(content) < THREAD_BYTES_MIN else await asyncio.to_thread(match, content)


def is_error(line: str) -> bool:
    """Whether a line looks like an error."""
    return bool(_ERROR.search(line.lower()))


def lines_with(text: str, content: bytes) -> list[int]:
    """The places of lines that contain a text of lower case, in whatever case."""
    return _places(output_text(content).lower(), lambda lowered, at: lowered.find(text, at))


def lines_with_error(content: bytes) -> list[int]:
    """The places of lines that look like errors."""
    lowered = output_text(content).lower()
    if not any(word in lowered for word in _ERROR_WORDS):
        return []

    def find(lowered: str, at: int) -> int:
        found = _ERROR.search(lowered, at)
        return found.start() if found is not None else -1

    return _places(lowered, find)


def _places(text: str, find: Callable[[str, int], int]) -> list[int]:
    """The places of lines in which something is found, each once."""
    places: list[int] = []
    place, counted, at = 0, 0, 0
    while (hit := find(text, at)) >= 0:
        place += text.count("\n", counted, hit)
        places.append(place)
        end = text.find("\n", hit)
        if end < 0:
            break
        counted, at = end, end + 1
    return places
