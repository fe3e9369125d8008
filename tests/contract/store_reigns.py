"""What a store promises about who may write: elections, holds, epochs, fences."""

import asyncio

import pytest

from rota.core.ids import EPOCH_MAX, Epoch
from rota.core.records import key_of
from rota.ports import Candidate, Fenced, Store
from tests.contract.bench import Bench, Promises, assert_same, batch, disk_of
from tests.contract.samples import a_run, new_images, one_of_each, rows_of, run_of, story_of

promise = Promises()


async def assert_fenced(store: Store, epoch: Epoch) -> None:
    """This epoch writes nothing, not even nothing, tidies nothing and reads nothing."""
    new = one_of_each(start=40_000)
    for refused in (batch(new, stories=story_of(run_of(new))), batch()):
        with pytest.raises(Fenced):
            await store.commit(epoch, refused)
    with pytest.raises(Fenced):
        await store.tidy(epoch, 0, 0)
    with pytest.raises(Fenced):
        _ = [record async for record in store.load(epoch)]


# Elections.


@promise
async def one_writer_at_a_time(bench: Bench) -> None:
    store, epoch = await bench.reign()
    rival = await bench.join()
    assert await rival.elect(Candidate("rival")) is None
    assert await store.elect(Candidate("the writer itself")) is None, "a lock that is held is held against everybody"
    await store.release(epoch)
    later = await bench.elect(rival)
    assert await store.elect(Candidate("the old writer")) is None
    assert await rival.holds(later)
    assert not await store.holds(epoch)


@promise
async def of_many_that_stand_at_once_one_is_elected(bench: Bench) -> None:
    stores = [bench.store, *[await bench.join() for _ in range(4)]]
    newest = 0
    for _ in range(3):
        epochs = await asyncio.gather(*[store.elect(Candidate(f"number {n}")) for n, store in enumerate(stores)])
        won = [(store, epoch) for store, epoch in zip(stores, epochs, strict=True) if epoch is not None]
        assert len(won) == 1, f"the lock was free, and these were elected: {epochs}"
        store, epoch = won[0]
        assert epoch > newest
        newest = epoch
        await store.release(epoch)


@promise
async def an_election_never_blocks(bench: Bench) -> None:
    await bench.reign()
    rival = await bench.join()
    assert await asyncio.wait_for(rival.elect(Candidate("rival")), bench.adapter.patience_s) is None


@promise
async def epochs_strictly_grow(bench: Bench) -> None:
    stores = [bench.store, await bench.join()]
    epochs: list[Epoch] = []
    for turn in range(6):
        store = stores[turn % 2]
        epochs.append(await bench.elect(store))
        await store.release(epochs[-1])
    assert epochs == sorted(set(epochs))
    assert 0 < epochs[0] <= epochs[-1] <= EPOCH_MAX, "an epoch that does not fit a fence"


@promise
async def the_lock_of_a_process_that_died_is_free(bench: Bench) -> None:
    store, epoch = await bench.reign()
    rival = await bench.join()
    again = await bench.reopen(store, epoch)
    later = await bench.elect_after_death(rival)
    assert later > epoch
    await bench.reopen(again, 0)
    assert await rival.holds(later), "the lock went with a process that did not hold it"


@promise
async def an_election_that_is_not_won_fences_nobody(bench: Bench) -> None:
    store, epoch = await bench.reign()
    rival = await bench.join()
    for _ in range(3):
        assert await rival.elect(Candidate("rival")) is None
        await store.commit(epoch, batch(one_of_each()))
        assert await store.holds(epoch)
    await bench.expect(store, epoch, disk_of(one_of_each()))


# Holds.


@promise
async def holds_is_about_this_very_hold(bench: Bench) -> None:
    store, epoch = await bench.reign()
    assert await store.holds(epoch)
    assert not await store.holds(epoch + 1)
    assert not await store.holds(epoch - 1)
    await store.release(epoch)
    assert not await store.holds(epoch), "released, and still held"
    later = await bench.elect(store)
    assert await store.holds(later)
    assert not await store.holds(epoch), "the same writer holds the lock, but not by that election"


