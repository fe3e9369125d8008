"""The bench on which a store is tried: its disk as it compares, and the stores opened on it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from rota.core.history import Ended, HistoryQuery
from rota.core.ids import Epoch, Millis
from rota.core.records import Audit, Batch, Key, Record, Run, Story, key_of
from rota.ports import Candidate, Fenced, Store
from tests.contract.adapters import Adapter
from tests.contract.records import Image, fields_of, image

Promise = Callable[["Bench"], Awaitable[None]]

# Names that a careless key would take for one another: by case, prefix, separator, pattern, form or type.
NEIGHBOURS = ("a", "A", "ab", "b", "a/b", "b/b", "a:b", "b:b", "a%", "_", "\u00e9", "e\u0301", "1", "10")
# Runs are archived by these tenants only, because history is asked for by tenant.
TENANTS = ("t", "u", *NEIGHBOURS)
# Small, so that most readings of history turn a page.
PAGE = 3


class Promises(list[Promise]):
    """A list of promises that is filled by decorating them."""

    def __call__(self, promise: Promise) -> Promise:
        """Put a promise on the list."""
        self.append(promise)
        return promise


class Disk(Struct):
    """Everything that is stored, in a form that compares exactly. Nothing in it is shared with a record."""

    rows: dict[Key, Image] = field(default_factory=dict)
    history: Counter[Image] = field(default_factory=Counter)
    stories: list[Image] = field(default_factory=list)


def disk_of(records: Iterable[Record] = (), history: Iterable[Ended] = (), stories: Iterable[Story] = ()) -> Disk:
    """The disk that holds exactly these."""
    disk = Disk(history=Counter(_ended_image(ended) for ended in history))
    for record in records:
        assert key_of(record) not in disk.rows, f"{key_of(record)} is there twice"
        disk.rows[key_of(record)] = image(record)
    told = sorted(stories, key=lambda story: (story.tenant, story.run, story.created_at))
    disk.stories.extend(image(story) for story in told)
    return disk


def _ended_image(ended: Ended) -> Image:
    tasks = sorted(ended.tasks, key=lambda task: task.idx)
    growths = sorted(ended.growths, key=lambda growth: growth.number)
    return (image(ended.run), *[image(part) for part in (*tasks, *growths)])


def assert_same(got: Disk, expected: Disk) -> None:
    """Two disks are equal; if they are not, say where, because the whole of them is too long to read."""
    if got != expected:
        said = [line if len(line) < 400 else f"{line[:400]}…" for line in islice(_differences(got, expected), 20)]
        raise AssertionError("\n".join(["the disk is not what it should be:", *said]))


def _differences(got: Disk, expected: Disk) -> Iterator[str]:
    for key in {**got.rows, **expected.rows}:
        if key not in got.rows:
            yield f"{key} is missing"
        elif key not in expected.rows:
            yield f"{key} should not be there"
        else:
            yield from (f"{key}: {said}" for said in _unlike(got.rows[key], expected.rows[key]))
    for ended, count in (expected.history - got.history).items():
        yield f"history lacks {count} of {ended}"
    for ended, count in (got.history - expected.history).items():
        yield f"history has {count} too many of {ended}"
    if got.stories != expected.stories:
        yield f"stories are {got.stories}, should be {expected.stories}"


def _unlike(got: Image, expected: Image) -> Iterator[str]:
    cls: Any = expected[0]
    for part, mine, theirs in zip(fields_of(cls), got[1:], expected[1:], strict=True):
        if mine != theirs:
            yield f"{part.name} is {mine}, should be {theirs}"


def batch(
    puts: Iterable[Record] = (),
    drops: Iterable[Key] = (),
    archives: Iterable[tuple[str, str]] = (),
    stories: Iterable[Story] = (),
    audits: Iterable[Audit] = (),
    revives: Iterable[tuple[str, str, Millis]] = (),
) -> Batch:
    """A batch of these."""
    return Batch(list(puts), list(drops), list(archives), list(stories), list(audits), list(revives))


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

    async def reopen(self, store: Store, epoch: Epoch) -> Store:
        """The process behind `store` ends, and another opens the disk."""
        again = await self.adapter.reopen(store, epoch)
        self._open[self._open.index(store)] = again
        if self.store is store:
            self.store = again
        return again

    async def elect(self, store: Store) -> Epoch:
        """An election that must be won, because the lock is free."""
        epoch = await asyncio.wait_for(store.elect(Candidate("somebody")), self.adapter.patience_s)
        assert epoch is not None, "the lock was free, and the election was not won"
        return epoch

    async def elect_after_death(self, store: Store) -> Epoch:
        """An election that must be won before long, because the holder has died."""
        async with asyncio.timeout(self.adapter.patience_s):
            while (epoch := await store.elect(Candidate("somebody"))) is None:
                await asyncio.sleep(0.01)  # as a standby does: nobody tells it that a dead holder's time is up
        return epoch

    async def reign(self) -> tuple[Store, Epoch]:
        """The first store, as the writer."""
        return self.store, await self.elect(self.store)

    async def overtake(self, store: Store, epoch: Epoch) -> tuple[Store, Epoch]:
        """A rival becomes the writer; the old one lost its lock before."""
        await store.release(epoch)
        rival = await self.join()
        return rival, await self.elect(rival)

    async def overtake_on_its_way(self, store: Store, epoch: Epoch, late: Batch, landed: Disk) -> None:
        """Pause a commit between compare and COMMIT, elect another, load, resume: Fenced, and nothing has changed.

        Where nothing can come between the two, the commit arrives after the election instead. Where a rival waits for
        commits, the disk is `landed` when it is elected.
        """
        pause = self.adapter.pause_commit(store)
        if pause is None:
            rival, later = await self.overtake(store, epoch)
            async with self.unchanged(rival, later):
                with pytest.raises(Fenced):
                    await store.commit(epoch, late)
            return
        before = await self.disk(store, epoch)
        async with asyncio.timeout(self.adapter.patience_s):
            commit = asyncio.create_task(store.commit(epoch, late))
            await pause.reached.wait()
            await store.release(epoch)
            rival = await self.join()
            if self.adapter.rivals_wait_for_commits:
                assert await rival.elect(Candidate("rival")) is None, "elected past a commit that may still land"
                pause.resumed.set()
                await commit
                await self.expect(rival, await self.elect(rival), landed)
                return
            later = await self.elect(rival)
            await self.expect(rival, later, before)
            pause.resumed.set()
            with pytest.raises(Fenced):
                await commit
            await self.expect(rival, later, before)

    async def disk(self, store: Store, epoch: Epoch) -> Disk:
        """All that is stored, read by whoever reigns."""
        records = [record async for record in store.load(epoch)]
        history = await self.history(store)
        runs = [*[ended.run for ended in history], *[record for record in records if isinstance(record, Run)]]
        stories = [story for run in runs for story in await store.stories(run.tenant, run.id, run.created_at)]
        return disk_of(records, history, stories)

    async def history(self, store: Store) -> list[Ended]:
        """All runs in history, page by page, each with its parts."""
        found: list[Ended] = []
        for tenant in TENANTS:
            for run in await self.pages(store, HistoryQuery(tenant=tenant, limit=PAGE)):
                ended = await store.ended(tenant, run.id, run.created_at)
                assert ended is not None, f"{run.id} is on a page of history and not to be found"
                assert image(ended.run) == image(run), "a page and the run itself say different things"
                found.append(ended)
        return found

    async def pages(self, store: Store, query: HistoryQuery) -> list[Run]:
        """Every run that a query finds, in the order of the pages."""
        runs: list[Run] = []
        while True:
            page = await store.history(query)
            assert len(page.runs) <= query.limit, "a page that is too long"
            runs += page.runs
            if not page.next:
                return runs
            assert page.runs, "an empty page that is not the last"
            assert page.next != query.after, "the next page is the same page"
            query = replace(query, after=page.next)

    async def expect(self, store: Store, epoch: Epoch, expected: Disk) -> None:
        """What is stored is this and nothing else."""
        assert_same(await self.disk(store, epoch), expected)

    @asynccontextmanager
    async def unchanged(self, store: Store, epoch: Epoch) -> AsyncIterator[Disk]:
        """Nothing that is stored may change in here."""
        before = await self.disk(store, epoch)
        yield before
        await self.expect(store, epoch, before)

    async def close(self) -> None:
        """Close every store."""
        await self.adapter.close(self._open)


@asynccontextmanager
async def bench_of(adapter: Adapter) -> AsyncIterator[Bench]:
    """A bench with an empty disk, cleared away afterwards."""
    bench = Bench(adapter, await adapter.make_store())
    try:
        yield bench
    finally:
        await bench.close()


async def hold_to(adapter: Adapter, promise: Promise) -> None:
    """Put a store with an empty disk through one promise."""
    async with bench_of(adapter) as bench:
        await promise(bench)
