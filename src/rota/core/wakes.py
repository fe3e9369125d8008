"""The wake log: which sessions were told of which item, and when. Memory only; a new coordinator starts with none."""

from collections.abc import Mapping

from rota.core.ids import Millis, RunKey, WorkerKey

# For each item, when each session was last woken for it.
Woken = Mapping[RunKey, Mapping[WorkerKey, Millis]]
# For each item, when the first session was woken for it since it began to wait.
Offered = Mapping[RunKey, Millis]


class WakeMemory:
    """Wakes that may still matter."""

    def __init__(self) -> None:
        self._woken: dict[RunKey, dict[WorkerKey, Millis]] = {}
        # The same in the order in which it happened, so that what is old is found at the front.
        self._in_order: dict[tuple[RunKey, WorkerKey], Millis] = {}
        self._offered: dict[RunKey, Millis] = {}

    def __len__(self) -> int:
        return len(self._in_order)

    @property
    def woken(self) -> Woken:
        """The last wake of each session, by item."""
        return self._woken

    @property
    def offered(self) -> Offered:
        """Items of which at least one session was told, and since when."""
        return self._offered

    def note(self, item: RunKey, session: WorkerKey, now: Millis) -> None:
        """A session was woken for an item."""
        self._woken.setdefault(item, {})[session] = now
        self._in_order.pop((item, session), None)
        self._in_order[item, session] = now
        self.note_offer(item, now)

    def note_offer(self, item: RunKey, now: Millis) -> None:
        """Some session was woken for an item. The first time since it began to wait counts."""
        self._offered.setdefault(item, now)

    def forget_item(self, item: RunKey) -> None:
        """Drop an item's cooldowns: it has ended, or begins to wait anew, about which earlier wakes say nothing."""
        for session in self._woken.pop(item, ()):
            del self._in_order[item, session]
        self._offered.pop(item, None)

    def forget_wake(self, item: RunKey, session: WorkerKey) -> None:
        """Drop the cooldown of a session that answered a wake by claiming the item."""
        if self._in_order.pop((item, session), None) is not None:
            self._drop(item, session)

    def forget_until(self, at: Millis) -> None:
        """Drop wakes at or before an instant, and offers whose last wake is among them."""
        old: list[tuple[RunKey, WorkerKey]] = []
        for key, woken_at in self._in_order.items():
            if woken_at > at:
                break
            old.append(key)
        for item, session in old:
            del self._in_order[item, session]
            self._drop(item, session)
            if item not in self._woken:
                self._offered.pop(item, None)

    def keep_offers(self, items: Mapping[RunKey, object]) -> None:
        """Drop the offers of all items but these."""
        for item in [item for item in self._offered if item not in items]:
            del self._offered[item]

    def forget_all(self) -> int:
        """Drop everything; how many wakes that were."""
        count = len(self)
        self._in_order.clear()
        self._woken.clear()
        self._offered.clear()
        return count

    def _drop(self, item: RunKey, session: WorkerKey) -> None:
        del self._woken[item][session]
        if not self._woken[item]:
            del self._woken[item]
