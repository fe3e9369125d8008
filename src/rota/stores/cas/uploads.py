"""Uploads: content on its way in, which may be resumed by its name until it has been left alone for too long.

Small content is gathered in memory. Large content goes to a file of its own, a part at a time: a thread hashes and
writes what has gathered while more of it arrives.
"""

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import sha256
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from rota.core.errors import Unavailable
from rota.core.ids import Digest, Millis
from rota.ports import WrongContent
from rota.stores.cas.index import key_of
from rota.stores.cas.room import Room
from rota.stores.cas.stock import unavailable

# How many uploads may wait to be resumed; then the one that was left alone longest is forgotten.
UPLOADS_MAX = 1_000
# How long an upload that nobody goes on with is kept.
IDLE_MS = 10 * 60_000
# So much is handed over to a thread at once: enough for it to be worth the way there, and little enough to stay in the
# processor's cache meanwhile.
GATHERED_BYTES = 256 * 1024
# Many tiny pieces are no less work than a large one.
_CHUNKS_MAX = 1_024


class Keeper(Protocol):
    """Who keeps what was sent, once it is known to be right."""

    async def keep_small(self, tenant: str, digest: Digest, content: bytes) -> None:
        """Check and keep content that is in memory."""
        ...

    async def keep_large(self, tenant: str, digest: Digest, path: Path) -> None:
        """Keep a file that was checked; it is moved away, and room for it is held."""
        ...

    def see_through(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done that is not to be left halfway."""
        ...

    def apart(self, work: Callable[[], None]) -> Coroutine[Any, Any, None]:
        """Do something in a thread."""
        ...


class Known:
    """An upload of what is there already: nothing needs to be sent, and what is sent all the same is not looked at."""

    def __init__(self, digest: Digest) -> None:
        self.committed = digest.size

    async def write(self, offset: int, content: bytes | memoryview) -> None:
        """See the port."""

    async def finish(self) -> None:
        """See the port."""

    async def abort(self) -> None:
        """See the port."""


class _Sending:
    """What every upload knows: what it should become, how far it is, when it was used last."""

    def __init__(self, tenant: str, digest: Digest, clock: Callable[[], Millis], ended: Callable[[], None]) -> None:
        self.committed = 0
        self.used_at = clock()
        self._tenant = tenant
        self._digest = digest
        self._clock = clock
        self._ended = ended
        self._chunks: list[bytes | memoryview] = []

    def _take(self, offset: int, content: bytes | memoryview) -> int:
        """Gather what is new in some bytes; how many that are."""
        self.used_at = self._clock()
        size = self._digest.size
        if not 0 <= offset <= self.committed:
            raise WrongContent(f"bytes from {offset:,} came when those from {self.committed:,} were due")
        if offset + len(content) > size:
            raise WrongContent(f"more than {size:,} bytes came")
        fresh = content[self.committed - offset :]
        if fresh:
            self._chunks.append(fresh)
            self.committed += len(fresh)
        return len(fresh)

    def _check_size(self) -> None:
        if self.committed != self._digest.size:
            raise WrongContent(f"{self.committed:,} bytes came instead of {self._digest.size:,}")


class SmallUpload(_Sending):
    """Content that stays in memory until it is finished."""

    def __init__(
        self, keeper: Keeper, tenant: str, digest: Digest, clock: Callable[[], Millis], ended: Callable[[], None]
    ) -> None:
        super().__init__(tenant, digest, clock, ended)
        self._keeper = keeper

    async def write(self, offset: int, content: bytes | memoryview) -> None:
        """See the port."""
        try:
            self._take(offset, content)
        except WrongContent:
            self._ended()
            raise
        if len(self._chunks) > _CHUNKS_MAX:
            self._chunks = [b"".join(self._chunks)]

    async def finish(self) -> None:
        """See the port."""
        self._ended()
        self._check_size()
        await self._keeper.keep_small(self._tenant, self._digest, b"".join(self._chunks))

    async def abort(self) -> None:
        """See the port."""
        self._ended()


class LargeUpload(_Sending):
    """Content that is written to a file while it arrives."""

    def __init__(
        self,
        keeper: Keeper,
        room: Room,
        tenant: str,
        digest: Digest,
        path: Path,
        clock: Callable[[], Millis],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(tenant, digest, clock, ended)
        self._keeper = keeper
        self._room = room
        self._path = path
        self._gathered = 0
        self._held = 0
        self._hash = sha256()
        self._file: FileIO | None = None
        # One at a time hands over to the thread, and the piece before must have been written.
        self._handing = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None
        self._is_over = False

    async def write(self, offset: int, content: bytes | memoryview) -> None:
        """See the port."""
        self._check_open()
        try:
            self._gathered += self._take(offset, content)
        except WrongContent:
            await self.abort()
            raise
        if self._gathered >= GATHERED_BYTES or len(self._chunks) > _CHUNKS_MAX:
            async with self._handing:
                await self._hand_over()

    async def _hand_over(self) -> None:
        """Give what has gathered to the thread, once it has written the piece before."""
        await self._written()
        self._check_open()
        chunks, size = self._chunks, self._gathered
        self._chunks, self._gathered = [], 0
        try:
            await self._room.hold(size)
        except asyncio.CancelledError:
            # Whoever sent it is gone, and may come back to go on.
            self._chunks, self._gathered = chunks + self._chunks, self._gathered + size
            raise
        except BaseException:
            await self._give_up()
            raise
        self._held += size
        self._writing = asyncio.ensure_future(self._keeper.apart(lambda: self._append(chunks)))

    async def _written(self) -> None:
        """Wait for the piece that is being written."""
        if self._writing is None:
            return
        try:
            await asyncio.shield(self._writing)
        except OSError as error:
            await self._give_up()
            raise unavailable(error) from error
        self._writing = None

    def _append(self, chunks: list[bytes | memoryview]) -> None:
        """In a thread: write and hash some pieces."""
        if self._file is None:
            self._file = self._path.open("xb", buffering=0)
        # At one go: after each step a thread has to wait for its turn, which takes longer than the copy.
        content = memoryview(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        self._hash.update(content)
        while content:
            content = content[self._file.write(content) :]

    async def finish(self) -> None:
        """See the port. Goes on if whoever asked for it is gone."""
        self._check_open()
        await asyncio.shield(self._keeper.see_through(self._finish()))

    async def _finish(self) -> None:
        async with self._handing:
            try:
                self._check_open()
                self._check_size()
                await self._hand_over()
                await self._written()
                self._is_over = True
                self._writing = asyncio.ensure_future(self._keeper.apart(self._close))
                await self._written()
                if self._hash.digest() != key_of(self._digest):
                    raise WrongContent(f"what came has the hash {self._hash.hexdigest()}, not {self._digest.hash}")
                await self._keeper.keep_large(self._tenant, self._digest, self._path)
            finally:
                await self._give_up()

    def _close(self) -> None:
        """In a thread: everything is with the operating system."""
        if self._file is not None:
            self._file.close()

    async def abort(self) -> None:
        """See the port."""
        async with self._handing:
            await self._give_up()

    async def _give_up(self) -> None:
        """Leave nothing behind. What was kept has moved away."""
        self._is_over = True
        self._ended()
        self._chunks.clear()
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        held, self._held = self._held, 0
        self._room.release(held)
        await self._keeper.apart(self._remove)

    def _remove(self) -> None:
        """In a thread: the file goes."""
        try:
            self._close()
        except OSError:
            # What could not be written is not wanted any more.
            pass
        finally:
            self._path.unlink(missing_ok=True)

    def _check_open(self) -> None:
        if self._is_over:
            raise Unavailable("service.busy", "the upload was given up, or is finished; begin it again.")


class Uploads:
    """All uploads that may be gone on with."""

    def __init__(self, keeper: Keeper, room: Room, folder: Path, clock: Callable[[], Millis], small_max: int) -> None:
        self._keeper = keeper
        self._room = room
        self._folder = folder
        self._clock = clock
        self._small_max = small_max
        self._names = count()
        self._open: dict[tuple[str, str, Digest], SmallUpload | LargeUpload] = {}
        self._aborting: list[asyncio.Task[None]] = []

    def begin(self, tenant: str, digest: Digest, name: str) -> SmallUpload | LargeUpload:
        """A new upload, or the one of that name."""
        key = (tenant, name, digest)
        upload = self._open.get(key)
        if upload is not None:
            upload.used_at = self._clock()
            return upload
        if len(self._open) >= UPLOADS_MAX:
            # One of which nothing came yet, if there is one: it costs its sender nothing.
            self._abort(min(self._open.values(), key=lambda each: (each.committed > 0, each.used_at)))

        def ended() -> None:
            if self._open.get(key) is upload:
                del self._open[key]

        if digest.size <= self._small_max:
            upload = SmallUpload(self._keeper, tenant, digest, self._clock, ended)
        else:
            upload = self.alone(tenant, digest, ended)
        self._open[key] = upload
        return upload

    def alone(self, tenant: str, digest: Digest, ended: Callable[[], None] = lambda: None) -> LargeUpload:
        """A large upload that nobody else can go on with."""
        path = self._folder / f"{next(self._names)}"
        return LargeUpload(self._keeper, self._room, tenant, digest, path, self._clock, ended)

    def _abort(self, upload: SmallUpload | LargeUpload) -> None:
        task = asyncio.create_task(upload.abort())
        self._aborting.append(task)
        task.add_done_callback(self._aborting.remove)

    def sweep(self) -> None:
        """Forget what nobody goes on with."""
        now = self._clock()
        for upload in [each for each in self._open.values() if each.used_at < now - IDLE_MS]:
            self._abort(upload)

    async def close(self) -> None:
        """Forget everything."""
        for upload in list(self._open.values()):
            self._abort(upload)
        await asyncio.gather(*self._aborting, return_exceptions=True)
