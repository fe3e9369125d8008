"""Segments of history: ended runs in a blob of rows, with a blob beside it that says what is where.

A segment is written once and never changed. What in it has become too old is not shown any more; when most of it is,
what is left moves to a new segment. Small ones that follow each other become a larger one, so that they stay few.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from rota.core.ids import BlobRef, Epoch, Fence, Millis, RunId
from rota.core.model import Pairs
from rota.core.records import Run, Task
from rota.core.states import RunState
from rota.ports import Blobs
from rota.stores.blobs import READ_BYTES_MAX
from rota.stores.bundled import bundle_in_row
from rota.stores.etcd.entries import Told
from rota.stores.etcd.failures import corrupt
from rota.stores.etcd.keys import HISTORY, blob_name
from rota.stores.etcd.rows import FORMS, RUN, TASK

INDEXES_BYTES_MAX = 64 * 1024 * 1024
# Lines that are read before others get their turn.
_LINES_AT_ONCE = 2_000
# Rows that are as near as this are read together.
_GAP_BYTES = 16 * 1024


L = TypeVar("L")


class RunLine(Struct, array_like=True, gc=False):
    """Where an ended run is, and what it can be found by. `number` counts the runs that went to history."""

    number: int
    tenant: str
    id: RunId
    created_at: Millis
    ended_at: Millis
    name: str
    kind: str
    state: RunState
    at: int = 0
    size: int = 0
    parts_at: int = 0
    parts_size: int = 0
    # Attempts whose results are referred to; None until somebody has looked, which a segment's writer does.
    fences: tuple[Fence, ...] | None = None
    labels: Pairs = ()


class GraphLine(Struct, array_like=True, gc=False):
    """Where a definition is, and when the last run ended that may have been made of it."""

    tenant: str
    digest: str
    ended_at: Millis
    at: int = 0
    size: int = 0
    # The name of its bundle, empty if it has none; None until somebody has looked, which a segment's writer does.
    bundle: str | None = None


class AuditLine(Struct, array_like=True, gc=False):
    """Where an audit is. `number` counts them all."""

    number: int
    tenant: str
    ended_at: Millis
    at: int = 0
    size: int = 0


Line = RunLine | GraphLine | AuditLine


class Parts(Struct, array_like=True, gc=False):
    """What an ended run has beside its own row."""

    tasks: list[bytes]
    growths: list[bytes]
    told: list[Told]


class Past(Struct, gc=False):
    """An ended run that is in no segment yet."""

    line: RunLine
    run: bytes
    parts: Parts


class PastGraph(Struct, gc=False):
    """A definition that is in no segment yet."""

    line: GraphLine
    row: bytes


class PastAudit(Struct, gc=False):
    """An audit that is in no segment yet."""

    line: AuditLine
    row: bytes


class Index(Struct, array_like=True):
    """What a segment holds, in the order of its rows: runs by their ends, the rest by number."""

    runs: list[RunLine]
    graphs: list[GraphLine]
    audits: list[AuditLine]

    def lines(self) -> Iterable[Line]:
        """All of it."""
        return (*self.runs, *self.graphs, *self.audits)


class _Lines(Struct, array_like=True):
    """An index of which no line has been read."""

    runs: list[Raw]
    graphs: list[Raw]
    audits: list[Raw]


class Segment(Struct, array_like=True):
    """A segment, as a checkpoint names it. What ended at `expired` or before is gone."""

    rows: BlobRef
    index: BlobRef
    # Of everything in it: the first and the last end.
    first_end: Millis
    last_end: Millis
    # The newest run and the newest audit in it; 0 if there are none.
    last_run: int
    last_audit: int
    expired: Millis | None = None

    def is_past(self, ended_at: Millis) -> bool:
        """Whether what ended then is gone."""
        return self.expired is not None and ended_at <= self.expired


_encode = msgspec.msgpack.Encoder().encode
_lines_of = msgspec.msgpack.Decoder(_Lines).decode
_run_line_of = msgspec.msgpack.Decoder(RunLine).decode
_graph_line_of = msgspec.msgpack.Decoder(GraphLine).decode
_audit_line_of = msgspec.msgpack.Decoder(AuditLine).decode
_parts_of = msgspec.msgpack.Decoder(Parts).decode


def result_fences(run: bytes, tasks: Sequence[bytes]) -> tuple[Fence, ...]:
    """The attempts of a run whose results are referred to."""
    found: list[Task] = [FORMS[TASK].read(row) for row in tasks]
    row: Run = FORMS[RUN].read(run)
    if row.solo is not None:
        found.append(row.solo)
    return tuple(task.done_fence for task in found if task.result is not None)


class _Run(Struct, gc=False):
    """An ended run as it goes into a segment: its row and the rest of it, as bytes."""

    line: RunLine
    run: bytes
    parts: bytes


class _Content(Struct):
    """What goes into a segment."""

    runs: list[_Run] = []
    graphs: list[PastGraph] = []
    audits: list[PastAudit] = []


class _Pages(Struct):
    """A segment before it is stored."""

    rows: bytes
    index: bytes
    first_end: Millis
    last_end: Millis
    last_run: int
    last_audit: int


class _Rows:
    """Rows one after the other."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, row: bytes) -> tuple[int, int]:
        """Where it is now."""
        at = self.size
        self.pieces.append(row)
        self.size += len(row)
        return at, len(row)


