"""The seams to the outside: what the control plane asks of a store."""

from collections.abc import AsyncIterator
from typing import Protocol

from rota.core.ids import Epoch
from rota.core.records import Batch, Record


class Fenced(Exception):
    """Another coordinator reigns: the epoch is not the store's any more. Nothing was written."""


class CommitUnknown(Exception):
    """The store did not say whether the commit happened. Memory must be dropped and loaded again."""


class StoreRefused(Exception):
    """The store will not take this very batch, and would not later. Nothing was written."""


class Store(Protocol):
    """Where live records, history and stories are kept, and who may write them."""

    async def elect(self, who: str) -> Epoch | None:
        """Become the writer, or not; never blocks. A success bumps the epoch before anything is loaded."""
        ...

    async def holds(self, epoch: Epoch) -> bool:
        """Whether this very hold still stands. Errors are raised, and count as not held."""
        ...

    async def release(self, epoch: Epoch) -> None:
        """Stop being the writer; of no effect for an epoch that has passed."""
        ...

    def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        """All live records."""
        ...

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        """Write a batch, all or nothing, if the epoch still stands.

        Raises Fenced, CommitUnknown or StoreRefused; `rota.core.errors.Unavailable` means that nothing was written
        and the same batch may be tried again.
        """
        ...
