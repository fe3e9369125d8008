"""A plain store that keeps every promise, for the contract to be tried on: rows as bytes, and a gap in every commit.

It shows that the promises can be kept together, also by a store whose commit takes time between its compare and its
COMMIT. Stores that break one promise each are made from it (`broken_stores.py`).
"""

import secrets
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page, read_place
from rota.core.ids import Epoch, Millis, RunKey
from rota.core.model import Graph
from rota.core.records import RECORD_TYPES, Audit, Batch, GraphRecord, Growth, Key, Record, Run, Story, Task, key_of
from rota.ports import Candidate, Fenced, Kept, Store, StoreRefused
from tests.contract.adapters import Adapter, Pause

_TYPES = {cls.__name__: cls for cls in (*RECORD_TYPES, Ended, Story)}

Row = tuple[str, bytes]


class Platter:
    """What is stored, and who may write."""

    def __init__(self) -> None:
        self.identity = ""
        self.epoch: Epoch = 0
        self.holder: Epoch | None = None
        self.rows: dict[Key, Row] = {}
        self.history: list[Row] = []
        self.stories: list[Row] = []
        self.audits: list[Audit] = []
        # Definitions that only runs in history were made of.
        self.graphs: dict[tuple[object, ...], Row] = {}


class RowStore:
    """The Store port over a platter."""

    def __init__(self, platter: Platter | None = None) -> None:
        self.platter = platter or Platter()
        self.pause: Pause | None = None

    # The port.

    async def identity(self) -> str:
        self.platter.identity = self.platter.identity or secrets.token_hex(8)
        return self.platter.identity

    async def elect(self, who: Candidate) -> Epoch | None:
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
        for key in batch.revives:
            self.revive(*key)
        self.apply(*written)
        self.platter.audits.extend(batch.audits)

    async def history(self, query: HistoryQuery) -> Page:
        places = {self.place(ended.run, at): ended.run for at, ended in self.told_of_history()}
        after = self.read_after(query.after)
        found = [place for place in places if self.is_asked_for(places[place], query) and self.is_past(place, after)]
        shown = sorted(found, reverse=True)[: query.limit]
        return Page(tuple(places[place] for place in shown), self.next_page(found, shown))

    async def ended(self, tenant: str, run: str, created_at: Millis = 0) -> Ended | None:
        for _, ended in reversed(list(self.told_of_history())):
            if (ended.run.tenant, ended.run.id) == (tenant, run) and created_at in (0, ended.run.created_at):
                return ended
        return None

    async def graph(self, tenant: str, digest: str) -> Graph | None:
        row = self.platter.rows.get(("GraphRecord", tenant, digest)) or self.platter.graphs.get((tenant, digest))
        return self.read(row).graph if row is not None else None

    async def kept(self) -> Kept:
        live = [self.read(row) for row in self.platter.rows.values()]
        past = [ended for _, ended in self.told_of_history()]
        runs: list[Run] = [*[row for row in live if isinstance(row, Run)], *[ended.run for ended in past]]
        tasks: list[Task | None] = [row for row in live if isinstance(row, Task)]
        tasks += [*[run.solo for run in runs], *[task for ended in past for task in ended.tasks]]
        fences = frozenset(task.done_fence for task in tasks if task is not None and task.result is not None)
        graphs: list[GraphRecord] = [row for row in live if isinstance(row, GraphRecord)]
        graphs += [self.read(row) for row in self.platter.graphs.values()]
        bundles = [record.graph.bundle for record in graphs]
        return Kept(
            fences,
            frozenset((run.tenant, run.id) for run in runs),
            frozenset(bundle.name for bundle in bundles if bundle is not None),
        )

    async def stories(self, tenant: str, run: str, created_at: Millis) -> list[Story]:
        told: list[Story] = [self.read(row) for row in self.platter.stories]
        return [part for part in told if (part.tenant, part.run, part.created_at) == (tenant, run, created_at)]

    async def audits(self, query: ListAudits) -> AuditsPage:
        own = [(number, audit) for number, audit in enumerate(self.platter.audits, 1) if audit.tenant == query.tenant]
        rest = [(number, audit) for number, audit in reversed(own) if not query.before or number < query.before]
        shown = rest[: query.limit]
        return AuditsPage(tuple(audit for _, audit in shown), shown[-1][0] if len(rest) > len(shown) else 0)

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        self.compare(epoch)
        old = [audit for audit in self.platter.audits if audit.at <= now - keep_ms]
        if old:
            self.platter.audits.remove(old[0])
            return 1
        for row in self.platter.history:
            ended: Ended = self.read(row)
            if self.is_expired(ended.run, now - keep_ms):
                self.forget(row, ended.run)
                return 1
        return 0

    # Its parts.

    def told_of_history(self) -> Iterable[tuple[int, Ended]]:
        """Every ended run with its place in the order of archiving."""
        return ((at, self.read(row)) for at, row in enumerate(self.platter.history))

    def place(self, run: Run, at: int) -> tuple[int, int]:
        """Where a run stands in history."""
        return run.ended_at, at

    def is_asked_for(self, run: Run, query: HistoryQuery) -> bool:
        """Whether a query finds this run."""
        return (
            run.tenant == query.tenant
            and query.name in ("", run.name)
            and query.kind in ("", run.kind)
            and (not query.states or run.state in query.states)
            and run.ended_at >= query.ended_from
            and (not query.ended_to or run.ended_at < query.ended_to)
            and set(query.labels) <= set(run.labels)
        )

    def read_after(self, after: str) -> tuple[int, int] | None:
        """Where a page ended."""
        return read_place(after)

    def is_past(self, place: tuple[int, int], after: tuple[int, int] | None) -> bool:
        """Whether a run comes after the page that ended there."""
        return after is None or place < after

    def next_page(self, found: list[tuple[int, int]], shown: list[tuple[int, int]]) -> str:
        """What the next page is asked with."""
        return f"{shown[-1][0]}.{shown[-1][1]}" if len(shown) < len(found) else ""

    def is_expired(self, run: Run, before: Millis) -> bool:
        """Whether a run ended long enough ago."""
        return run.ended_at <= before

    def forget(self, row: Row, run: Run) -> None:
        """Remove a run from history, and its story."""
        self.platter.history.remove(row)
        made_of = [(ended.run.tenant, ended.run.graph) for _, ended in self.told_of_history()]
        if (run.tenant, run.graph) not in made_of:
            self.platter.graphs.pop((run.tenant, run.graph), None)
        key = (run.tenant, run.id, run.created_at)
        told: list[tuple[Row, Story]] = [(part, self.read(part)) for part in self.platter.stories]
        self.platter.stories = [part for part, story in told if (story.tenant, story.run, story.created_at) != key]

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
        self.put(puts)
        graphs = {key: self.platter.rows[key] for key in drops if key[0] == "GraphRecord" and key in self.platter.rows}
        self.drop(drops)
        for key in archives:
            self.archive(key)
        made_of = [(ended.run.tenant, ended.run.graph) for _, ended in self.told_of_history()]
        kept = {**self.platter.graphs, **{key[1:]: row for key, row in graphs.items()}}
        self.platter.graphs = {key: row for key, row in kept.items() if key in made_of}
        self.platter.stories.extend(stories)

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
        run: Run = self.read(found)
        tasks: list[Task] = []
        growths: list[Growth] = []
        for part in self.parts(key):
            row = self.read(self.platter.rows.pop(part))
            (tasks if part[0] == "Task" else growths).append(row)
        if run.solo is not None and not tasks:
            tasks.append(run.solo)
        self.platter.history.append(self.write(Ended(run, tuple(tasks), tuple(growths))))

    def revive(self, tenant: str, run: str, created_at: Millis) -> None:
        """Take a run out of history."""
        for row in list(self.platter.history):
            ended: Ended = self.read(row)
            if self.is_meant(ended.run, tenant, run, created_at) and ("Run", tenant, run) not in self.platter.rows:
                self.platter.history.remove(row)
                own = [] if ended.run.solo is not None else list(ended.tasks)
                self.bring_back([ended.run, *own, *ended.growths])

    def is_meant(self, ended: Run, tenant: str, run: str, created_at: Millis) -> bool:
        """Whether this is the run of history that is to leave it."""
        return (ended.tenant, ended.id, ended.created_at) == (tenant, run, created_at)

    def bring_back(self, records: list[Record]) -> None:
        """Make a run of history live again."""
        self.platter.rows.update({key_of(record): self.write(record) for record in records})

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

    def pause_commit(self, store: Store) -> Pause | None:
        assert isinstance(store, RowStore)
        store.pause = Pause()
        return store.pause
