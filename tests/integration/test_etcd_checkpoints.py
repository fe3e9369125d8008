"""Checkpoints of the etcd store: stopped anywhere and done again, nothing changes; and what is superfluous goes."""

import asyncio
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.errors import Unavailable
from rota.core.history import Ended, HistoryQuery, ListAudits
from rota.core.model import Graph, TaskSpec
from rota.core.records import Audit, Batch, GraphRecord, Run, Task
from rota.ports import Kept
from rota.stores.etcd import EtcdStore
from rota.stores.etcd import rpc_pb2 as rpc
from rota.stores.etcd.keys import HISTORY, SNAPSHOTS, manifest_name
from rota.stores.etcd.tidying import Bounds, read_size
from tests.contract.bench import batch
from tests.contract.records import filled
from tests.contract.samples import a_one_task_run, a_run, one_of_each, rows_of, story_of
from tests.effort import examples
from tests.integration.etcd_stage import (
    EAGER,
    FOREVER,
    ME,
    Fate,
    FatedBlobs,
    Killed,
    Model,
    Stage,
    disk_of,
    staged,
)
from tests.servers.etcd import etcd_server

pytestmark = pytest.mark.full


def ended(number: int) -> Ended:
    """A run that ended at that instant."""
    made = a_run(run=f"r{number}", start=10_000 * number) if number % 2 else a_one_task_run(run=f"r{number}")
    made.run.ended_at, made.run.created_at = number, number + 1
    return made


def lives(numbers: range) -> list[Batch]:
    """Commits in which runs come, go on, go, and come back."""
    made: list[Batch] = []
    for number in numbers:
        run = ended(number)
        audit = filled(Audit, number, tenant="t", at=number)
        made.append(batch([*rows_of(run), *one_of_each(1_000 * number)], stories=story_of(run.run), audits=[audit]))
        if number > 1:
            made.append(batch(archives=[("t", f"r{number - 1}")], drops=[("Pool", "t", f"r{number}")]))
        if number > 2:
            # Every other one stays alive.
            made.append(batch(revives=[("t", f"r{number - 2}", number - 1)]))
            made.append(batch(archives=[("t", f"r{number - 2}")] if number % 2 else []))
    return made


async def tidied(store: EtcdStore, epoch: int, now: int = 0, keep_ms: int = FOREVER) -> None:
    """Slice after slice, until nothing is left to do."""
    while await store.tidy(epoch, now, keep_ms):
        pass


async def act(store: EtcdStore, done: list[Batch]) -> None:
    """A process's life: it is elected, writes and tidies by turns. `done` is what it was told is written."""
    epoch = await store.elect(ME)
    assert epoch is not None
    _ = [record async for record in store.load(epoch)]
    for number, written in enumerate(LIVES):
        await store.commit(epoch, written)
        done.append(written)
        if number == 2:
            await tidied(store, epoch)
    await tidied(store, epoch, 2, 0)


LIVES = lives(range(1, 4))


async def free(store: EtcdStore) -> None:
    """What the cluster does when the time of a dead process is up."""
    found = await store.client.read(f"{store.client.address.prefix}/state/leader".encode())
    for leader in found.kvs:
        await store.client.revoke(leader.lease)


async def possible(done: int) -> list[Model]:
    """What may be there after a process died that was told of so many commits: the next one as well, or not."""
    models = [Model(), Model()]
    for written in LIVES[:done]:
        await models[0].commit(written)
        await models[1].commit(written)
    if done < len(LIVES):
        await models[1].commit(LIVES[done])
    else:
        await models[1].tidy(2, 0)
    return models


async def survive(stage: Stage, fate: Fate) -> bool:
    """Whether a process was killed, and whoever came after it found what it should, and could go on."""
    done: list[Batch] = []
    store = stage.open(FatedBlobs(stage.blobs, fate))
    fate.befall(store)
    try:
        await act(store, done)
    except Killed:
        pass
    else:
        return False
    finally:
        await stage.bury(store)
    rival = stage.open()
    await free(rival)
    rival, later = await stage.reign(rival)
    found = await disk_of(rival, later)
    (model, *_) = [model for model in await possible(len(done)) if await model.disk() == found] or [None]
    assert model is not None, f"after call {fate.last}: neither with the commit under way nor without it"
    await rival.commit(later, batch(one_of_each(900_000)))
    await model.commit(batch(one_of_each(900_000)))
    await tidied(rival, later)
    await model.expect(rival, later)
    await rival.release(later)
    await model.expect(*await stage.reign())
    names = [each.name for each in await stage.blobs.list(SNAPSHOTS)]
    assert len([name for name in names if name.endswith("manifest")]) == 1, "what nothing names is swept"
    return True


