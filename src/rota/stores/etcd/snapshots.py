"""Snapshots of live records in blobs: chunks, and a manifest that names them and the segments of history."""

import asyncio
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from rota.core.ids import BlobRef, Epoch, Millis, RunId
from rota.ports import Blobs
from rota.stores.etcd.entries import Told
from rota.stores.etcd.failures import corrupt
from rota.stores.etcd.keys import SNAPSHOTS, blob_name, manifest_name
from rota.stores.etcd.mirror import Counts, Frozen, Mirror
from rota.stores.etcd.rows import Row
from rota.stores.etcd.segments import Segment

CHUNK_BYTES = 4 * 1024 * 1024


class Chunk(Struct, array_like=True):
    """Some live records, or some of their stories."""

    rows: list[Row] = []
    told: list[tuple[str, RunId, Millis, list[Told]]] = []


class Manifest(Struct, array_like=True):
    """A checkpoint: the state after the entry `number`."""

    number: int
    chunks: list[BlobRef]
    segments: list[Segment]
    counts: Counts
    # Runs that left history and have their lines in a segment still, by their numbers.
    left: list[int] = []

    @property
    def bytes(self) -> int:
        """How large the snapshot is."""
        return sum(chunk.size for chunk in self.chunks)


class Pointer(Struct, array_like=True):
    """What the key of the checkpoint holds."""

    number: int
    manifest: BlobRef


_encode = msgspec.msgpack.Encoder().encode
_chunk_of = msgspec.msgpack.Decoder(Chunk).decode
_manifest_of = msgspec.msgpack.Decoder(Manifest).decode
_pointer_of = msgspec.msgpack.Decoder(Pointer).decode


def read_pointer(value: bytes) -> Pointer | None:
    """Where the checkpoint is; None if there has been none."""
    if not value:
        return None
    try:
        return _pointer_of(value)
    except msgspec.MsgspecError as error:
        raise corrupt(f"the key of the checkpoint holds something else: {error}") from error


def write_pointer(pointer: Pointer) -> bytes:
    """The value for the key of the checkpoint."""
    return _encode(pointer)


def _chunks(frozen: Frozen) -> Iterator[Chunk]:
    rows: list[Row] = []
    size = 0
    for row in frozen.rows:
        rows.append(row)
        size += len(row[1])
        if size > CHUNK_BYTES:
            yield Chunk(rows)
            rows, size = [], 0
    if rows:
        yield Chunk(rows)
    told: list[tuple[str, RunId, Millis, list[Told]]] = []
    size = 0
    for each in frozen.told:
        told.append(each)
        size += sum(len(part[2]) for part in each[3])
        if size > CHUNK_BYTES:
            yield Chunk(told=told)
            told, size = [], 0
    if told:
        yield Chunk(told=told)


async def write_snapshot(
    blobs: Blobs, epoch: Epoch, number: int, frozen: Frozen, segments: list[Segment], left: dict[int, None]
) -> tuple[Manifest, Pointer]:
    """Store a snapshot, chunk by chunk: others get their turn in between."""
    chunks: list[BlobRef] = []
    for at, chunk in enumerate(_chunks(frozen)):
        chunks.append(await blobs.put(blob_name(SNAPSHOTS, epoch, number, f"{at:06x}"), _encode(chunk)))
        await asyncio.sleep(0)
    manifest = Manifest(frozen.number, chunks, segments, frozen.counts, list(left))
    ref = await blobs.put(manifest_name(epoch, number, frozen.number), _encode(manifest))
    return manifest, Pointer(frozen.number, ref)


async def read_manifest(blobs: Blobs, pointer: Pointer) -> Manifest:
    """What a pointer names. Raises `BlobLost` if it is gone: perhaps there is a newer one by now."""
    try:
        return _manifest_of(await blobs.get(pointer.manifest))
    except msgspec.MsgspecError as error:
        raise corrupt(f"{pointer.manifest.name} is not a checkpoint: {error}") from error


async def read_snapshot(blobs: Blobs, pointer: Pointer) -> Mirror:
    """The mirror of a checkpoint. Raises `BlobLost` as `read_manifest` does."""
    manifest = await read_manifest(blobs, pointer)
    mirror = Mirror(manifest.number)
    mirror.segments = manifest.segments
    mirror.counts = manifest.counts
    mirror.left = dict.fromkeys(manifest.left)
    mirror.snapshot_bytes = manifest.bytes
    for ref in manifest.chunks:
        try:
            chunk = _chunk_of(await blobs.get(ref))
        except msgspec.MsgspecError as error:
            raise corrupt(f"{ref.name} is not a part of a snapshot: {error}") from error
        mirror.fill(chunk.rows)
        for tenant, run, created_at, told in chunk.told:
            mirror.told[tenant, run, created_at] = told
    return mirror
