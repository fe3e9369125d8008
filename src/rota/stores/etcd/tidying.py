"""Housekeeping: forget what is too old, make checkpoints, remove what the last one made superfluous.

A checkpoint moves what the log adds up to into blobs, and the past into a segment of history; then one transaction
names it, and the entries before it can go. Each step looks at what there is, so that it may be stopped anywhere and
done again, by another writer too: blobs that nothing names are swept, and a pointer moves only under its epoch.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Collection
from itertools import groupby

from msgspec import Struct

from rota.core.bounds import ROWS_PER_TIDY
from rota.core.errors import Refused, Unavailable
from rota.core.ids import Millis
from rota.ports import Blobs, Fenced
from rota.stores.etcd import rpc_pb2 as rpc
from rota.stores.etcd.client import Client
from rota.stores.etcd.entries import Entry
from rota.stores.etcd.failures import FULL_HINT
from rota.stores.etcd.history import History
from rota.stores.etcd.keys import HISTORY, SNAPSHOTS, Keys, epoch_of
from rota.stores.etcd.log import Log, Reign
from rota.stores.etcd.mirror import Frozen, Mirror
from rota.stores.etcd.replica import Replica
from rota.stores.etcd.segments import Index, Segment, merge_segments, write_segment
from rota.stores.etcd.snapshots import Manifest, Pointer, read_manifest, read_pointer, write_pointer, write_snapshot

# Nothing is stored later than this: the end of the year 9998.
_ALWAYS: Millis = 253_370_764_800_000
# What merged segments may have at most, since they are in memory meanwhile; and what is small, whatever its size.
_MERGED_BYTES_MAX = 64 * 1024 * 1024
_SMALL_BYTES = 64 * 1024
# How often etcd is asked how large it is.
_LOOK_EVERY_S = 30.0
# From where on checkpoints are made sooner, and from where on somebody is told: of its quota.
_CROWDED_PERCENT = 50
_NEARLY_FULL_PERCENT = 80


class Bounds(Struct, frozen=True):
    """How much the log may hold beyond its checkpoint: so many entries or bytes, and this share of the snapshot.

    Loading reads all of it, and etcd keeps it. A large snapshot is not written anew for a few entries.
    """

    entries: int = 5_000
    bytes: int = 8 * 1024 * 1024
    share_percent: int = 50
    # How many segments of about one size are made one.
    merge_at: int = 8
    # What an etcd is taken to have that does not tell its quota, as those before 3.6: what they have by default.
    quota_bytes: int = 2 * 1024 * 1024 * 1024


class Size(Struct, frozen=True):
    """How large etcd is, as it said last. What counts against its quota is the file, and not how much of it is used."""

    file_bytes: int = 0
    used_bytes: int = 0
    quota_bytes: int = 0
    is_full: bool = False

    @property
    def is_crowded(self) -> bool:
        """Whether the log should be kept shorter."""
        return self.is_full or self.used_bytes * 100 > self.quota_bytes * _CROWDED_PERCENT

    @property
    def is_nearly_full(self) -> bool:
        """Whether somebody should look after it, before nothing can be written."""
        return self.is_full or self.file_bytes * 100 > self.quota_bytes * _NEARLY_FULL_PERCENT


def read_size(status: rpc.StatusResponse, alarms: rpc.AlarmResponse, bounds: Bounds) -> Size:
    """From what a member says of itself."""
    is_full = any(each.alarm == rpc.AlarmMember.NOSPACE for each in alarms.alarms)
    return Size(status.db_size, status.db_size_in_use, status.db_size_quota or bounds.quota_bytes, is_full)


def _warning(size: Size, where: str) -> str:
    file_mb, used_mb, quota_mb = [count // 1_000_000 for count in (size.file_bytes, size.used_bytes, size.quota_bytes)]
    text = f"etcd at {where} takes {file_mb:,} of {quota_mb:,} MB, {used_mb:,} of them in use"
    return f"{text}. {FULL_HINT}"


class Tidier:
    """Housekeeping of one store."""

    def __init__(
        self,
        client: Client,
        keys: Keys,
        blobs: Blobs,
        log: Log,
        replica: Replica,
        history: History,
        bounds: Bounds,
        warn: Callable[[str], None] | None,
    ) -> None:
        self._client = client
        self._keys = keys
        self._blobs = blobs
        self._log = log
        self._replica = replica
        self._history = history
        self._bounds = bounds
        self._warn = warn
        self._looked_at: float | None = None
        self._compact_from = 0
        # Whether blobs of history may be there that nothing names. Nobody knows what the last writer left.
        self._is_history_littered = True
        self._size = Size()

    async def tidy(self, reign: Reign, writing: asyncio.Lock, until: Millis) -> int:
        """One slice; how many rows it moved or removed. What ended at `until` or before is too old."""
        standing, mirror = await self._replica.current()
        if mirror.based_on != (standing.pointer.number if standing.pointer is not None else 0):
            # Loaded while a checkpoint was being made: its segments may be gone.
            self._replica.forget()
            standing, mirror = await self._replica.current()
        if standing.epoch != reign.epoch:
            raise Fenced(f"epoch {reign.epoch} has passed; {standing.epoch} reigns")
        if not reign.checkpoint.is_certain:
            await self._log.renew(reign, reign.checkpoint)
        await self._look()
        rows = await self._count_expired(mirror, until)
        if rows:
            async with writing:
                entry = Entry(expired=until)
                number, size = await self._log.append(reign, entry)
                mirror.apply(number, entry, size)
            return min(rows, ROWS_PER_TIDY)
        if self._is_due(mirror):
            return await self._checkpoint(reign, mirror)
        return await self._sweep(reign)

    # What is too old.

    async def _count_expired(self, mirror: Mirror, until: Millis) -> int:
        rows = sum(each.line.ended_at <= until for each in (*mirror.pasts, *mirror.graphs.values(), *mirror.audits))
        for segment in mirror.segments:
            is_done = segment.is_past(min(until, segment.last_end))
            if segment.first_end <= until and not is_done:
                lines = (await self._history.segments.index(segment)).lines()
                rows += sum(line.ended_at <= until and not segment.is_past(line.ended_at) for line in lines)
        return rows

    # Checkpoints.

    def _is_due(self, mirror: Mirror) -> bool:
        bounds, sooner = self._bounds, 4 if self._size.is_crowded else 1
        is_long = mirror.entries >= max(1, bounds.entries // sooner) or mirror.bytes >= bounds.bytes // sooner
        if is_long and mirror.bytes * 100 >= mirror.snapshot_bytes * bounds.share_percent // sooner:
            return True
        return any(segment.is_past(segment.last_end) for segment in mirror.segments)

    async def _checkpoint(self, reign: Reign, mirror: Mirror) -> int:
        frozen, entries, size = mirror.freeze(), mirror.entries, mirror.bytes
        self._is_history_littered = True
        segments = await self._segments(reign, frozen)
        left = _left_in(segments, _left_by_segment(frozen))
        manifest, pointer = await write_snapshot(self._blobs, reign.epoch, reign.next_attempt(), frozen, segments, left)
        self._compact_from = reign.checkpoint.revision
        await self._log.point(reign, write_pointer(pointer))
        kept = [segment.rows.name for segment in segments]
        self._is_history_littered = any(segment.rows.name not in kept for segment in frozen.segments)
        mirror.settle(frozen, segments, left, entries, size)
        mirror.snapshot_bytes = manifest.bytes
        reign.swept = -1
        return min(ROWS_PER_TIDY, max(1, entries))

    async def _segments(self, reign: Reign, frozen: Frozen) -> list[Segment]:
        """The segments of a checkpoint: those of before without what is too old, and one with what came since."""
        segments: list[Segment] = []
        left = _left_by_segment(frozen)
        for segment in frozen.segments:
            if segment.is_past(segment.last_end):
                continue
            own = left.get(segment.rows.name, ())
            is_worn = (segment.is_past(segment.first_end) or bool(own)) and _is_mostly_past(
                segment, await self._history.segments.index(segment), own
            )
            segments += await self._merged(reign, [segment], frozen) if is_worn else [segment]
        past = (frozen.pasts, frozen.graphs, frozen.audits)
        if any(past):
            segments.append(await write_segment(self._blobs, reign.epoch, reign.next_attempt(), past))
        first, end = _mergeable(segments, self._bounds.merge_at)
        if first < end:
            segments[first:end] = await self._merged(reign, segments[first:end], frozen)
        return segments

    async def _merged(self, reign: Reign, segments: list[Segment], frozen: Frozen) -> list[Segment]:
        """What is left of segments as one; nothing, if nothing is."""
        indexed = [(segment, await self._history.segments.index(segment)) for segment in segments]
        merged = await merge_segments(self._blobs, reign.epoch, reign.next_attempt(), indexed, frozen.left)
        return [] if merged is None else [merged]

    # What a checkpoint made superfluous.

    async def _sweep(self, reign: Reign) -> int:
        """Remove entries before the checkpoint, some at a time, and in the end the blobs that nothing names."""
        pointer = read_pointer(reign.checkpoint.value)
        if pointer is None or reign.swept == pointer.number:
            return 0
        removed = await self._sweep_log(reign, pointer)
        if removed:
            return removed
        await self._compact()
        removed = await self._sweep_blobs(reign, pointer)
        reign.swept = pointer.number
        return min(removed, ROWS_PER_TIDY)

    async def _sweep_log(self, reign: Reign, pointer: Pointer) -> int:
        end = self._keys.entry(pointer.number + 1)
        first = await self._client.read(self._keys.entry(0), end, limit=1, keys_only=True)
        if first.kvs:
            number = self._keys.number_of(first.kvs[0].key)
            last = min(pointer.number, number + ROWS_PER_TIDY - 1)
            return await self._log.delete(reign, first.kvs[0].key, self._keys.entry(last + 1))
        # Parts of entries that are gone, and those of writers who never came to move the head.
        start, end = self._keys.part(0), self._keys.part(pointer.number + 1)
        first = await self._client.read(start, end, limit=1, keys_only=True)
        return min(ROWS_PER_TIDY, await self._log.delete(reign, start, end)) if first.kvs else 0

    async def _compact(self) -> None:
        """Let etcd forget what the last checkpoint but one had superseded; otherwise it keeps every value ever put."""
        revision, self._compact_from = self._compact_from, 0
        if revision <= 0:
            return
        try:
            await self._client.compact(revision)
        except (Refused, Unavailable):
            # Somebody else did, or only an administrator may. It grows, and says so when it is full.
            return

    async def _sweep_blobs(self, reign: Reign, pointer: Pointer) -> int:
        manifest = await read_manifest(self._blobs, pointer)
        wanted = _names(manifest, pointer)

        def is_wanted(name: str) -> bool:
            # Not those of later reigns: should this one have been deposed, it would not know what they need.
            return name in wanted or not 0 < epoch_of(name) <= reign.epoch

        removed = await self._blobs.collect(SNAPSHOTS, is_wanted, _ALWAYS)
        if self._is_history_littered:
            removed += await self._blobs.collect(HISTORY, is_wanted, _ALWAYS)
            self._is_history_littered = False
        return removed

    # How etcd is.

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._looked_at is not None and now < self._looked_at + _LOOK_EVERY_S:
            return
        self._looked_at = now
        try:
            status, alarms = await self._client.status(), await self._client.alarms()
        except (Refused, Unavailable):
            # Not everybody may ask.
            return
        before, self._size = self._size, read_size(status, alarms, self._bounds)
        if self._warn is not None and self._size.is_nearly_full and not before.is_nearly_full:
            self._warn(_warning(self._size, self._client.address.shown))


def _is_mostly_past(segment: Segment, index: Index, left: Collection[int]) -> bool:
    lines = list(index.lines())
    return 2 * (len(left) + sum(segment.is_past(line.ended_at) for line in lines)) > len(lines)


def _left_by_segment(frozen: Frozen) -> dict[str, list[int]]:
    """Which runs that left history have their lines in which segment, by the name of its rows.

    Numbers grow from segment to segment, so a number is in the first that goes as far. What went before it was ever in
    one is in none.
    """
    segments = [segment for segment in frozen.segments if segment.last_run]
    lasts = [segment.last_run for segment in segments]
    found: dict[str, list[int]] = {}
    for number in frozen.left:
        at = bisect_left(lasts, number)
        if at < len(segments):
            found.setdefault(segments[at].rows.name, []).append(number)
    return found


def _left_in(segments: list[Segment], left: dict[str, list[int]]) -> dict[int, None]:
    """What still has to be hidden in these segments: those that were written anew have it no more."""
    return dict.fromkeys(number for segment in segments for number in left.get(segment.rows.name, ()))


def _mergeable(segments: list[Segment], count: int) -> tuple[int, int]:
    """Where so many neighbours of about one size are, the newest such: from the first up to and without the last."""

    def magnitude(at: int) -> int:
        # Eight of one become one of the next.
        return (segments[at].rows.size // _SMALL_BYTES).bit_length() // 3

    for _, group in reversed([(size, list(places)) for size, places in groupby(range(len(segments)), magnitude)]):
        first, end = group[0], group[0] + count
        if end <= group[-1] + 1 and sum(each.rows.size for each in segments[first:end]) <= _MERGED_BYTES_MAX:
            return first, end
    return 0, 0


def _names(manifest: Manifest, pointer: Pointer) -> frozenset[str]:
    refs = [pointer.manifest, *manifest.chunks]
    for segment in manifest.segments:
        refs += [segment.rows, segment.index]
    return frozenset(ref.name for ref in refs)
