"""Blobs on `obstore`: a local folder, S3, GCS, Azure, or memory, by URL.

Content is hashed while it is written and checked while it is read, in pieces, so that a large blob is never in memory
whole unless its reader asks for that.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.store import LocalStore, MemoryStore, from_url

from rota.core.ids import BlobRef, Millis
from rota.ports import BlobLost

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PIECE_BYTES = 1024 * 1024
# Parts of an upload, and how many of them are in memory at once.
PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 2
NAME_BYTES_MAX = 1_024
SEGMENT_BYTES_MAX = 255


class ObjectBlobs:
    """The Blobs port on any object store."""

    def __init__(self, store: "ObjectStore", root: Path | None = None) -> None:
        """`root` is the folder of a local store, whose files are flushed to disk before a reference is given out."""
        self._store = store
        self._root = root

    async def put(self, name: str, content: bytes | Path) -> BlobRef:
        """Store content whole under a name; nobody ever sees a part of it."""
        check_name(name)
        hashed = sha256()
        if isinstance(content, Path):
            size = 0

            async def pieces() -> AsyncIterator[bytes]:
                nonlocal size
                with content.open("rb", buffering=0) as file:
                    while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                        await asyncio.to_thread(hashed.update, piece)
                        size += len(piece)
                        yield piece

            await obstore.put_async(self._store, name, pieces(), chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        else:
            size = len(content)
            await asyncio.to_thread(hashed.update, content)
            await obstore.put_async(self._store, name, content, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        if self._root is not None:
            await asyncio.to_thread(_flush, self._root, name)
        return BlobRef(name, size, hashed.hexdigest())

    async def get(self, ref: BlobRef) -> bytes:
        """The content, checked. Raises BlobLost if it is gone or was changed."""
        pieces = [piece async for piece in self._read(ref)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self, ref: BlobRef, offset: int, size: int) -> bytes:
        """Part of the content, unchecked. Raises BlobLost if it is gone."""
        check_name(ref.name)
        length = min(size, ref.size - offset)
        if offset < 0 or length <= 0:
            return b""
        try:
            return bytes(await obstore.get_range_async(self._store, ref.name, start=offset, length=length))
        except FileNotFoundError:
            raise BlobLost(f"{ref.name} is gone") from None

    async def fetch(self, ref: BlobRef, target: Path) -> None:
        """Copy the content to a file; the file is there only if it is right."""
        part = target.with_name(f"{target.name}.part")
        try:
            with part.open("wb", buffering=0) as file:
                async for piece in self._read(ref):
                    await asyncio.to_thread(file.write, piece)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    async def collect(self, prefix: str, is_wanted: Callable[[str], bool], older_than: Millis) -> int:
        """Remove what is under a prefix, was stored before an instant and nobody refers to; how many that were."""
        check_name(prefix)
        before = datetime.fromtimestamp(older_than / 1_000, UTC)
        removed = 0
        listed = obstore.list(self._store, prefix=prefix)  # pyright: ignore[reportUnknownMemberType]  # Arrow's overload
        async for found in listed:
            unwanted = [
                blob["path"] for blob in found if blob["last_modified"] < before and not is_wanted(blob["path"])
            ]
            if unwanted:
                await obstore.delete_async(self._store, unwanted)
                removed += len(unwanted)
        return removed

    async def _read(self, ref: BlobRef) -> AsyncIterator[bytes]:
        """The content piece by piece; raises at the end if it was not what it should be."""
        check_name(ref.name)
        try:
            found = await obstore.get_async(self._store, ref.name)
        except FileNotFoundError:
            raise BlobLost(f"{ref.name} is gone") from None
        if found.meta["size"] != ref.size:
            raise BlobLost(f"{ref.name} has {found.meta['size']:,} bytes instead of {ref.size:,}")
        hashed = sha256()
        async for piece in found.stream(min_chunk_size=PIECE_BYTES):
            content = bytes(piece)
            await asyncio.to_thread(hashed.update, content)
            yield content
        if hashed.hexdigest() != ref.sha256:
            raise BlobLost(f"{ref.name} is not what was stored: its SHA-256 is {hashed.hexdigest()}, not {ref.sha256}")


def open_blobs(place: str | Path) -> ObjectBlobs:
    """Blobs at a folder or a URL (`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///…`, `memory:///`)."""
    text = str(place)
    if text.startswith("memory:"):
        return ObjectBlobs(MemoryStore())
    if text.startswith("file://"):
        place = Path(text.removeprefix("file://"))
    elif "://" in text:
        return ObjectBlobs(from_url(text))
    root = Path(place).absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return ObjectBlobs(LocalStore(root), root)


def check_name(name: str) -> None:
    """Refuse a name that would lead out of the root, or that a file system cannot hold."""
    segments = name.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        raise ValueError(f"{name!r} is no name for a blob: it has an empty part, '.' or '..'")
    if not name.isprintable() or "#" in name:
        # A local store keeps unfinished uploads under names with a '#'.
        raise ValueError(f"{name!r} is no name for a blob: it has a control character or '#'")
    if len(name.encode()) > NAME_BYTES_MAX or any(len(part.encode()) > SEGMENT_BYTES_MAX for part in segments):
        raise ValueError(f"a blob's name of {len(name)} characters is too long")


def _flush(root: Path, name: str) -> None:
    """Have a file and every folder on the way to it on disk: a reference outlives a loss of power."""
    path = root / name
    for place in (path, *list(path.parents)[: len(name.split("/"))]):
        fd = os.open(place, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
