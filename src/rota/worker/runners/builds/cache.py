"""The content of a worker: fetched once for all who need it, kept while there is room, never removed in use.

What an earlier worker has left is used again, but not before it was read and found whole. Whoever has held content is
told, when it gives it back, whether somebody has changed it meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from rota.core.ids import Digest
from rota.worker.runners.builds.shelf import Key, Shelf, WrongContent, check_file


class Source(Protocol):
    """Where content is fetched from."""

    async def fetch(self, digests: Sequence[Digest], keep: Callable[[dict[Digest, bytes]], None]) -> None:
        """Read small content in batches; `keep` is called with each, in a thread. Raises if any cannot be had."""
        ...

    async def stream(self, digest: Digest, path: str) -> None:
        """Read large content into a file. Raises if it cannot be had."""
        ...

    def is_small(self, digest: Digest) -> bool:
        """Whether it goes into a batch."""
        ...


class _Kept:
    """One file that is there. Another object for the same key means that it was changed in between."""

    def __init__(self, *, is_checked: bool) -> None:
        self.is_checked = is_checked
        # Whether several have held it at once since it was last free.
        self.is_shared = False


class Held:
    """Content that stays where it is until it is given back."""

    def __init__(self, cache: "ContentCache", kept: dict[Key, _Kept]) -> None:
        self._cache = cache
        self._kept = kept

    async def give_back(self) -> dict[Digest, bool]:
        """Stop using it; which of it was changed while it was held, and whether others held that, too."""
        kept, self._kept = self._kept, {}
        if not kept:
            return {}
        try:
            return await self._cache.inspect(kept)
        finally:
            self._cache.release(kept)


class ContentCache:
    """What is on the shelf, and who uses it."""

    def __init__(self, shelf: Shelf, bytes_max: int) -> None:
        self.shelf = shelf
        self._bytes_max = bytes_max
        self._bytes = 0
        # What was used last is at the end.
        self._kept: dict[Key, _Kept] = {}
        # Also of what is not there yet.
        self._users: dict[Key, int] = {}
        self._coming: dict[Key, asyncio.Task[None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def open(self, found: Iterable[Key]) -> None:
        """Begin with what is on the shelf, the least recently used first."""
        for key in found:
            self._keep(key, is_checked=False)
        self.make_room()

    async def hold(self, source: Source, keys: Iterable[Key]) -> Held:
        """Have content on the shelf, fetching what is not there; it stays until it is given back."""
        wanted = dict.fromkeys(keys)
        for key in wanted:
            self._users[key] = self._users.get(key, 0) + 1
        try:
            await self._gather(source, list(wanted))
        except BaseException:
            self.release(wanted)
            raise
        held: dict[Key, _Kept] = {}
        for key in wanted:
            held[key] = self._kept[key] = self._kept.pop(key)
            held[key].is_shared |= self._users[key] > 1
        return Held(self, held)

    def release(self, keys: Iterable[Key]) -> None:
        """One user less of each."""
        for key in keys:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                if key in self._kept:
                    self._kept[key].is_shared = False
        self.make_room()

    def adopt(self, found: Iterable[tuple[Key, str]]) -> list[tuple[Key, str]]:
        """Of these outputs, those that are not on the shelf yet."""
        return [(key, path) for key, path in found if key not in self._kept and key not in self._coming]

    def adopted(self, keys: Iterable[Key]) -> None:
        """Outputs were put on the shelf."""
        for key in keys:
            if key not in self._kept:
                self._keep(key, is_checked=True)
        self.make_room()

    async def inspect(self, kept: dict[Key, _Kept]) -> dict[Digest, bool]:
        """Which of these files are not what they were, and whether several held them; they are forgotten."""
        spoilt = dict.fromkeys(await asyncio.to_thread(self._find_changed, list(kept)))
        changed: dict[Digest, bool] = {}
        for key, each in kept.items():
            is_ours = self._kept.get(key) is each
            if is_ours and key in spoilt:
                self._forget(key)
                self.shelf.discard([self.shelf.set_aside(key)])
            if not is_ours or key in spoilt:
                changed[key.digest] = each.is_shared
        return changed

    def make_room(self) -> None:
        """Remove what was used least recently, as far as nobody uses it."""
        if self._bytes <= self._bytes_max:
            return
        gone: list[str] = []
        for key in list(self._kept):
            if self._bytes <= self._bytes_max:
                break
            if key not in self._users and key not in self._coming:
                self._forget(key)
                # Out of the way at once: somebody may fetch it again before it is gone.
                gone.append(self.shelf.set_aside(key))
        if gone:
            self._spawn(asyncio.to_thread(self.shelf.discard, gone))

    async def close(self) -> None:
        """Fetch no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _keep(self, key: Key, *, is_checked: bool) -> None:
        kept = self._kept.get(key)
        if kept is None:
            self._kept[key] = _Kept(is_checked=is_checked)
            self._bytes += key.digest.size
        elif is_checked:
            kept.is_checked = True

    def _forget(self, key: Key) -> None:
        del self._kept[key]
        self._bytes -= key.digest.size

    def _find_changed(self, keys: list[Key]) -> list[Key]:
        return [key for key in keys if not self.shelf.is_untouched(key) and not self.shelf.restore(key)]

    # Fetching.

    async def _gather(self, source: Source, wanted: list[Key]) -> None:
        """Return when everything is on the shelf and known to be whole."""
        while True:
            unready = [key for key in wanted if (kept := self._kept.get(key)) is None or not kept.is_checked]
            if not unready:
                return
            mine = [key for key in unready if key not in self._coming]
            if mine:
                # What others fetch comes meanwhile; if they fail, the next round fetches it for us.
                await asyncio.shield(self._fetch(source, mine))
            else:
                await asyncio.wait(dict.fromkeys(self._coming[key] for key in unready))

    def _fetch(self, source: Source, keys: list[Key]) -> "asyncio.Task[None]":
        """Fetch for all who want it; one who gives up does not stop it for the others."""
        task = self._spawn(self._bring(source, keys))
        for key in keys:
            self._coming[key] = task
        task.add_done_callback(lambda _: self._arrived(keys))
        return task

    def _arrived(self, keys: list[Key]) -> None:
        for key in keys:
            self._coming.pop(key, None)
        self.make_room()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled():
            # Whoever still waits is told; if nobody does, nobody minds.
            task.exception()

    async def _bring(self, source: Source, keys: list[Key]) -> None:
        """Get each key onto the shelf: it is there unchecked, or its twin is, or it is fetched."""
        left: list[Key] = []
        for key in keys:
            if key in self._kept:
                await self._check(key, left)
            elif key.twin in self._kept and key.twin not in self._coming:
                await self._copy(key, left)
            else:
                left.append(key)
        small = {key.digest: key for key in left if source.is_small(key.digest)}
        large = {key.digest: key for key in left if not source.is_small(key.digest)}
        # Of two that differ only in their mode one is fetched, and the other made from it.
        twins = [key for key in left if key not in (small.get(key.digest), large.get(key.digest))]
        loads = [self._batches(source, small)] if small else []
        done = await asyncio.gather(
            *loads, *(self._stream(source, key) for key in large.values()), return_exceptions=True
        )
        for trouble in done:
            if trouble is not None:
                raise trouble
        for key in twins:
            await asyncio.to_thread(self.shelf.copy_twin, key)
            self._keep(key, is_checked=True)

    async def _batches(self, source: Source, small: dict[Digest, Key]) -> None:
        kept: list[Key] = []

        def keep(contents: dict[Digest, bytes]) -> None:
            for digest, content in contents.items():
                self.shelf.put(small[digest], content)
                kept.append(small[digest])

        try:
            await source.fetch(list(small), keep)
        finally:
            for key in kept:
                self._keep(key, is_checked=True)

    async def _check(self, key: Key, left: list[Key]) -> None:
        """Read what an earlier worker has left; if it is damaged it has to be fetched."""
        kept = self._kept[key]
        try:
            await asyncio.to_thread(check_file, self.shelf.place(key), key.digest)
        except (WrongContent, FileNotFoundError):
            self._forget(key)
            left.append(key)
        else:
            kept.is_checked = True

    async def _copy(self, key: Key, left: list[Key]) -> None:
        try:
            await asyncio.to_thread(self.shelf.copy_twin, key)
        except (WrongContent, FileNotFoundError):
            left.append(key)
        else:
            self._keep(key, is_checked=True)

    async def _stream(self, source: Source, key: Key) -> None:
        part = self.shelf.part()
        try:
            await source.stream(key.digest, part)
            await asyncio.to_thread(self.shelf.publish, key, part)
        finally:
            await asyncio.to_thread(self.shelf.discard, [part])
        self._keep(key, is_checked=True)