@promise
async def a_free_lock_is_held_by_no_epoch(bench: Bench) -> None:
    assert [epoch for epoch in range(3) if await bench.store.holds(epoch)] == []
    store, given = await bench.reign()
    await store.release(given)
    assert [epoch for epoch in range(given + 2) if await store.holds(epoch)] == []


@promise
async def release_frees_only_ones_own(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.release(epoch + 1)
    assert await store.holds(epoch), "released by an epoch that was never given"
    rival, later = await bench.overtake(store, epoch)
    await store.release(epoch)
    await rival.release(epoch)
    await rival.release(0)
    assert await rival.holds(later), "released by an epoch that had passed"
    assert await (await bench.join()).elect(Candidate("a third")) is None
    await rival.release(later)
    await rival.release(later)
    assert await bench.elect(store) > later


# Fences.


@promise
async def an_old_epoch_can_neither_commit_nor_load(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch(one_of_each()))
    rival, later = await bench.overtake(store, epoch)
    async with bench.unchanged(rival, later):
        await assert_fenced(store, epoch)
    await rival.release(later)
    again = await bench.elect(store)
    async with bench.unchanged(store, again):
        await assert_fenced(store, epoch)


@promise
async def an_old_epoch_is_fenced_also_while_the_lock_is_free(bench: Bench) -> None:
    store, epoch = await bench.reign()
    rival, later = await bench.overtake(store, epoch)
    await rival.commit(later, batch(one_of_each()))
    await rival.release(later)
    await assert_fenced(store, epoch)
    third = await bench.join()
    await bench.expect(third, await bench.elect(third), disk_of(one_of_each()))


@promise
async def a_fenced_commit_changes_nothing_at_all(bench: Bench) -> None:
    store, epoch = await bench.reign()
    old = one_of_each()
    await store.commit(epoch, batch([*old, *rows_of(a_run())], stories=story_of(parts=[0])))
    rival, later = await bench.overtake(store, epoch)
    puts, drops = [*new_images(old)[:4], *one_of_each(start=40_000)], [key_of(record) for record in old[4:]]
    archives, story = [("t", "r")], story_of(parts=[1])
    late = [batch(puts), batch((), drops), batch((), (), archives), batch((), (), (), story)]
    async with bench.unchanged(rival, later):
        for refused in (*late, batch(puts, drops, archives, story)):
            with pytest.raises(Fenced):
                await store.commit(epoch, refused)


@promise
async def an_epoch_that_nobody_was_given_is_fenced(bench: Bench) -> None:
    store, epoch = await bench.reign()
    async with bench.unchanged(store, epoch):
        for never in (0, -1, epoch + 1):
            await assert_fenced(store, never)


@promise
async def before_the_first_election_nobody_writes(bench: Bench) -> None:
    for never in (0, 1):
        await assert_fenced(bench.store, never)


@promise
async def a_lock_lost_but_not_taken_fences_nobody(bench: Bench) -> None:
    """The epoch alone decides: who lost the lock and was not overtaken is still in order."""
    store, epoch = await bench.reign()
    await store.release(epoch)
    await store.commit(epoch, batch(one_of_each()))
    await bench.expect(store, epoch, disk_of(one_of_each()))


@promise
async def a_commit_that_was_overtaken_on_its_way_changes_nothing(bench: Bench) -> None:
    store, epoch = await bench.reign()
    await store.commit(epoch, batch([*one_of_each(), *rows_of(a_run())], stories=story_of(parts=[0])))
    late = batch(one_of_each(start=40_000), [key_of(one_of_each()[-1])], [("t", "r")], story_of(parts=[1]))
    landed = disk_of([*one_of_each()[:-1], *late.puts], [a_run()], story_of(parts=[0, 1]))
    await bench.overtake_on_its_way(store, epoch, late, landed)


@promise
async def a_load_that_is_overtaken_is_never_a_mixture(bench: Bench) -> None:
    store, epoch = await bench.reign()
    old = one_of_each()
    await store.commit(epoch, batch(old))
    loading = aiter(store.load(epoch))
    seen = [await anext(loading)]
    rival, later = await bench.overtake(store, epoch)
    await rival.commit(later, batch(new_images(old)[:5], [key_of(record) for record in old[5:]]))
    try:
        seen += [record async for record in loading]
    except Fenced:
        return
    assert_same(disk_of(seen), disk_of(old))