async def write_segment(
    blobs: Blobs,
    epoch: Epoch,
    number: int,
    past: tuple[Sequence[Past], Sequence[PastGraph], Sequence[PastAudit]],
) -> Segment:
    """Store a segment with all of this."""

    def work() -> _Pages:
        runs, graphs, audits = past
        return _lay_out(_Content([_packed(each) for each in runs], list(graphs), list(audits)))

    # In a thread: a hundred thousand runs take half a second, and leases are renewed meanwhile.
    return await _store(blobs, epoch, number, await asyncio.to_thread(work))


async def merge_segments(
    blobs: Blobs, epoch: Epoch, number: int, segments: Sequence[tuple[Segment, Index]], left: Container[int]
) -> Segment | None:
    """Store what is left of segments that follow each other as one, without runs that have left history."""
    content = _Content()
    for segment, index in segments:
        rows = await blobs.get(segment.rows)
        await asyncio.to_thread(_take, content, segment, index, rows, left)
    if not (content.runs or content.graphs or content.audits):
        return None
    return await _store(blobs, epoch, number, await asyncio.to_thread(_lay_out, content))


def _packed(past: Past) -> _Run:
    fences = result_fences(past.run, past.parts.tasks)
    return _Run(replace(past.line, fences=fences), past.run, _encode(past.parts))


def _take(content: _Content, segment: Segment, index: Index, rows: bytes, left: Container[int]) -> None:
    """Add what is left of a segment."""

    def cut(line: Line) -> bytes:
        return rows[line.at : line.at + line.size]

    for line in index.runs:
        if not segment.is_past(line.ended_at) and line.number not in left:
            content.runs.append(_Run(line, cut(line), rows[line.parts_at : line.parts_at + line.parts_size]))
    content.graphs += [PastGraph(line, cut(line)) for line in index.graphs if not segment.is_past(line.ended_at)]
    content.audits += [PastAudit(line, cut(line)) for line in index.audits if not segment.is_past(line.ended_at)]


def _lay_out(content: _Content) -> _Pages:
    rows, index = _Rows(), Index([], [], [])
    ordered = sorted(content.runs, key=lambda each: (each.line.ended_at, each.line.number))
    # The runs' own rows together: a page shows nothing else.
    for each in ordered:
        at, size = rows.add(each.run)
        index.runs.append(replace(each.line, at=at, size=size))
    for each, line in zip(ordered, index.runs, strict=True):
        line.parts_at, line.parts_size = rows.add(each.parts)
    for graph in content.graphs:
        at, size = rows.add(graph.row)
        bundle = bundle_in_row(graph.row) if graph.line.bundle is None else graph.line.bundle
        index.graphs.append(replace(graph.line, at=at, size=size, bundle=bundle))
    for audit in content.audits:
        at, size = rows.add(audit.row)
        index.audits.append(replace(audit.line, at=at, size=size))
    ends = [line.ended_at for line in index.lines()]
    return _Pages(
        b"".join(rows.pieces),
        _encode(index),
        min(ends),
        max(ends),
        max((line.number for line in index.runs), default=0),
        max((line.number for line in index.audits), default=0),
    )


