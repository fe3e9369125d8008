"""How the store contract reaches a store: one adapter for each kind, and the bench on which a promise is tried.

A new store subclasses `Adapter`, adds itself to `ADAPTERS`, and is then held to everything in
`tests/contract/store_contract.py` and `tests/contract/test_store_machine.py`. The port cannot read history and stories
yet, so an adapter says how.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from msgspec import Struct

from rota.core.ids import Epoch
from rota.core.records import Batch, Growth, Key, Record, Run, Story, Task, key_of
from rota.ports import Store
from rota.stores.memory import MemoryStore
from tests.contract.records import Image, image

Rows = dict[Key, Image]


class Ended(Struct):
    """A run in history, with the tasks and growths that moved there with it."""

    run: Run
    tasks: list[Task]
    growths: list[Growth]


class Disk(Struct):
    """Everything that is stored, in a form that compares exactly."""

    rows: Rows
    history: Counter[Image]
    stories: list[Image]


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
    async def reopen(self, store: Store) -> Store:
        """The process ends without a word, its lock with it, and another one opens the same disk."""

    @abstractmethod
    async def history(self, store: Store) -> list[Ended]:
        """All runs in history, however often each is there. The task of a one-task run is among `tasks`."""

    @abstractmethod
    async def stories(self, store: Store) -> list[Story]:
        """All stories; those of one run in the order in which they are told."""

    def pause_commit(self, store: Store) -> Pause | None:
        """Make this store's next commit stand between compare and COMMIT; None if there is nothing between."""
        return None

    async def close(self, store: Store) -> None:
        """Let go of what a store holds open. Called once for every store that was made, joined or reopened."""

    async def remove(self, store: Store) -> None:
        """Remove the disk under a store that was closed."""


class MemoryAdapter(Adapter):
    """Dictionaries. A commit is one step of the event loop, so nothing can come between."""

    name = "memory"

    async def make_store(self) -> Store:
        return MemoryStore()

    async def join(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        return MemoryStore(store.disk)

    async def reopen(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        store.disk.release(store.disk.holder)
        return MemoryStore(store.disk)

    async def history(self, store: Store) -> list[Ended]:
        assert isinstance(store, MemoryStore)
        return [Ended(ended.run, ended.tasks, ended.growths) for ended in store.disk.history]

    async def stories(self, store: Store) -> list[Story]:
        assert isinstance(store, MemoryStore)
        return [story for told in store.disk.stories.values() for story in told]


ADAPTERS: list[Adapter] = [MemoryAdapter()]


# The bench.


def batch(
    puts: Iterable[Record] = (),
    drops: Iterable[Key] = (),
    archives: Iterable[tuple[str, str]] = (),
    stories: Iterable[Story] = (),
) -> Batch:
    """A batch of these."""
    return Batch(list(puts), list(drops), list(archives), list(stories))


def rows(records: Iterable[Record]) -> Rows:
    """Records as they compare; none may be there twice."""
    found: Rows = {}
    for record in records:
        key = key_of(record)
        assert key not in found, f"{key} is there twice"
        found[key] = image(record)
    return found


def ended_image(ended: Ended) -> Image:
    """An archived run as it compares."""
    tasks = sorted(ended.tasks, key=lambda task: task.idx)
    growths = sorted(ended.growths, key=lambda growth: growth.number)
    return (image(ended.run), *[image(part) for part in (*tasks, *growths)])


class Bench:
    """One disk, the first store on it, and every store that came later."""

    def __init__(self, adapter: Adapter, store: Store) -> None:
        self.adapter = adapter
        self.store = store
        self._open = [store]

    async def join(self) -> Store:
        """Another process's store on this disk."""
        store = await self.adapter.join(self.store)
        self._open.append(store)
        return store

    async def reopen(self, store: Store) -> Store:
        """The process behind `store` ends, and another opens the disk."""
        again = await self.adapter.reopen(store)
        self._open[self._open.index(store)] = again
        if self.store is store:
            self.store = again
        return again

    async def elect(self, store: Store) -> Epoch:
        """An election that must be won."""
        epoch = await asyncio.wait_for(store.elect("somebody"), self.adapter.patience_s)
        assert epoch is not None, "the lock was free, and the election was not won"
        return epoch

    async def reign(self) -> tuple[Store, Epoch]:
        """The first store, as the writer."""
        return self.store, await self.elect(self.store)

    async def overtake(self, store: Store, epoch: Epoch) -> tuple[Store, Epoch]:
        """A rival becomes the writer; the old one lost its lock before."""
        await store.release(epoch)
        rival = await self.join()
        return rival, await self.elect(rival)

    async def load(self, store: Store, epoch: Epoch) -> Rows:
        """What is live."""
        return rows([record async for record in store.load(epoch)])

    async def disk(self, store: Store, epoch: Epoch) -> Disk:
        """All that is stored, read by whoever reigns."""
        history = Counter(ended_image(ended) for ended in await self.adapter.history(store))
        stories = sorted(await self.adapter.stories(store), key=lambda story: (story.tenant, story.run))
        return Disk(await self.load(store, epoch), history, [image(story) for story in stories])

    async def close(self) -> None:
        """Close every store."""
        for store in self._open:
            await self.adapter.close(store)
        await self.adapter.remove(self.store)


@asynccontextmanager
async def bench_of(adapter: Adapter) -> AsyncIterator[Bench]:
    """A bench with an empty disk, cleared away afterwards."""
    bench = Bench(adapter, await adapter.make_store())
    try:
        yield bench
    finally:
        await bench.close()
