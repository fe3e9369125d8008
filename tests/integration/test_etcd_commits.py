"""Commits on etcd: what becomes of one whose answer is lost, whose writer is deposed, or that is too large."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota.core.errors import Refused, Unavailable
from rota.core.ids import Epoch
from rota.core.records import Batch, Run, Task
from rota.ports import CommitUnknown, Fenced, StoreRefused
from rota.stores.etcd import EtcdStore
from rota.stores.etcd import rpc_pb2 as rpc
from rota.stores.etcd.client import Doubt
from tests.contract.bench import assert_same, batch
from tests.contract.samples import one_of_each
from tests.integration.etcd_stage import EAGER, FOREVER, RIVAL, Model, Stage, disk_of, staged
from tests.servers.etcd import shared_server
from tests.servers.etcd_pause import Attempt, moves, restore, stand_before, stand_between

pytestmark = pytest.mark.full

LOST = Doubt(Unavailable("store.unavailable", "the answer was lost."))


def commits_of(store: EtcdStore, act: Callable[[rpc.TxnRequest, float, Attempt, int], Awaitable[Any]]) -> None:
    """Have the attempts to move the head go through somebody who is told the how manyth it is."""
    number = 0

    async def between(request: rpc.TxnRequest, timeout_s: float, send: Attempt) -> Any:
        nonlocal number
        if not moves(request, "head"):
            return await send(request, timeout_s)
        number += 1
        return await act(request, timeout_s, send, number)

    stand_between(store, between)


async def lose_answer(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
    """The first is carried out, and nobody hears of it."""
    answer = await send(request, timeout_s)
    return LOST if number == 1 else answer


async def lose_request(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
    """The first never arrives."""
    return LOST if number == 1 else await send(request, timeout_s)


async def two_commits(stage: Stage, act: Any) -> tuple[EtcdStore, Epoch, Model]:
    """A reign with one commit behind it, and somebody in the way of the next."""
    store, epoch = await stage.reign()
    model = Model()
    await store.commit(epoch, batch(one_of_each()))
    await model.commit(batch(one_of_each()))
    commits_of(store, act)
    return store, epoch, model


@pytest.mark.parametrize("act", [lose_answer, lose_request], ids=["answer", "request"])
def test_a_commit_whose_answer_or_request_is_lost_happens_once(act: Any) -> None:
    async def run() -> None:
        async with staged() as stage:
            store, epoch, model = await two_commits(stage, act)
            for start in (40_000, 80_000):
                await store.commit(epoch, batch(one_of_each(start)))
                await model.commit(batch(one_of_each(start)))
            await model.expect(store, epoch)
            await model.expect(*await stage.reign(await released(stage, store, epoch)))

    asyncio.run(run())


async def released(stage: Stage, store: EtcdStore, epoch: Epoch) -> EtcdStore:
    await store.release(epoch)
    return stage.open()


def test_a_request_that_arrives_after_its_commit_was_tried_again_changes_nothing() -> None:
    async def run() -> None:
        late: list[rpc.TxnRequest] = []

        async def delay(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
            if number == 1:
                late.append(request)
                return LOST
            return await send(request, timeout_s)

        async with staged() as stage:
            store, epoch, model = await two_commits(stage, delay)
            await store.commit(epoch, batch(one_of_each(40_000)))
            await model.commit(batch(one_of_each(40_000)))
            restore(store)
            answer = await store.client.attempt(late[0], 5)
            assert isinstance(answer, rpc.TxnResponse)
            assert not answer.succeeded
            await model.expect(store, epoch)

    asyncio.run(run())


def test_when_nobody_answers_a_commit_is_unknown_and_cannot_happen_after_the_next_load() -> None:
    async def run() -> None:
        late: list[rpc.TxnRequest] = []

        async def swallow(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
            late.append(request)
            return LOST

        async with staged(term_ms=1_000) as stage:
            store, epoch, model = await two_commits(stage, swallow)
            with pytest.raises(CommitUnknown):
                await store.commit(epoch, batch(one_of_each(40_000)))
            restore(store)
            with pytest.raises(CommitUnknown):
                await store.commit(epoch, batch(one_of_each(40_000)))
            await model.expect(store, epoch)
            for request in late:
                answer = await store.client.attempt(request, 5)
                assert isinstance(answer, rpc.TxnResponse)
                assert not answer.succeeded
            await store.commit(epoch, batch(one_of_each(80_000)))
            await model.commit(batch(one_of_each(80_000)))
            await model.expect(store, epoch)

    asyncio.run(run())


def test_who_is_locked_out_while_in_doubt_does_not_take_that_for_an_answer() -> None:
    async def run() -> None:
        async def lock_out(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
            if number == 1:
                return LOST
            raise Refused("store.denied", "the password has been changed")

        async with staged(term_ms=1_000) as stage:
            store, epoch, model = await two_commits(stage, lock_out)
            for _ in range(2):
                with pytest.raises(CommitUnknown):
                    await store.commit(epoch, batch(one_of_each(40_000)))
            restore(store)
            await model.expect(store, epoch)

    asyncio.run(run())


def test_a_commit_that_was_cancelled_leaves_nothing_to_guess() -> None:
    async def run() -> None:
        async with staged() as stage:
            store, epoch, model = await two_commits(stage, lose_request)
            reached = asyncio.Event()

            async def wait() -> None:
                reached.set()
                await asyncio.Event().wait()

            stand_before(store, "head", wait)
            commit = asyncio.create_task(store.commit(epoch, batch(one_of_each(40_000))))
            await reached.wait()
            commit.cancel()
            await asyncio.gather(commit, return_exceptions=True)
            with pytest.raises(CommitUnknown):
                await store.commit(epoch, batch())
            await model.expect(store, epoch)
            await store.commit(epoch, batch(one_of_each(80_000)))

    asyncio.run(run())


# Deposed on the way.


async def depose(stage: Stage, store: EtcdStore, epoch: Epoch) -> tuple[EtcdStore, Epoch]:
    """Another one reigns."""
    await store.release(epoch)
    rival = stage.open()
    later = await rival.elect(RIVAL)
    assert later is not None
    return rival, later


def test_who_is_deposed_while_in_doubt_hears_that_the_commit_had_happened() -> None:
    async def run() -> None:
        rivals: list[tuple[EtcdStore, Epoch]] = []

        async def land_then_depose(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
            answer = await send(request, timeout_s)
            if number == 1:
                rivals.append(await depose(stage, store, epoch))
                return LOST
            return answer

        async with staged() as stage:
            store, epoch, model = await two_commits(stage, land_then_depose)
            await store.commit(epoch, batch(one_of_each(40_000)))
            await model.commit(batch(one_of_each(40_000)))
            await model.expect(*rivals[0])
            with pytest.raises(Fenced):
                await store.commit(epoch, batch())

    asyncio.run(run())


def test_who_is_deposed_while_in_doubt_hears_that_the_commit_never_happened() -> None:
    async def run() -> None:
        rivals: list[tuple[EtcdStore, Epoch]] = []

        async def depose_only(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
            if number == 1:
                rival, later = await depose(stage, store, epoch)
                await rival.commit(later, batch(one_of_each(80_000)))
                rivals.append((rival, later))
                return LOST
            return await send(request, timeout_s)

        async with staged() as stage:
            store, epoch, model = await two_commits(stage, depose_only)
            with pytest.raises(Fenced):
                await store.commit(epoch, batch(one_of_each(40_000)))
            await model.commit(batch(one_of_each(80_000)))
            await model.expect(*rivals[0])

    asyncio.run(run())


def test_a_commit_that_a_rival_has_tidied_away_is_unknown() -> None:
    async def run() -> None:
        async def land_then_tidy(request: rpc.TxnRequest, timeout_s: float, send: Attempt, number: int) -> Any:
            answer = await send(request, timeout_s)
            if number > 1:
                return answer
            rival, later = await depose(stage, store, epoch)
            while await rival.tidy(later, 0, FOREVER):
                pass
            return LOST

        async with staged(bounds=EAGER) as stage:
            store, epoch, _ = await two_commits(stage, land_then_tidy)
            with pytest.raises(CommitUnknown):
                await store.commit(epoch, batch(one_of_each(40_000)))

    asyncio.run(run())


# Large ones.


def large() -> Batch:
    """A batch of some four megabytes that no packing makes smaller."""
    tasks = [Task("t", "r", idx, result=os.urandom(60_000)) for idx in range(70)]
    return batch([Run("t", "r", "digest", "name"), *tasks])


def keys(stage: Stage, kind: str) -> list[str]:
    prefix = f"{stage.url.rpartition('/')[2]}/{kind}/"
    return shared_server().control("get", "--prefix", "--keys-only", prefix).split()


def test_a_batch_larger_than_a_request_is_written_in_parts() -> None:
    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch = await stage.reign()
            model, written = Model(), large()
            await store.commit(epoch, written)
            await model.commit(written)
            assert len(keys(stage, "part")) > 2
            assert len(keys(stage, "log")) == 1
            await model.expect(store, epoch)
            await model.expect(*await depose(stage, store, epoch))

    asyncio.run(run())


def test_what_a_deposed_writer_had_prepared_is_swept_with_the_next_checkpoint() -> None:
    """Stopped between the parts and the head, deposed, and let go on."""

    async def run() -> None:
        async with staged(bounds=EAGER) as stage:
            store, epoch, model = await two_commits(stage, lose_request)
            reached, resumed = asyncio.Event(), asyncio.Event()

            async def stop() -> None:
                reached.set()
                await resumed.wait()

            stand_before(store, "head", stop)
            commit = asyncio.create_task(store.commit(epoch, large()))
            await reached.wait()
            assert len(keys(stage, "part")) > 2
            rival, later = await depose(stage, store, epoch)
            loaded = await disk_of(rival, later)
            resumed.set()
            with pytest.raises(Fenced):
                await commit
            assert_same(await disk_of(rival, later), loaded)
            with pytest.raises(Fenced):
                await store.commit(epoch, large())
            await rival.commit(later, batch(one_of_each(40_000)))
            await model.commit(batch(one_of_each(40_000)))
            await model.expect(rival, later)
            while await rival.tidy(later, 0, FOREVER):
                pass
            assert keys(stage, "part") == []
            assert keys(stage, "log") == []
            await model.expect(rival, later)

    asyncio.run(run())


def test_what_no_record_can_hold_is_refused_and_the_next_commit_goes_on() -> None:
    async def run() -> None:
        async with staged() as stage:
            store, epoch = await stage.reign()
            for wrong in (
                batch([Task("t", "r", 0, error="\ud83d")]),
                batch([Task("t", "r", 2**64)]),
                batch(drops=[("NoTable", "t")]),
                batch(archives=[("t", "\ud83d")]),
            ):
                with pytest.raises(StoreRefused):
                    await store.commit(epoch, wrong)
            await store.commit(epoch, batch(one_of_each()))

    asyncio.run(run())
