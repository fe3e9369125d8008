"""The store for tests, notebooks and the simulator: dictionaries, with the same promises as the durable ones.

`MemoryDisk` holds the rules and is synchronous, so that the simulator can put time and faults between asking and
answering; `MemoryStore` is the port.
"""

from collections.abc import AsyncIterator
from copy import copy

from rota.core.ids import Epoch, RunKey
from rota.core.records import RECORD_TYPES, Batch, Growth, Key, Record, Run, Story, Task, key_of
from rota.ports import Fenced, StoreRefused


class Archived:
    """An ended run in history, with its tasks."""

    __slots__ = ("growths", "run", "tasks")

    def __init__(self, run: Run, tasks: list[Task], growths: list[Growth]) -> None:
        self.run = run
        self.tasks = tasks
        self.growths = growths


class MemoryDisk:
    """Records, history, stories and the one lock."""

    def __init__(self) -> None:
        self.epoch: Epoch = 0
        self.holder: Epoch = 0
        self.records: dict[Key, Record] = {}
        self.tasks: dict[RunKey, dict[Key, None]] = {}
        self.history: list[Archived] = []
        self.stories: dict[RunKey, list[Story]] = {}

    def elect(self) -> Epoch | None:
        """Take the lock if it is free. The epoch grows by one with every success and never otherwise."""
        if self.holder:
            return None
        self.epoch += 1
        self.holder = self.epoch
        return self.epoch

    def holds(self, epoch: Epoch) -> bool:
        """Whether the lock is held by that reign."""
        return epoch > 0 and self.holder == epoch

    def release(self, epoch: Epoch) -> None:
        """Free the lock if it is still held by that reign."""
        if self.holder == epoch:
            self.holder = 0

    def load(self, epoch: Epoch) -> list[Record]:
        """All live records, for the reigning epoch only."""
        self._check(epoch)
        return [_twin(record) for record in self.records.values()]

    def commit(self, epoch: Epoch, batch: Batch) -> None:
        """Apply a batch whole, or raise and apply nothing. The records are the disk's own from here on."""
        self._check(epoch)
        records = self.records
        for key, record in _keyed(batch):
            records[key] = record
            if key[0] in ("Task", "Growth"):
                self.tasks.setdefault((str(key[1]), str(key[2])), {})[key] = None
        for key in batch.drops:
            records.pop(key, None)
        for story in batch.stories:
            self.stories.setdefault((story.tenant, story.run), []).append(story)
        for run_key in batch.archives:
            self._archive(run_key)

    def _archive(self, key: RunKey) -> None:
        run = self.records.pop(("Run", *key), None)
        parts = [self.records.pop(part) for part in self.tasks.pop(key, {}) if part in self.records]
        if isinstance(run, Run):
            tasks = [part for part in parts if isinstance(part, Task)]
            growths = [part for part in parts if isinstance(part, Growth)]
            self.history.append(Archived(run, tasks or ([run.solo] if run.solo else []), growths))

    def _check(self, epoch: Epoch) -> None:
        # The epoch alone decides, not the lock: a writer whose lock was lost and not yet taken by another has not
        # been overtaken, and its commits are still in order.
        if epoch != self.epoch or epoch <= 0:
            raise Fenced(f"epoch {epoch} has passed; {self.epoch} reigns")


def _twin(record: Record) -> Record:
    twin = copy(record)
    if isinstance(twin, Run) and twin.solo is not None:
        twin.solo = copy(twin.solo)
    return twin


def _keyed(batch: Batch) -> list[tuple[Key, Record]]:
    """What is to be stored, with its keys; refuses the whole batch if one is no record."""
    try:
        return [(key_of(record), record) for record in batch.puts]
    except KeyError as unknown:
        raise StoreRefused(f"{unknown} is no type of record") from None


class MemoryStore:
    """The Store port over a `MemoryDisk`."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()

    async def elect(self, who: str) -> Epoch | None:
        """See the port."""
        return self.disk.elect()

    async def holds(self, epoch: Epoch) -> bool:
        """See the port."""
        return self.disk.holds(epoch)

    async def release(self, epoch: Epoch) -> None:
        """See the port."""
        self.disk.release(epoch)

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        """See the port."""
        for record in self.disk.load(epoch):
            yield record

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        """See the port."""
        puts = [_twin(record) if type(record) in RECORD_TYPES else record for record in batch.puts]
        self.disk.commit(epoch, Batch(puts, batch.drops, batch.archives, batch.stories))
