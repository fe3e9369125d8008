"""A plain store that keeps every promise, for the contract to be tried on: rows as bytes, and a gap in every commit.

It shows that the promises can be kept together, also by a store whose commit takes time between its compare and its
COMMIT. Stores that break one promise each are made from it (`broken_stores.py`).
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.ids import Epoch, RunKey
from rota.core.records import RECORD_TYPES, Batch, Key, Record, Story, key_of
from rota.ports import Fenced, Store, StoreRefused
from tests.contract.adapters import Adapter, Ended, Pause

_TYPES = {cls.__name__: cls for cls in (*RECORD_TYPES, Ended, Story)}

Row = tuple[str, bytes]


class Platter:
    """What is stored, and who may write."""

    def __init__(self) -> None:
        self.epoch: Epoch = 0
        self.holder: Epoch | None = None
        self.rows: dict[Key, Row] = {}
        self.history: list[Row] = []
        self.stories: list[Row] = []


class RowStore:
    """The Store port over a platter."""

    def __init__(self, platter: Platter | None = None) -> None:
        self.platter = platter or Platter()
        self.pause: Pause | None = None

    # The port.

    async def elect(self, who: str) -> Epoch | None:
        platter = self.platter
        if platter.holder is not None:
            return None
        platter.epoch += 1
        platter.holder = platter.epoch
        return platter.epoch

    async def holds(self, epoch: Epoch) -> bool:
        return self.platter.holder == epoch

    async def release(self, epoch: Epoch) -> None:
        if self.platter.holder == epoch:
            self.platter.holder = None

    async def load(self, epoch: Epoch) -> AsyncIterator[Record]:
        self.compare(epoch)
        for row in list(self.platter.rows.values()):
            yield self.read(row)

    async def commit(self, epoch: Epoch, batch: Batch) -> None:
        try:
            written = self.written(batch)
        except (KeyError, TypeError, OverflowError, UnicodeEncodeError) as error:
            raise StoreRefused(str(error)) from error
        self.compare(epoch)
        await self.gap()
        self.compare(epoch)
        self.apply(*written)

    # Its parts.

    def die(self, epoch: Epoch) -> None:
        """The process is gone, and with it the lock it had."""
        if self.platter.holder == epoch:
            self.platter.holder = None

    def compare(self, epoch: Epoch) -> None:
        """Only the newest epoch, and only one that was given."""
        if epoch != self.platter.epoch or not epoch:
            raise Fenced(f"epoch {epoch} has passed")

    async def gap(self) -> None:
        """What time passes between compare and COMMIT."""
        pause, self.pause = self.pause, None
        if pause is not None:
            await pause.stand()

    def write(self, record: Struct) -> Row:
        """A record as it is kept."""
        return type(record).__name__, msgspec.msgpack.encode(record)

    def read(self, row: Row) -> Any:
        """What is kept, as a record."""
        return msgspec.msgpack.decode(row[1], type=_TYPES[row[0]])

    def key(self, record: Record) -> Key:
        """Where a record is kept."""
        return key_of(record)

    def written(self, batch: Batch) -> tuple[dict[Key, Row], list[Key], list[RunKey], list[Row]]:
        """A batch that shares nothing with what the caller has."""
        puts = {self.key(record): self.write(record) for record in batch.puts}
        return puts, list(batch.drops), list(batch.archives), [self.write(story) for story in batch.stories]

    def apply(self, puts: dict[Key, Row], drops: list[Key], archives: list[RunKey], stories: list[Row]) -> None:
        """Change the platter."""
        platter = self.platter
        self.put(puts)
        self.drop(drops)
        for key in archives:
            self.archive(key)
        platter.stories.extend(stories)

    def put(self, puts: dict[Key, Row]) -> None:
        self.platter.rows.update(puts)

    def drop(self, drops: Iterable[Key]) -> None:
        for key in drops:
            self.platter.rows.pop(key, None)

    def archive(self, key: RunKey) -> None:
        """Move a run to history."""
        found = self.platter.rows.pop(("Run", *key), None)
        if found is None:
            return
        ended = Ended(self.read(found), [], [])
        for part in self.parts(key):
            row = self.read(self.platter.rows.pop(part))
            (ended.tasks if part[0] == "Task" else ended.growths).append(row)
        if ended.run.solo is not None:
            ended.tasks.append(ended.run.solo)
        self.platter.history.append(self.write(ended))

    def parts(self, key: RunKey) -> list[Key]:
        """The rows that move with a run."""
        return [row for row in self.platter.rows if row[0] in ("Task", "Growth") and row[1:3] == key]


class RowAdapter(Adapter):
    """A row store, sound or broken."""

    def __init__(self, make: type[RowStore] = RowStore, patience_s: float = Adapter.patience_s) -> None:
        self.name = make.__name__
        self.make = make
        self.patience_s = patience_s

    async def make_store(self) -> Store:
        return self.make()

    async def join(self, store: Store) -> Store:
        assert isinstance(store, RowStore)
        return self.make(store.platter)

    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        assert isinstance(store, RowStore)
        store.die(epoch)
        again, store.platter = self.make(store.platter), Platter()
        return again

    async def close(self, stores: list[Store]) -> None:
        stores.clear()

    async def history(self, store: Store) -> list[Ended]:
        assert isinstance(store, RowStore)
        return [store.read(row) for row in store.platter.history]

    async def stories(self, store: Store) -> list[Story]:
        assert isinstance(store, RowStore)
        return [store.read(row) for row in store.platter.stories]

    def pause_commit(self, store: Store) -> Pause | None:
        assert isinstance(store, RowStore)
        store.pause = Pause()
        return store.pause
