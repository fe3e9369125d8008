"""Runs that leave history on etcd: hidden in segments that cannot be changed, until those are written anew."""

import asyncio
from pathlib import Path

import pytest

from rota.core.history import Ended
from rota.core.ids import BlobRef
from rota.core.records import Run, Task
from rota.stores.etcd import EtcdStore
from rota.stores.etcd.keys import HISTORY
from rota.stores.etcd.opening import FORMAT
from rota.stores.etcd.tidying import Bounds
from tests.contract.bench import batch
from tests.contract.samples import rows_of, story_of
from tests.integration.etcd_stage import EAGER, FOREVER, Fate, FatedBlobs, Model, Stage, staged
from tests.servers.etcd import shared_server

pytestmark = pytest.mark.full

# Checkpoints with every slice of housekeeping, and segments that stay as they are.
APART = Bounds(entries=1, share_percent=0, merge_at=100)


def ended(number: int) -> Ended:
    """A run that ended at that instant."""
    run = Run("t", f"r{number}", "digest", "name", created_at=number, ended_at=number)
    return Ended(run, tuple(Task("t", run.id, idx, error="x") for idx in range(3)), ())


async def archived(store: EtcdStore, epoch: int, model: Model, *runs: Ended) -> None:
    written = batch(rows_of(*runs), (), [("t", each.run.id) for each in runs], [])
    written.stories = [story for each in runs for story in story_of(each.run)]
    await store.commit(epoch, written)
    await model.commit(written)


async def revived(store: EtcdStore, epoch: int, model: Model, *runs: Ended) -> None:
    written = batch(revives=[("t", each.run.id, each.run.created_at) for each in runs])
    await store.commit(epoch, written)
    await model.commit(written)


async def tidied(store: EtcdStore, epoch: int) -> None:
    while await store.tidy(epoch, 0, FOREVER):
        pass


def hidden(store: EtcdStore) -> list[int]:
    """The numbers of runs that a store hides in segments."""
    return list(store._replica.mirror.left)


async def segments_of(stage: Stage) -> int:
    return len([each for each in await stage.blobs.list(HISTORY) if each.name.endswith("rows")])


def test_a_run_is_hidden_for_as_long_as_its_segment_is_there() -> None:
    async def run() -> None:
        async with staged(bounds=APART) as stage:
            store, epoch = await stage.reign()
            model, runs = Model(), [ended(number) for number in range(1, 8)]
            await archived(store, epoch, model, *runs[:4])
            await tidied(store, epoch)
            await archived(store, epoch, model, *runs[4:])
            await tidied(store, epoch)
            assert await segments_of(stage) == 2
            await revived(store, epoch, model, runs[1])
            await tidied(store, epoch)
            await store.close()
            store, epoch = await stage.reign()
            assert hidden(store) == [2]
            await model.expect(store, epoch)
            await revived(store, epoch, model, runs[0], runs[2], runs[6])
            await tidied(store, epoch)
            # Most of the first segment had gone, so it was written anew; in the second two of three are left.
            assert hidden(store) == [7]
            assert await segments_of(stage) == 2
            await model.expect(store, epoch)
            await revived(store, epoch, model, runs[3], runs[4])
            await tidied(store, epoch)
            assert hidden(store) == []
            assert await segments_of(stage) == 1, "nothing was left of the first"
            await model.expect(store, epoch)
            await store.close()
            await model.expect(*await stage.reign())

    asyncio.run(run())


def test_what_was_in_no_segment_yet_is_hidden_in_none() -> None:
    async def run() -> None:
        async with staged(bounds=APART) as stage:
            store, epoch = await stage.reign()
            model, runs = Model(), [ended(number) for number in range(1, 4)]
            await archived(store, epoch, model, *runs)
            await revived(store, epoch, model, runs[1])
            await model.expect(store, epoch)
            await tidied(store, epoch)
            assert hidden(store) == []
            await model.expect(store, epoch)
            await store.close()
            await model.expect(*await stage.reign())

    asyncio.run(run())