@pytest.mark.long
def test_whoever_comes_after_a_process_that_died_at_any_call_finds_all_that_it_was_told_is_written() -> None:
    async def run() -> int:
        for last in count(1):
            async with staged(bounds=EAGER) as stage:
                if not await survive(stage, Fate(last)):
                    return last
        raise AssertionError("it ends sometime")

    assert asyncio.run(run()) > 40, "a life with many calls"


@examples(5)
@given(st.lists(st.sampled_from(["commit", "tidy", "expire", "load", "reopen"]), min_size=5, max_size=25))
def test_checkpoint_and_tail_are_the_records_whenever_a_checkpoint_is_made(steps: list[str]) -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            model, written, now = Model(), iter(lives(range(1, 30))), 0
            for step in steps:
                if step == "commit":
                    one = next(written)
                    await store.commit(epoch, one)
                    await model.commit(one)
                elif step == "tidy":
                    await store.tidy(epoch, 0, FOREVER)
                elif step == "expire":
                    now += 1
                    await tidied(store, epoch, now, 0)
                    await model.tidy(now, 0)
                elif step == "load":
                    await model.expect(store, epoch)
                else:
                    await store.close()
                    store, epoch = await stage.reign()
            await model.expect(store, epoch)
            asked = ListAudits(tenant="t")
            assert (await store.audits(asked)).audits == model.store.disk.audited(asked).audits
            assert await store.kept() == model.store.disk.kept()

    asyncio.run(run())


# What is left behind.


def task(idx: int, number: int) -> Task:
    return Task("t", "r", idx, fence=number, error="x" * 1_000)


def test_the_log_and_etcd_itself_stay_small_however_much_is_written() -> None:
    async def run() -> None:
        with etcd_server() as server:
            async with staged(server, bounds=Bounds(entries=50, bytes=1 << 20, share_percent=0)) as stage:
                store, epoch = await stage.reign()
                model = Model()
                await store.commit(epoch, batch([Run("t", "r", "digest", "name")]))
                sizes: list[int] = []
                for number in range(400):
                    written = batch([task(idx, number) for idx in range(100)])
                    await store.commit(epoch, written)
                    if number % 20 == 0:
                        await tidied(store, epoch)
                        sizes.append(server.size())
                await model.commit(batch([Run("t", "r", "digest", "name"), *written.puts]))
                assert max(sizes) < 20 << 20, f"forty megabytes were written, and {sizes} are in use"
                log = server.control("get", "--prefix", "--keys-only", f"{stage.url.rpartition('/')[2]}/log/")
                assert len(log.split()) < 100
                await model.expect(store, epoch)
                assert stage.warnings == []

    asyncio.run(run())


def test_somebody_is_told_once_that_etcd_is_nearly_full_and_before_it_is() -> None:
    async def run() -> None:
        async with staged(bounds=Bounds(quota_bytes=1_000)) as stage:
            store, epoch = await stage.reign()
            await tidied(store, epoch)
            await tidied(store, epoch)
            (warning,) = stage.warnings
            assert stage.url in warning
            assert "--quota-backend-bytes" in warning

    asyncio.run(run())


def test_how_full_etcd_is_goes_by_its_own_quota_and_by_the_usual_one_if_it_does_not_say() -> None:
    file = rpc.StatusResponse(db_size=1_700, db_size_in_use=900)
    told = rpc.StatusResponse(db_size=1_700, db_size_in_use=900, db_size_quota=8_000)
    by_default, by_its_own = [
        read_size(status, rpc.AlarmResponse(), Bounds(quota_bytes=2_000)) for status in (file, told)
    ]
    assert (by_default.quota_bytes, by_default.is_nearly_full, by_default.is_crowded) == (2_000, True, False)
    assert (by_its_own.quota_bytes, by_its_own.is_nearly_full, by_its_own.is_crowded) == (8_000, False, False)
    alarm = rpc.AlarmResponse(alarms=[rpc.AlarmMember(alarm=rpc.AlarmMember.NOSPACE)])
    full = read_size(told, alarm, Bounds())
    assert full.is_full
    assert full.is_nearly_full
    assert full.is_crowded


def test_blobs_that_no_checkpoint_names_are_removed_and_those_of_later_reigns_are_not() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            for written in LIVES:
                await store.commit(epoch, written)
                await tidied(store, epoch)
            later = manifest_name(epoch + 1, 1, 1)
            await stage.blobs.put(later, b"of a writer that we have not heard of")
            await store.commit(epoch, batch(one_of_each(500_000)))
            await tidied(store, epoch)
            names = [each.name for each in await stage.blobs.list(SNAPSHOTS)]
            assert later.rpartition("/")[2] in names
            assert len(names) <= 1 + 3, f"one snapshot and its parts: {names}"

    asyncio.run(run())


