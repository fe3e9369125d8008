"""The store for tests, notebooks and the simulator: dictionaries, with the same promises as the durable ones.

`MemoryDisk` holds the rules and is synchronous, so that the simulator can put time and faults between asking and
answering; `MemoryStore` is the port.
"""

import secrets
from collections.abc import AsyncIterator, Iterator
from copy import copy

from msgspec import structs

from rota.core.bounds import ROWS_PER_TIDY
from rota.core.errors import Refused
from rota.core.history import AuditsPage, Ended, HistoryQuery, ListAudits, Page
from rota.core.ids import Epoch, GraphDigest, Millis, RunId, RunKey
from rota.core.model import Graph
from rota.core.records import RECORD_TYPES, Audit, Batch, GraphRecord, Growth, Key, Record, Run, Story, Task, key_of
from rota.ports import Candidate, Fenced, Kept, StoreRefused

Place = tuple[Millis, Millis, str]


class MemoryDisk:
    """Records, history, stories and the one lock."""

    def __init__(self, identity: str = "") -> None:
        """`identity` is chosen by those who must have the same every time; otherwise it is random."""
        self.identity = identity or secrets.token_hex(16)
        self.epoch = Epoch(0)
        self.holder = Epoch(0)
        self.records: dict[Key, Record] = {}
        self.tasks: dict[RunKey, dict[Key, None]] = {}
        self.history: list[Ended] = []
        self.stories: dict[RunKey, list[Story]] = {}
        self.audits: list[Audit] = []
        self._audits_gone = 0
        # Definitions that no live run needs and a run in history does.
        self.old_graphs: dict[tuple[str, str], GraphRecord] = {}

    def elect(self) -> Epoch | None:
        """Take the lock if it is free. The epoch grows by one with every success and never otherwise."""
        if self.holder:
            return None
        self.epoch = Epoch(self.epoch + 1)
        self.holder = self.epoch
        return self.epoch

    def holds(self, epoch: Epoch) -> bool:
        """Whether the lock is held by that reign."""
        return epoch > 0 and self.holder == epoch

    def release(self, epoch: Epoch) -> None:
        """Free the lock if it is still held by that reign."""
        if self.holder == epoch:
            self.holder = Epoch(0)

    def load(self, epoch: Epoch) -> list[Record]:
        """All live records, for the reigning epoch only."""
        self._check(epoch)
        return [_twin(record) for record in self.records.values()]

    def commit(self, epoch: Epoch, batch: Batch) -> None:
        """Apply a batch whole, or raise and apply nothing. The records are the disk's own from here on."""
        self._check(epoch)
        records, puts = self.records, _keyed(batch)
        graphs = [self._revive(*key) for key in batch.revives]
        for key, record in puts:
            records[key] = record
            if key[0] in ("Task", "Growth"):
                self.tasks.setdefault((str(key[1]), RunId(str(key[2]))), {})[key] = None
        dropped = [records.pop(key, None) for key in batch.drops]
        for story in batch.stories:
            self.stories.setdefault((story.tenant, story.run), []).append(story)
        self.audits.extend(batch.audits)
        for run_key in batch.archives:
            self._archive(run_key)
        for record in dropped:
            # After the runs: one that went to history with this very commit needs its definition there.
            if isinstance(record, GraphRecord):
                self._keep(record)
        for key in graphs:
            # Brought back by the runs for which it was kept.
            if ("GraphRecord", *key) in records and not self._is_past_graph(key):
                self.old_graphs.pop(key, None)

    def _keep(self, graph: GraphRecord) -> None:
        key = (graph.tenant, graph.digest)
        if self._is_past_graph(key):
            self.old_graphs[key] = graph

    def _is_past_graph(self, key: tuple[str, str]) -> bool:
        return any((ended.run.tenant, ended.run.graph) == key for ended in self.history)

    def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """A definition, live or kept for the history."""
        found = self.records.get(("GraphRecord", tenant, digest)) or self.old_graphs.get((tenant, digest))
        return found.graph if isinstance(found, GraphRecord) else None

    def _archive(self, key: RunKey) -> None:
        run = self.records.pop(("Run", *key), None)
        parts = [self.records.pop(part) for part in self.tasks.pop(key, {}) if part in self.records]
        if isinstance(run, Run):
            tasks = [part for part in parts if isinstance(part, Task)]
            growths = [part for part in parts if isinstance(part, Growth)]
            self.history.append(Ended(run, tuple(tasks or ([run.solo] if run.solo else [])), tuple(growths)))

    def _revive(self, tenant: str, run: RunId, created_at: Millis) -> tuple[str, str]:
        """Take a run out of history, unless it is not there or its id is in use again; what it was made of."""
        found = self._find(tenant, run, created_at)
        if found is None or found.run.created_at != created_at or ("Run", tenant, run) in self.records:
            return "", ""
        self.history.remove(found)
        row = found.run
        own = [part for part in (*found.tasks, *found.growths) if part is not row.solo]
        self.records[("Run", tenant, run)] = row
        self.records.update({key_of(part): part for part in own})
        self.tasks[tenant, run] = {key_of(part): None for part in own}
        return row.tenant, row.graph

    def page(self, query: HistoryQuery) -> Page:
        """One page of history."""
        after = _read_place(query.after)
        found = sorted((ended.run for ended in self.history if query.finds(ended.run)), key=_place_of, reverse=True)
        rest = [run for run in found if after is None or _place_of(run) < after]
        shown = rest[: query.page_limit]
        more = len(rest) > len(shown)
        return Page(tuple(_twin_run(run) for run in shown), ".".join(map(str, _place_of(shown[-1]))) if more else "")

    def ended(self, tenant: str, run: RunId, created_at: Millis = 0) -> Ended | None:
        """The newest run of history with that id, or the one that was created then."""
        found = self._find(tenant, run, created_at)
        if found is None:
            return None
        return Ended(_twin_run(found.run), tuple(copy(task) for task in found.tasks), found.growths)

    def _find(self, tenant: str, run: RunId, created_at: Millis) -> Ended | None:
        for ended in reversed(self.history):
            row = ended.run
            if (row.tenant, row.id) == (tenant, run) and created_at in (0, row.created_at):
                return ended
        return None

    def kept(self) -> Kept:
        """What is referred to, live or in history."""
        runs = [record for record in self.records.values() if isinstance(record, Run)]
        runs += [ended.run for ended in self.history]
        tasks = [record for record in self.records.values() if isinstance(record, Task)]
        tasks += [task for ended in self.history for task in ended.tasks]
        tasks += [run.solo for run in runs if run.solo is not None]
        fences = frozenset(task.done_fence for task in tasks if task.result is not None)
        graphs = [record for record in self.records.values() if isinstance(record, GraphRecord)]
        bundles = [record.graph.bundle for record in (*graphs, *self.old_graphs.values())]
        return Kept(
            fences,
            frozenset((run.tenant, run.id) for run in runs),
            frozenset(bundle.name for bundle in bundles if bundle is not None),
        )

    def audited(self, query: ListAudits) -> AuditsPage:
        """Who asked for what, the newest first."""
        found: list[Audit] = []
        for number in range(len(self.audits), 0, -1):
            audit = self.audits[number - 1]
            if audit.tenant != query.tenant or (query.before and number + self._audits_gone >= query.before):
                continue
            if len(found) == query.page_limit:
                return AuditsPage(tuple(found), number + self._audits_gone + 1)
            found.append(audit)
        return AuditsPage(tuple(found))

    def told(self, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """The story of one run."""
        return [story for story in self.stories.get((tenant, run), ()) if story.created_at == created_at]

    def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """Forget what ended long ago, a slice at a time. Whole runs: here they move to history in one piece."""
        self._check(epoch)
        rows = 0
        for ended in list(self._expired(now - keep_ms)):
            rows += self._forget(ended)
            if rows >= ROWS_PER_TIDY:
                break
        old = sum(audit.at <= now - keep_ms for audit in self.audits[: max(0, ROWS_PER_TIDY - rows)])
        self._audits_gone += old
        del self.audits[:old]
        return rows + old

    def _expired(self, before: Millis) -> Iterator[Ended]:
        return (ended for ended in self.history if ended.run.ended_at <= before)

    def _forget(self, ended: Ended) -> int:
        row = ended.run
        self.history.remove(ended)
        key = (row.tenant, row.graph)
        if key in self.old_graphs and not self._is_past_graph(key):
            del self.old_graphs[key]
        told = self.stories.pop((row.tenant, row.id), [])
        kept = [story for story in told if story.created_at != row.created_at]
        if kept:
            self.stories[(row.tenant, row.id)] = kept
        return 1 + len(ended.tasks) + len(ended.growths) + len(told) - len(kept)

    def _check(self, epoch: Epoch) -> None:
        # The epoch alone decides, not the lock: a writer whose lock was lost and not yet taken by another has not
        # been overtaken, and its commits are still in order.
        if epoch != self.epoch or epoch <= 0:
            raise Fenced(f"epoch {epoch} has passed; {self.epoch} reigns")


def _twin(record: Record) -> Record:
    return _twin_run(record) if isinstance(record, Run) else copy(record)


def _twin_run(run: Run) -> Run:
    twin = copy(run)
    if twin.solo is not None:
        twin.solo = copy(twin.solo)
    return twin


def _place_of(run: Run) -> Place:
    return run.ended_at, run.created_at, run.id


def _read_place(after: str) -> Place | None:
    if not after:
        return None
    try:
        ended_at, created_at, name = after.split(".", 2)
        return int(ended_at), int(created_at), name
    except ValueError:
        raise Refused("field.value", f"{after!r} is not where a page of history ended", path="after") from None


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

    async def identity(self) -> str:
        """See the port."""
        return self.disk.identity

    async def elect(self, who: Candidate) -> Epoch | None:
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
        self.disk.commit(epoch, structs.replace(batch, puts=puts))

    async def history(self, query: HistoryQuery) -> Page:
        """See the port."""
        return self.disk.page(query)

    async def ended(self, tenant: str, run: RunId, created_at: Millis = 0) -> Ended | None:
        """See the port."""
        return self.disk.ended(tenant, run, created_at)

    async def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """See the port."""
        return self.disk.graph(tenant, digest)

    async def stories(self, tenant: str, run: RunId, created_at: Millis) -> list[Story]:
        """See the port."""
        return self.disk.told(tenant, run, created_at)

    async def audits(self, query: ListAudits) -> AuditsPage:
        """See the port."""
        return self.disk.audited(query)

    async def kept(self) -> Kept:
        """See the port."""
        return self.disk.kept()

    async def tidy(self, epoch: Epoch, now: Millis, keep_ms: Millis) -> int:
        """See the port."""
        return self.disk.tidy(epoch, now, keep_ms)