class HeldBlobs(FatedBlobs):
    """Blobs in which the next segment is not stored before somebody says so."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.blobs, Fate(1_000_000))
        self.reached, self.resumed = asyncio.Event(), asyncio.Event()

    async def put(self, name: str, content: bytes | Path, *, is_durable: bool = True) -> BlobRef:
        if name.endswith("rows"):
            self.reached.set()
            await self.resumed.wait()
        return await super().put(name, content, is_durable=is_durable)


def test_a_run_leaves_history_while_a_checkpoint_moves_it_into_a_segment() -> None:
    async def run() -> None:
        async with staged(bounds=APART) as stage:
            blobs = HeldBlobs(stage)
            store, epoch = await stage.reign(stage.open(blobs))
            model, runs = Model(), [ended(number) for number in range(1, 4)]
            await archived(store, epoch, model, *runs)
            tidying = asyncio.create_task(store.tidy(epoch, 0, FOREVER))
            await blobs.reached.wait()
            await revived(store, epoch, model, runs[0], runs[2])
            await model.expect(store, epoch)
            again = batch(archives=[("t", "r3")])
            await store.commit(epoch, again)
            await model.commit(again)
            blobs.resumed.set()
            assert await tidying
            assert hidden(store) == [1, 3]
            await model.expect(store, epoch)
            other = stage.open()
            assert await other.ended("t", "r1") is None
            assert await other.ended("t", "r3") == runs[2]
            await tidied(store, epoch)
            await model.expect(store, epoch)
            await store.close()
            await model.expect(*await stage.reign())

    asyncio.run(run())


class HeldIndex(FatedBlobs):
    """Blobs in which whoever is the first to read an index waits until somebody says so."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.blobs, Fate(1_000_000))
        self.reached, self.resumed = asyncio.Event(), asyncio.Event()

    async def get(self, ref: BlobRef) -> bytes:
        if ref.name.endswith("index") and not self.reached.is_set():
            self.reached.set()
            await self.resumed.wait()
        return await super().get(ref)


def test_a_run_that_leaves_history_while_garbage_is_looked_for_is_kept() -> None:
    async def run() -> None:
        async with staged(bounds=APART) as stage:
            store, epoch = await stage.reign()
            runs = [ended(number) for number in range(1, 3)]
            await archived(store, epoch, Model(), *runs)
            await tidied(store, epoch)
            await store.close()
            blobs = HeldIndex(stage)
            store, epoch = await stage.reign(stage.open(blobs))
            looking = asyncio.create_task(store.kept())
            await blobs.reached.wait()
            await revived(store, epoch, Model(), runs[0])
            blobs.resumed.set()
            assert (await looking).runs == {("t", "r1"), ("t", "r2")}
            assert (await store.kept()).runs == {("t", "r1"), ("t", "r2")}

    asyncio.run(run())


def test_a_large_run_leaves_history_through_as_many_parts_as_it_takes() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            model, large = Model(), ended(1)
            tasks = tuple(Task("t", "r1", idx, error="x" * 500) for idx in range(6_000))
            await archived(store, epoch, model, Ended(large.run, tasks, ()))
            await tidied(store, epoch)
            await revived(store, epoch, model, large)
            await model.expect(store, epoch)
            await store.close()
            store, epoch = await stage.reign()
            await model.expect(store, epoch)
            await tidied(store, epoch)
            await model.expect(store, epoch)

    asyncio.run(run())


def test_a_store_of_before_is_taken_over_and_closed_to_whoever_would_not_understand_it() -> None:
    async def run() -> None:
        async with staged() as stage:
            store, epoch = await stage.reign()
            model, one = Model(), ended(1)
            await archived(store, epoch, model, one)
            await store.close()
            key = f"{stage.url.rpartition('/')[2]}/state/format"
            shared_server().control("put", key, "rota-etcd 1")
            follower = stage.open()
            assert await follower.ended("t", "r1") == one
            assert shared_server().control("get", "--print-value-only", key).strip() == "rota-etcd 1", "who only looks"
            store, epoch = await stage.reign()
            assert shared_server().control("get", "--print-value-only", key).strip() == f"rota-etcd {FORMAT}"
            await revived(store, epoch, model, one)
            await model.expect(store, epoch)

    asyncio.run(run())
