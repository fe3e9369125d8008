"""The world: time, order and chance, all from one seed.

Events happen in the order of their time, then of their making. Chance is split by name, so that a change in one part
of the world does not reshuffle the others. What is committed is hashed: the same seed gives the same bytes, whatever
classes and functions are called.
"""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Any

from rota.core.ids import Millis, derive

START_AT: Millis = 1_790_000_000_000


class World:
    """Virtual time and everything that is going to happen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now: Millis = START_AT
        self.events = 0
        self._heap: list[tuple[Millis, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._chances: dict[str, Random] = {}
        self._log = blake2b(digest_size=16)
        self.after_each: Callable[[], None] = _nothing
        self.happened: dict[str, int] = {}

    def chance(self, name: str) -> Random:
        """The source of chance of one part of the world."""
        found = self._chances.get(name)
        if found is None:
            found = self._chances[name] = Random(derive(self.seed, name))
        return found

    def note(self, kind: str) -> None:
        """Something of this kind has really happened, so that a test can see what a number of seeds went through."""
        self.happened[kind] = self.happened.get(kind, 0) + 1

    def after(self, delay_ms: Millis, act: Callable[..., None], *args: Any) -> None:
        """Do something later."""
        self._number += 1
        heappush(self._heap, (self.now + max(0, delay_ms), self._number, act, args))

    def run_until(self, end: Millis, *, stop: Callable[[], bool] | None = None) -> None:
        """Let events happen up to `end`, or until `stop` says enough."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            at, _, act, args = heappop(heap)
            self.now = at
            self.events += 1
            act(*args)
            self.after_each()
            if stop is not None and stop():
                return
        self.now = max(self.now, end)

    def fingerprint(self) -> str:
        """The hash of everything that was recorded."""
        return self._log.hexdigest()

    def record(self, content: bytes) -> None:
        """Make something a part of the fingerprint, with the time it happened at."""
        self._log.update(f"{self.now} {len(content)}\n".encode())
        self._log.update(content)


def _nothing() -> None:
    """No checker."""
