"""What a store that machines share promises beyond the rest: what is there, who leads, when there is a vacancy.

For adapters whose `is_shared` is True; `test_store_contract.py` holds them to it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import cast

from rota.core.ids import Epoch
from rota.ports import Candidate, Look, SharedStore, Store
from tests.contract.bench import Bench, Promises, batch, disk_of
from tests.contract.samples import one_of_each

promise = Promises()

FIRST = Candidate("first on h\u00f4te-1", "first.example:7070", "https://first.example:7080")
SECOND = Candidate("second", "10.0.0.2:7070")


def shared(store: Store) -> SharedStore:
    """The same store, with what it promises beyond the rest."""
    return cast("SharedStore", store)


async def stand(bench: Bench, store: SharedStore, who: Candidate) -> Epoch:
    """An election that must be won before long, because nobody holds the lock, or its holder died."""
    async with asyncio.timeout(bench.adapter.patience_s):
        while (epoch := await store.elect(who)) is None:
            await asyncio.sleep(0.01)  # as a standby does: nobody tells it that a dead holder's time is up
    return epoch


# What is there.


@promise
async def looking_makes_nothing_and_tells_what_there_is(bench: Bench) -> None:
    new = await bench.adapter.make_new()
    store, rival = shared(new), shared(await bench.adapter.join(new))
    try:
        server = (await store.look()).server
        assert re.match(r"\S+ \d+\.", server), f"product and version of the server: {server!r}"
        assert await store.look() == Look(server=server), "there is nothing yet"
        assert await rival.look() == Look(server=server), "and looking has made nothing"
        name = await store.identity()
        assert await rival.look() == Look(server=server, identity=name)
        epoch = await stand(bench, store, FIRST)
        assert await rival.look() == Look(server=server, identity=name, epoch=epoch, leader=FIRST)
        await store.release(epoch)
        assert await rival.look() == Look(server=server, identity=name, epoch=epoch)
    finally:
        await bench.adapter.close([store, rival])


# Who leads.


@promise
async def before_the_first_election_nobody_leads(bench: Bench) -> None:
    assert await shared(bench.store).leader() is None


@promise
async def everybody_hears_who_was_elected(bench: Bench) -> None:
    store, rival = shared(bench.store), shared(await bench.join())
    epoch = await stand(bench, store, FIRST)
    assert await store.leader() == FIRST
    assert await rival.leader() == FIRST
    assert await rival.elect(SECOND) is None
    assert await store.leader() == FIRST, "named by an election that was not won"
    await store.release(epoch)
    await stand(bench, rival, SECOND)
    assert await store.leader() == SECOND
    assert await rival.leader() == SECOND


@promise
async def who_gave_up_the_lock_does_not_lead(bench: Bench) -> None:
    store, rival = shared(bench.store), shared(await bench.join())
    epoch = await stand(bench, store, FIRST)
    await store.release(epoch)
    assert await rival.leader() is None
    assert await store.leader() is None
    await stand(bench, rival, SECOND)
    await store.release(epoch)
    assert await store.leader() == SECOND, "given up by an epoch that had passed"


@promise
async def the_successor_of_a_leader_that_died_is_named(bench: Bench) -> None:
    store, rival = shared(bench.store), shared(await bench.join())
    epoch = await stand(bench, store, FIRST)
    await bench.reopen(store, epoch)
    await stand(bench, rival, SECOND)
    assert await rival.leader() == SECOND


# A vacancy.


async def hears(bench: Bench, waits: Awaitable[None], free: Callable[[], Awaitable[None]]) -> None:
    """Whoever waits is woken before long by a lock that becomes free again and again.

    Once might be too early: nobody says when the waiting has begun to listen.
    """
    waiting = asyncio.ensure_future(waits)
    try:
        async with asyncio.timeout(bench.adapter.patience_s):
            while not waiting.done():
                await free()
                await asyncio.wait([waiting], timeout=0.05)
            await waiting
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


@promise
async def who_waits_for_a_vacancy_hears_of_a_release(bench: Bench) -> None:
    store, rival = shared(bench.store), shared(await bench.join())

    async def free() -> None:
        await store.release(await stand(bench, store, FIRST))

    await hears(bench, rival.vacancy(), free)
    await stand(bench, rival, SECOND)


@promise
async def waiting_for_a_vacancy_may_be_given_up(bench: Bench) -> None:
    """A follower stops waiting whenever it looks by itself; nothing may be left over, however often it does."""
    store, rival = shared(bench.store), shared(await bench.join())
    epoch = await stand(bench, store, FIRST)
    for turn in range(20):
        waiting = asyncio.ensure_future(rival.vacancy())
        for _ in range(turn):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled() or waiting.exception() is None, "given up, and it failed"
        assert await rival.leader() == FIRST
    await store.release(epoch)
    later = await stand(bench, rival, SECOND)
    await rival.commit(later, batch(one_of_each()))
    await bench.expect(rival, later, disk_of(one_of_each()))


@promise
async def a_waiting_that_is_given_up_does_not_spoil_the_next(bench: Bench) -> None:
    store, rival = shared(bench.store), shared(await bench.join())
    waiting = asyncio.ensure_future(rival.vacancy())
    await asyncio.wait([waiting], timeout=0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    async def free() -> None:
        await store.release(await stand(bench, store, FIRST))

    await hears(bench, rival.vacancy(), free)


# The end.


@promise
async def closing_gives_the_lock_back(bench: Bench) -> None:
    store, rival = shared(bench.store), shared(await bench.join())
    epoch = await stand(bench, store, FIRST)
    await store.commit(epoch, batch(one_of_each()))
    await store.close()
    await store.close()
    later = await bench.elect(rival)
    assert later > epoch
    await bench.expect(rival, later, disk_of(one_of_each()))
