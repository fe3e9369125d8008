"""Delivering wakes, one at a time or all at once as the waker would have it, and remembering them for a while."""

from collections.abc import Sequence

from rota.core.cycle import Wake, Woken
from rota.core.ids import Millis, RunKey, WorkerKey
from rota.kinds.agent.snapshots import WakeTarget
from rota.kinds.agent.sources import BatchWaker, Waker


async def deliver(waker: Waker, targets: Sequence[WakeTarget]) -> list[Exception | None]:
    """What went wrong with each target. One that fails does not keep the others from being woken."""
    if isinstance(waker, BatchWaker):
        return await _deliver_together(waker, targets)
    outcomes: list[Exception | None] = []
    for target in targets:
        try:
            await waker.wake(target)
            outcomes.append(None)
        except Exception as error:  # whatever a waker raises is about this target
            outcomes.append(error)
    return outcomes


async def _deliver_together(waker: BatchWaker, targets: Sequence[WakeTarget]) -> list[Exception | None]:
    """An answer that does not say for each target how it went says nothing: then all count as failed."""
    try:
        outcomes = list(await waker.wake_many(list(targets)))
    except Exception as error:  # the batch failed as a whole
        return [error] * len(targets)
    if len(outcomes) != len(targets):
        odd = ValueError(f"the waker answered for {len(outcomes)} targets of {len(targets)}")
        return [odd] * len(targets)
    return outcomes


class Memory:
    """Who was woken for what, and when. In memory only: whoever forgets it wakes somebody once too often."""

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

    def note(self, wake: Wake, now: Millis) -> None:
        """A wake was delivered."""
        self._woken.setdefault(wake.item, {})[wake.session] = now
        self._in_order.pop((wake.item, wake.session), None)
        self._in_order[wake.item, wake.session] = now

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
