"""Delivering wakes: one at a time, or all at once where the waker would rather have them so."""

from collections.abc import Sequence

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
