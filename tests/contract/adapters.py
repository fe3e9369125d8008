"""How the store contract reaches a store: one adapter for each kind.

A new store subclasses `Adapter`, adds itself to `ADAPTERS`, and is then held to everything in
`tests/contract/store_contract.py` and `tests/contract/test_store_machine.py`. The port cannot read history and stories
yet, so an adapter says how.
"""

import asyncio
from abc import ABC, abstractmethod

from msgspec import Struct

from rota.core.ids import Epoch
from rota.core.records import Growth, Run, Story, Task
from rota.ports import Store
from rota.stores.memory import MemoryStore


class Ended(Struct):
    """A run in history, with the tasks and growths that moved there with it."""

    run: Run
    tasks: list[Task]
    growths: list[Growth]


class Pause:
    """A commit that stands between its compare and its COMMIT."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.resumed = asyncio.Event()

    async def stand(self) -> None:
        """Called by the store, or by what stands in its way, when the compare is behind it."""
        self.reached.set()
        await self.resumed.wait()


class Adapter(ABC):
    """One kind of store. An epoch is only ever used through the store that was given it, except to be refused."""

    name: str
    # How long a call that must not block may take.
    patience_s = 10.0
    # True where an election cannot win while a commit is under way: elect says None, and the commit lands first.
    rivals_wait_for_commits = False

    @abstractmethod
    async def make_store(self) -> Store:
        """A store on an empty disk of its own."""

    @abstractmethod
    async def join(self, store: Store) -> Store:
        """Another process's store on the same disk."""

    @abstractmethod
    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        """The process ends without a word, and another one opens the same disk; `epoch` is the last it was given.

        Its lock, if it still had it, is free by then or soon after.
        """

    @abstractmethod
    async def close(self, stores: list[Store]) -> None:
        """Close these stores and remove the disk they share."""

    @abstractmethod
    async def history(self, store: Store) -> list[Ended]:
        """All runs in history, however often each is there. The task of a one-task run is among `tasks`."""

    @abstractmethod
    async def stories(self, store: Store) -> list[Story]:
        """All stories; those of one run in the order in which they are told."""

    def pause_commit(self, store: Store) -> Pause | None:
        """Make this store's next commit stand between compare and COMMIT; None if there is nothing between."""
        return None


class MemoryAdapter(Adapter):
    """Dictionaries. A commit is one step of the event loop, so nothing can come between."""

    name = "memory"

    async def make_store(self) -> Store:
        return MemoryStore()

    async def join(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        return MemoryStore(store.disk)

    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        assert isinstance(store, MemoryStore)
        store.disk.release(epoch)
        return MemoryStore(store.disk)

    async def close(self, stores: list[Store]) -> None:
        stores.clear()

    async def history(self, store: Store) -> list[Ended]:
        assert isinstance(store, MemoryStore)
        return [Ended(ended.run, ended.tasks, ended.growths) for ended in store.disk.history]

    async def stories(self, store: Store) -> list[Story]:
        assert isinstance(store, MemoryStore)
        return [story for told in store.disk.stories.values() for story in told]


ADAPTERS: list[Adapter] = [MemoryAdapter()]
