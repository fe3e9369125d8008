"""Blobs on `obstore`: a local folder, S3, GCS, Azure, or memory, by URL.

Content is hashed while it is written and checked while it is read, in pieces, so that a large blob is never in memory
whole unless its reader asks for that.

Every call is made in a thread and waits there. The asynchronous calls of `obstore` answer from threads of their own,
and a program that ends right after such an answer is aborted now and then: one in ten, with 0.12 on Python 3.11.
"""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, from_url

from rota.core.errors import Refused
from rota.core.ids import BlobRef, Millis
from rota.ports import BlobLost, Blobs, Listed
from rota.wire.flushing import flush

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PIECE_BYTES = 1024 * 1024
# Parts of an upload, and how many of them are in memory at once.
PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 2
READ_BYTES_MAX = 8 * 1024 * 1024
# Where it says whose blobs these are: the coordinator's of a data folder, or the store's that coordinators share.
# No tenant has anything beside it: ids become names without a leading dot.
MARK = ".rota/home"
_MARK_BYTES_MAX = 200
NAME_BYTES_MAX = 1_024
SEGMENT_BYTES_MAX = 255

R = TypeVar("R")


class ObjectBlobs:
    """The Blobs port on any object store."""

    def __init__(self, store: "ObjectStore", root: Path | None = None, bucket: str = "") -> None:
        """`root` is the folder of a local store, whose files are flushed to disk before a reference is given out.

        `bucket` says which one it is, as `s3://name`.
        """
        self._store = store
        self._root = root
        self.bucket = bucket

    async def put(self, name: str, content: bytes | Path, *, is_durable: bool = True) -> BlobRef:
        """Store content whole under a name; nobody ever sees a part of it."""
        check_name(name)
        return await _apart(self._put, name, content, is_durable)

    def _put(self, name: str, content: bytes | Path, is_durable: bool) -> BlobRef:
        hashed = sha256()
        if isinstance(content, Path):
            size = 0

            def pieces() -> Iterator[bytes]:
                nonlocal size
                with content.open("rb", buffering=0) as file:
                    while piece := file.read(PIECE_BYTES):
                        hashed.update(piece)
                        size += len(piece)
                        yield piece

            obstore.put(self._store, name, pieces(), chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        else:
            size = len(content)
            hashed.update(content)
            obstore.put(self._store, name, content, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
        if self._root is not None and is_durable:
            _flush(self._root, name)
        return BlobRef(name, size, hashed.hexdigest())

    async def adopt(self, name: str, path: Path, *, is_durable: bool = True) -> None:
        """Move a file of this machine in under a name."""
        check_name(name)
        await _apart(self._adopt, name, path, is_durable)

    def _adopt(self, name: str, path: Path, is_durable: bool) -> None:
        if self._root is not None:
            target = self._root / name
            try:
                if is_durable:
                    # Before it has its name: after a loss of power the name must not stand for an empty file.
                    flush(path)
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.replace(target)
                if is_durable:
                    _flush(self._root, name)
                return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
        self._put(name, path, is_durable)
        path.unlink()

    def local(self, name: str) -> Path | None:
        """Where a blob lies as a file on this machine."""
        check_name(name)
        return None if self._root is None else self._root / name

    async def get(self, ref: BlobRef) -> bytes:
        """The content, checked. Raises BlobLost if it is gone or was changed."""
        check_name(ref.name)
        return await _in_thread(self._get, ref)

    def _get(self, given_up: threading.Event, ref: BlobRef) -> bytes:
        pieces = list(self._pieces(ref, given_up))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def fetch(self, ref: BlobRef, target: Path) -> None:
        """Copy the content to a file; the file is there only if it is right."""
        check_name(ref.name)
        await _in_thread(self._fetch, ref, target)

    def _fetch(self, given_up: threading.Event, ref: BlobRef, target: Path) -> None:
        part = target.with_name(f"{target.name}.part")
        try:
            with part.open("wb", buffering=0) as file:
                for piece in self._pieces(ref, given_up):
                    file.write(piece)
            if not given_up.is_set():
                part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """A part of a blob, unchecked; less than was asked for only at its end. Raises BlobLost if it is gone."""
        check_name(name)
        if offset < 0 or not 0 < size <= READ_BYTES_MAX:
            raise ValueError(f"{size:,} bytes from {offset:,} cannot be read at once; at most {READ_BYTES_MAX:,} can")
        return await _apart(self._range, name, offset, size)

    def _range(self, name: str, offset: int, size: int) -> bytes:
        try:
            # Stores disagree about a range that begins at the end or beyond it; nobody is asked for one.
            there = obstore.head(self._store, name)["size"] - offset
            if there <= 0:
                return b""
            return bytes(obstore.get_range(self._store, name, start=offset, length=min(size, there)))
        except FileNotFoundError:
            raise BlobLost(f"{name} is gone") from None

    async def list(self, prefix: str) -> list[Listed]:
        """What is directly under a prefix, in the order of its names; without one, at the top."""
        if prefix:
            check_name(prefix)
        return await _apart(self._list, prefix)

    def _list(self, prefix: str) -> "list[Listed]":
        found = obstore.list_with_delimiter(self._store, prefix)  # pyright: ignore[reportUnknownMemberType]  # Arrow's overload
        cut = len(prefix) + 1 if prefix else 0
        listed = [Listed(blob["path"][cut:], blob["size"]) for blob in found["objects"]]
        listed += [Listed(folder[cut:], 0, is_folder=True) for folder in found["common_prefixes"]]
        return sorted(listed, key=lambda each: each.name)

    async def collect(self, prefix: str, is_wanted: Callable[[str], bool], older_than: Millis) -> int:
        """Remove what is under a prefix, was stored before an instant and nobody refers to; how many that were."""
        check_name(prefix)
        return await _in_thread(self._collect, prefix, is_wanted, older_than)

    def _collect(
        self, given_up: threading.Event, prefix: str, is_wanted: Callable[[str], bool], older_than: Millis
    ) -> int:
        before = datetime.fromtimestamp(older_than / 1_000, UTC)
        removed = 0
        listed = obstore.list(self._store, prefix=prefix)  # pyright: ignore[reportUnknownMemberType]  # Arrow's overload
        for found in listed:
            unwanted = [
                blob["path"] for blob in found if blob["last_modified"] < before and not is_wanted(blob["path"])
            ]
            if given_up.is_set():
                break
            if unwanted:
                obstore.delete(self._store, unwanted)
                removed += len(unwanted)
        return removed

    async def drop(self, names: Sequence[str]) -> None:
        """Remove blobs by their names."""
        for name in names:
            check_name(name)
        await _apart(self._drop, names)

    def _drop(self, names: Sequence[str]) -> None:
        if self._root is None:
            for name in names:
                with suppress(FileNotFoundError):
                    obstore.delete(self._store, name)
        else:
            for name in names:
                (self._root / name).unlink(missing_ok=True)

    def _pieces(self, ref: BlobRef, given_up: threading.Event) -> Iterator[bytes]:
        """The content piece by piece; raises at the end if it was not what it should be."""
        try:
            found = obstore.get(self._store, ref.name)
        except FileNotFoundError:
            raise BlobLost(f"{ref.name} is gone") from None
        if found.meta["size"] != ref.size:
            raise BlobLost(f"{ref.name} has {found.meta['size']:,} bytes instead of {ref.size:,}")
        hashed = sha256()
        for piece in found.stream(min_chunk_size=PIECE_BYTES):
            if given_up.is_set():
                raise InterruptedError(f"{ref.name} is not wanted any more")
            content = bytes(piece)
            hashed.update(content)
            yield content
        if hashed.hexdigest() != ref.sha256:
            raise BlobLost(f"{ref.name} is not what was stored: its SHA-256 is {hashed.hexdigest()}, not {ref.sha256}")


async def _apart(work: Callable[..., R], *args: object) -> R:
    """Do something in a thread. What the store has against it is told in one line, without its pages of details."""
    try:
        return await asyncio.to_thread(work, *args)
    except BaseError as error:
        raise OSError(str(error).partition("\n")[0]) from error


async def _in_thread(work: Callable[..., R], *args: object) -> R:
    """Do something long in a thread, which stops soon after whoever waits for it has been cancelled."""
    given_up = threading.Event()
    try:
        return await _apart(work, given_up, *args)
    except asyncio.CancelledError:
        given_up.set()
        raise


def open_blobs(place: str | Path) -> ObjectBlobs:
    """Blobs at a folder or a URL (`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///…`, `memory:///`)."""
    text = str(place)
    if text.startswith("memory:"):
        return ObjectBlobs(MemoryStore())
    if text.startswith("file://"):
        place = Path(text.removeprefix("file://"))
    elif "://" in text:
        scheme, _, rest = text.partition("://")
        return ObjectBlobs(_from_url(text), bucket=f"{scheme}://{rest.partition('/')[0]}")
    root = Path(place).absolute()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return ObjectBlobs(LocalStore(root), root)


def store_of_blobs(blobs: Blobs) -> str:
    """The bucket in which blobs are, as `s3://name`; "" if they are in none."""
    return blobs.bucket if isinstance(blobs, ObjectBlobs) else ""


def _from_url(url: str) -> "ObjectStore":
    try:
        return from_url(url)
    except Exception as error:  # whatever the library objects to; its words may hold what was in the URL
        scheme, _, rest = url.partition("://")
        shown = f"{scheme}://{rest.rpartition('@')[2][:200]}"
        text = f"{shown} cannot be used for blobs ({type(error).__name__})"
        raise Refused(
            "config.value", text, "Name a folder, or s3://, gs:// or az:// with a bucket.", path="server.blobs"
        ) from None


async def find_mark(blobs: Blobs) -> str:
    """The mark at a place; empty if there is none."""
    try:
        return (await blobs.read(MARK, 0, _MARK_BYTES_MAX)).decode(errors="replace").strip()
    except BlobLost:
        return ""


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
        flush(place)
