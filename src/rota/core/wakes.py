"""Who was told of what, and when. In memory only: whoever forgets it tells somebody once too often."""

from collections.abc import Mapping

from rota.core.ids import Millis, RunKey, WorkerKey

# For each item, when each session was last woken for it.
Woken = Mapping[RunKey, Mapping[WorkerKey, Millis]]


class WakeMemory:
    """Wakes that may still matter."""

    def __init__(self) -> None:
        self._woken: dict[RunKey, dict[WorkerKey, Millis]] = {}
        # The same in the order in which it happened, so that what is old is found at the front.
        self._in_order: dict[tuple[RunKey, WorkerKey], Millis] = {}

    def __len__(self) -> int:
        return len(self._in_order)

    @property
    def woken(self) -> Woken:
        """As a cycle wants it."""
        return self._woken

    def note(self, item: RunKey, session: WorkerKey, now: Millis) -> None:
        """A session was woken for an item."""
        self._woken.setdefault(item, {})[session] = now
        self._in_order.pop((item, session), None)
        self._in_order[item, session] = now

    def forget_until(self, at: Millis) -> None:
        """Drop what is as old as that."""
        old: list[tuple[RunKey, WorkerKey]] = []
        for key, woken_at in self._in_order.items():
            if woken_at > at:
                break
            old.append(key)
        for item, session in old:
            del self._in_order[item, session]
            del self._woken[item][session]
            if not self._woken[item]:
                del self._woken[item]

    def forget_all(self) -> int:
        """Drop everything; how much that was."""
        count = len(self)
        self._in_order.clear()
        self._woken.clear()
        return count