async def _store(blobs: Blobs, epoch: Epoch, number: int, pages: _Pages) -> Segment:
    return Segment(
        await blobs.put(blob_name(HISTORY, epoch, number, "rows"), pages.rows),
        await blobs.put(blob_name(HISTORY, epoch, number, "index"), pages.index),
        pages.first_end,
        pages.last_end,
        pages.last_run,
        pages.last_audit,
    )


async def _read_lines(lines: list[Raw], read: Callable[[Raw], L], wanted: list[bytes]) -> list[L]:
    found: list[L] = []
    for at in range(0, len(lines), _LINES_AT_ONCE):
        some = lines[at : at + _LINES_AT_ONCE]
        found += [read(line) for line in some if all(text in bytes(line) for text in wanted)]
        await asyncio.sleep(0)
    return found


class Segments:
    """Reads segments. The indexes that were used last stay in memory, as bytes.

    A line of an index takes nearly six times its bytes once it is read, and whoever looks for one run looks in vain in
    all segments but one. So the bytes are what is kept and looked through, and only lines that may be meant are read.
    """

    def __init__(self, blobs: Blobs, bytes_max: int = INDEXES_BYTES_MAX) -> None:
        self._blobs = blobs
        self._bytes_max = bytes_max
        self._indexes: OrderedDict[str, bytes] = OrderedDict()
        self.held_bytes = 0

    async def index(self, segment: Segment, *texts: str) -> Index:
        """What a segment holds; with texts, only lines that have all of them somewhere."""
        content = await self._content(segment)
        wanted = [text.encode(errors="surrogatepass") for text in texts if text]
        if not all(text in content for text in wanted):
            return Index([], [], [])
        try:
            lines = _lines_of(content)
            return Index(
                await _read_lines(lines.runs, _run_line_of, wanted),
                await _read_lines(lines.graphs, _graph_line_of, wanted),
                await _read_lines(lines.audits, _audit_line_of, wanted),
            )
        except msgspec.MsgspecError as error:
            raise corrupt(f"{segment.index.name} is not an index of history: {error}") from error

    async def _content(self, segment: Segment) -> bytes:
        name = segment.index.name
        if name not in self._indexes:
            content = await self._blobs.get(segment.index)
            if name not in self._indexes:
                self._indexes[name] = content
                self.held_bytes += len(content)
        self._indexes.move_to_end(name)
        content = self._indexes[name]
        while self.held_bytes > self._bytes_max:
            _, dropped = self._indexes.popitem(last=False)
            self.held_bytes -= len(dropped)
        return content

    async def parts(self, segment: Segment, line: RunLine) -> Parts:
        """What a run of a segment has beside its own row."""
        (content,) = await self.read(segment, [(line.parts_at, line.parts_size)])
        try:
            return _parts_of(content)
        except msgspec.MsgspecError as error:
            raise corrupt(f"{segment.rows.name} is damaged at {line.parts_at}: {error}") from error

    async def read(self, segment: Segment, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Rows by where they are, in that order; those beside each other are read at once."""
        found: dict[tuple[int, int], bytes] = {}
        together: list[tuple[int, int]] = []
        for at, size in sorted(places):
            if together:
                first, (last_at, last_size) = together[0][0], together[-1]
                if at - last_at - last_size > _GAP_BYTES or at + size - first > READ_BYTES_MAX:
                    found.update(await self._read(segment, together))
                    together = []
            together.append((at, size))
        if together:
            found.update(await self._read(segment, together))
        return [found[place] for place in places]

    async def _read(self, segment: Segment, places: list[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
        first, end = places[0][0], places[-1][0] + places[-1][1]
        pieces = [
            await self._blobs.read(segment.rows.name, at, min(READ_BYTES_MAX, end - at))
            for at in range(first, end, READ_BYTES_MAX)
        ]
        content = b"".join(pieces)
        if len(content) != end - first:
            raise corrupt(f"{segment.rows.name} is shorter than it was")
        return {(at, size): content[at - first : at - first + size] for at, size in places}