def test_a_segment_is_rewritten_when_most_of_it_is_too_old_and_removed_when_all_is() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            model = Model()
            for number in range(1, 11):
                for written in (
                    batch(rows_of(ended(number)), stories=story_of(ended(number).run)),
                    batch(archives=[("t", f"r{number}")]),
                ):
                    await store.commit(epoch, written)
                    await model.commit(written)
            await tidied(store, epoch)

            async def segments() -> list[str]:
                return [each.name for each in await stage.blobs.list(HISTORY) if each.name.endswith("rows")]

            first = await segments()
            assert len(first) == 1
            for until, is_same in ((3, True), (7, False), (8, False), (10, False)):
                before = await segments()
                await tidied(store, epoch, until, 0)
                await store.commit(epoch, batch())
                await tidied(store, epoch)
                await model.tidy(until, 0)
                await model.expect(store, epoch)
                assert (await segments() == before) == is_same or until == 8
            assert await segments() == []

    asyncio.run(run())


def test_segments_are_merged_so_that_they_stay_few() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            model = Model()
            for number in range(1, 30):
                audit = filled(Audit, number, tenant="t", at=number)
                for written in (batch(rows_of(ended(number)), audits=[audit]), batch(archives=[("t", f"r{number}")])):
                    await store.commit(epoch, written)
                    await model.commit(written)
                await tidied(store, epoch)
            rows = [each.name for each in await stage.blobs.list(HISTORY) if each.name.endswith("rows")]
            assert 1 <= len(rows) < EAGER.merge_at, f"thirty checkpoints, and these are left: {rows}"
            await model.expect(store, epoch)
            for limit in (1, 4, 100):
                asked = ListAudits(tenant="t", limit=limit, before=20)
                assert await store.audits(asked) == model.store.disk.audited(asked)
            assert await store.kept() == model.store.disk.kept()

    asyncio.run(run())


def test_whoever_only_reads_sees_what_a_writer_has_written_however_it_is_tidied() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            model, reader = Model(), stage.open()
            for number, written in enumerate(lives(range(1, 8))):
                await store.commit(epoch, written)
                await model.commit(written)
                if number % 2:
                    await tidied(store, epoch)
                for tenant in ("t", "nobody"):
                    query = HistoryQuery(tenant=tenant, limit=2)
                    assert [run.id for run in (await reader.history(query)).runs] == [
                        run.id for run in model.store.disk.page(query).runs
                    ]
            run = await reader.ended("t", "r1")
            assert run == model.store.disk.ended("t", "r1")
            assert await reader.stories("t", "r1", 2) == model.store.disk.told("t", "r1", 2)
            kept: Kept = await reader.kept()
            assert kept == model.store.disk.kept()
            # What it knows of is removed under it.
            await tidied(store, epoch, 6, 0)
            await model.tidy(6, 0)
            assert await reader.ended("t", "r1") is None
            assert (await reader.history(HistoryQuery(tenant="t"))).runs == model.store.disk.page(
                HistoryQuery(tenant="t")
            ).runs

    asyncio.run(run())


def test_a_definition_stays_as_long_as_a_run_in_history_was_made_of_it() -> None:
    async def run() -> None:
        graph = Graph(name="g", tasks=(TaskSpec(id="a"),))
        made = Run("t", "r", "digest", "g", created_at=1, ended_at=10)
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            await store.commit(epoch, batch([GraphRecord("t", "digest", graph), made]))
            await store.commit(epoch, batch(drops=[("GraphRecord", "t", "digest")], archives=[("t", "r")]))
            assert await store.graph("t", "digest") == graph
            assert await store.graph("u", "digest") is None
            await tidied(store, epoch)
            assert await store.graph("t", "digest") == graph
            await tidied(store, epoch, 9, 0)
            assert await store.graph("t", "digest") == graph
            await tidied(store, epoch, 10, 0)
            assert await store.graph("t", "digest") is None

    asyncio.run(run())


def test_a_blob_that_is_gone_or_damaged_is_said_and_not_guessed() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            await store.commit(epoch, batch(one_of_each()))
            await tidied(store, epoch)
            (manifest,) = [each for each in await stage.blobs.list(SNAPSHOTS) if each.name.endswith("manifest")]
            await stage.blobs.put(f"{SNAPSHOTS}/{manifest.name}", b"x" * manifest.size)
            with pytest.raises(Unavailable, match=r"store\.corrupt"):
                await disk_of(store, epoch)

    asyncio.run(run())
