"""Writing packs: one thread takes what has gathered and writes it at once.

Content is with the operating system when its future is done, so it outlives the process. It is written at the end that
the thread knows of: what a failed write left behind is written over by the next one. What lands is told in the order
in which it lies in the pack.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue

from rota.stores.cas.index import Shelf
from rota.stores.cas.packs import ITEM_BYTES, head, item_head
from rota.wire.names import safe_name

# How many contents are written at once; each takes two buffers of the 1,024 that one call may have.
_BATCH_MAX = 500


class Tail:
    """The pack of a tenant that is being written."""

    __slots__ = ("end", "number", "path")

    def __init__(self, number: int, path: Path, end: int) -> None:
        self.number = number
        self.path = path
        self.end = end


class Append:
    """Content to be written, and whom to tell where it landed. Without content the tenant's pack is at its end."""

    __slots__ = ("content", "done", "key", "land", "shelf")

    def __init__(self, shelf: Shelf, key: bytes, content: bytes, land: Callable[[Tail, int], None] | None) -> None:
        self.shelf = shelf
        self.key = key
        self.content = content
        self.land = land
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


_Landed = tuple[Append, Tail | None, int, OSError | None]


class Appender:
    """The thread that writes packs. Everything else is called from the event loop."""

    def __init__(self, folder: Path, pack_bytes_max: int, tails: dict[int, Tail], next_number: int) -> None:
        """`tails` are the packs that are not full yet, by the numbers of their shelves."""
        self._folder = folder
        self._pack_bytes_max = pack_bytes_max
        self._tails = tails
        self._numbers = count(next_number)
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[Append | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rota-content-packs", daemon=True)
        self._thread.start()

    async def append(self, shelf: Shelf, key: bytes, content: bytes, land: Callable[[Tail, int], None]) -> None:
        """Write content into the tenant's pack. `land` is called in any case in which it was written."""
        append = Append(shelf, key, content, land)
        self._asked.put(append)
        await append.done

    async def roll(self, shelf: Shelf) -> None:
        """End the tenant's pack: the next content begins another."""
        append = Append(shelf, b"", b"", None)
        self._asked.put(append)
        await append.done

    def is_tail(self, shelf: int, number: int) -> bool:
        """Whether a pack may still be written to."""
        tail = self._tails.get(shelf)
        return tail is not None and tail.number == number

    async def close(self) -> None:
        """Write what was asked for, and end."""
        self._asked.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (first := self._asked.get()) is not None:
            batch = [first]
            is_last = False
            while len(batch) < _BATCH_MAX:
                try:
                    following = self._asked.get_nowait()
                except Empty:
                    break
                if following is None:
                    is_last = True
                    break
                batch.append(following)
            self._loop.call_soon_threadsafe(_tell, self._write(batch))
            if is_last:
                return

    def _write(self, batch: Sequence[Append]) -> list[_Landed]:
        """Write a batch, tenant by tenant."""
        by_shelf: dict[int, list[Append]] = {}
        for append in batch:
            by_shelf.setdefault(append.shelf.number, []).append(append)
        landed: list[_Landed] = []
        for shelf, rest in by_shelf.items():
            while rest:
                if rest[0].land is None:
                    self._tails.pop(shelf, None)
                    landed.append((rest.pop(0), None, 0, None))
                    continue
                taken = self._fitting(shelf, rest)
                del rest[: len(taken)]
                try:
                    landed += self._write_into(self._tail(taken[0].shelf), taken)
                except OSError as error:
                    landed += [(append, None, 0, error) for append in taken]
        return landed

    def _fitting(self, shelf: int, appends: list[Append]) -> list[Append]:
        """Those of the first that go into one pack; one at least."""
        tail = self._tails.get(shelf)
        if tail is not None and tail.end >= self._pack_bytes_max:
            tail = None
            del self._tails[shelf]
        end = tail.end if tail is not None else 0
        for number, append in enumerate(appends):
            if append.land is None or end >= self._pack_bytes_max:
                return appends[:number]
            end += ITEM_BYTES + len(append.content)
        return list(appends)

    def _tail(self, shelf: Shelf) -> Tail:
        tail = self._tails.get(shelf.number)
        if tail is None:
            number = next(self._numbers)
            path = self._folder / safe_name(shelf.tenant) / pack_name(number)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            start = head(shelf.tenant)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(fd, [start], 0)
            finally:
                os.close(fd)
            tail = self._tails[shelf.number] = Tail(number, path, len(start))
        return tail

    @staticmethod
    def _write_into(tail: Tail, appends: list[Append]) -> list[_Landed]:
        buffers: list[bytes] = []
        landed: list[_Landed] = []
        end = tail.end
        for append in appends:
            buffers += (item_head(append.key, len(append.content)), append.content)
            landed.append((append, tail, end + ITEM_BYTES, None))
            end += ITEM_BYTES + len(append.content)
        fd = os.open(tail.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _write_all(fd, buffers, tail.end)
        finally:
            os.close(fd)
        tail.end = end
        return landed


def pack_name(number: int) -> str:
    """A pack's number as the name of a file; names are in the order of numbers."""
    return f"{number:010d}"


def _write_all(fd: int, buffers: list[bytes], offset: int) -> None:
    written = os.pwritev(fd, buffers, offset)
    wanted = sum(map(len, buffers))
    if written < wanted:
        rest = memoryview(b"".join(buffers))
        while written < wanted:
            written += os.pwrite(fd, rest[written:], offset + written)


def _tell(landed: list[_Landed]) -> None:
    """In the event loop: say where contents landed, then let those go on who wait for it."""
    for append, tail, place, error in landed:
        if tail is not None and append.land is not None:
            append.land(tail, place)
        if append.done.cancelled():
            continue
        if error is None:
            append.done.set_result(None)
        else:
            append.done.set_exception(error)
