"""Leaders and members of etcd that die, are stopped or come back, and what the others make of it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.core.errors import Unavailable
from rota.core.ids import Epoch
from rota.core.records import Batch, Receipt
from rota.ports import CommitUnknown, Fenced
from rota.stores.blobs import open_blobs
from rota.stores.etcd import EtcdStore
from tests.contract.bench import batch
from tests.integration.deadlines import until
from tests.integration.etcd_stage import ME, RIVAL, Model, Stage, staged
from tests.integration.worker.stage import ROOT
from tests.servers.etcd import EtcdMember, etcd_cluster, etcd_server, shared_server
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.full

TERM_MS = 1_000


class Leader:
    """A process that leads and writes, and what it has said."""

    def __init__(self, url: str, blobs: Path) -> None:
        line = [sys.executable, "-m", "tests.integration.etcd_program", url, str(blobs), str(TERM_MS)]
        self.process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())

    def heard(self, words: str) -> str:
        """The first line that begins so."""
        return until(lambda: next((line for line in list(self.said) if line.startswith(words)), ""), words)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reading.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def leading(url: str, blobs: Path) -> Iterator[Leader]:
    leader = Leader(url, blobs)
    try:
        leader.heard("committed 20")
        yield leader
    finally:
        leader.end()


async def succeed(url: str, blobs: Path) -> tuple[EtcdStore, Epoch, float]:
    """Wait for a vacancy, be elected and load; how long that took."""
    store = EtcdStore(url, open_blobs(blobs), term_ms=TERM_MS)
    began = time.monotonic()
    async with asyncio.timeout(20):
        while (epoch := await store.elect(RIVAL)) is None:
            await store.vacancy()
    return store, epoch, time.monotonic() - began


def receipts(records: list[object]) -> list[int]:
    return sorted(record.at for record in records if isinstance(record, Receipt))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_leader_that_dies_or_is_stopped_is_followed_when_its_lease_is_over(
    how: signal.Signals, tmp_path: Path
) -> None:
    url = shared_server().url()
    with leading(url, tmp_path) as leader:

        async def run() -> None:
            os.kill(leader.process.pid, how)
            store, epoch, took_s = await succeed(url, tmp_path)
            assert took_s < 2 * TERM_MS / 1_000 + 2, "its lease, and as long as etcd takes to notice"
            found = receipts([record async for record in store.load(epoch)])
            told = [int(line.split()[1]) for line in list(leader.said) if line.startswith("committed")]
            assert found == list(range(1, len(found) + 1)), "commits in order, and none twice"
            assert len(told) <= len(found) <= len(told) + 1, "all that it was told is written, and at most one more"
            if how is signal.SIGSTOP:
                os.kill(leader.process.pid, signal.SIGCONT)
                leader.heard("lost 1")
                assert leader.heard("Fenced") == f"Fenced {len(found) + 1}"
            assert receipts([record async for record in store.load(epoch)]) == found
            await store.close()

        asyncio.run(run())


def test_a_leader_that_is_not_asked_whether_it_holds_loses_its_lease() -> None:
    async def run() -> None:
        async with staged(term_ms=TERM_MS) as stage:
            store, epoch = await stage.reign()
            rival = stage.open()
            assert await rival.elect(RIVAL) is None
            async with asyncio.timeout(20):
                await rival.vacancy()
            assert not await store.holds(epoch)
            # Nobody has followed: what it writes is still in order.
            await store.commit(epoch, batch([Receipt("t", "c", 0, "", 1)]))
            later = await rival.elect(RIVAL)
            assert later is not None
            with pytest.raises(Fenced):
                await store.commit(epoch, batch())
            assert receipts([record async for record in rival.load(later)]) == [1]

    asyncio.run(run())


def test_a_leader_that_is_asked_keeps_its_lease_and_nobody_is_woken() -> None:
    async def run() -> None:
        async with staged(term_ms=TERM_MS) as stage:
            store, epoch = await stage.reign()
            rival = stage.open()
            waiting = asyncio.create_task(rival.vacancy())
            for _ in range(12):
                done, _ = await asyncio.wait([waiting], timeout=TERM_MS / 4_000)
                assert not done, "woken while the lease is kept"
                assert await store.holds(epoch)
            await store.release(epoch)
            async with asyncio.timeout(10):
                await waiting

    asyncio.run(run())


# Members of etcd.


async def write_on(store: EtcdStore, epoch: Epoch, model: Model, numbers: Iterator[int], last: int) -> None:
    """Commit one after the other as a coordinator does: again and again while the store is unavailable."""
    for number in numbers:
        written = batch([Receipt("t", f"c{number}", 0, "", number)])
        await commit(store, epoch, written)
        await model.commit(written)
        if number >= last:
            return


async def commit(store: EtcdStore, epoch: Epoch, written: Batch) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.commit(epoch, written)
            except Unavailable:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_member_is_restarted_under_a_writer_and_nothing_is_lost_or_doubled(how: signal.Signals) -> None:
    async def run() -> None:
        with etcd_server() as server:
            async with staged(server, term_ms=10_000) as stage:
                store, epoch = await stage.reign()
                model, numbers = Model(), iter(range(1, 10_000))
                for turn in range(1, 4):
                    writing = asyncio.create_task(write_on(store, epoch, model, numbers, 400 * turn))
                    await asyncio.to_thread(server.restart, how)
                    await writing
                assert await store.holds(epoch), "a lease outlives the member"
                await model.expect(store, epoch)

    asyncio.run(run())


def test_a_member_that_dies_is_left_for_the_next_one() -> None:
    async def run() -> None:
        with etcd_cluster(3) as cluster:
            async with staged(cluster, term_ms=12_000) as stage:
                store, epoch = await stage.reign()
                model, numbers = Model(), iter(range(1, 10_000))
                for turn, member in enumerate(cluster.members, 1):
                    writing = asyncio.create_task(write_on(store, epoch, model, numbers, 200 * turn))
                    await asyncio.to_thread(member.kill)
                    await writing
                    assert await store.holds(epoch)
                    await asyncio.to_thread(member.start)
                await model.expect(store, epoch)
                await without_quorum(stage, cluster.members, store, epoch, model)

    asyncio.run(run())


async def without_quorum(stage: Stage, members: list[EtcdMember], store: EtcdStore, epoch: Epoch, model: Model) -> None:
    """Two of three are gone: nothing is written, everybody is told why, and it goes on when they are back."""
    for member in members[:2]:
        await asyncio.to_thread(member.kill)
    await asyncio.to_thread(members[2].wait_lost)
    async with asyncio.timeout(60):
        with pytest.raises((Unavailable, CommitUnknown)) as said:
            await store.commit(epoch, batch([Receipt("t", "never", 0, "", 0)]))
        rival = stage.open()
        with pytest.raises(Unavailable, match="no quorum") as refused:
            await rival.elect(RIVAL)
        assert refused.value.code == "store.unavailable"
        with pytest.raises((Unavailable, TimeoutError)):
            await store.holds(epoch)
    for member in members[:2]:
        await asyncio.to_thread(member.spawn)
    for member in members[:2]:
        await asyncio.to_thread(member.wait)
    if said.type is CommitUnknown:
        with pytest.raises(CommitUnknown):
            await store.commit(epoch, batch())
        _ = [record async for record in store.load(epoch)]
    found = receipts([record async for record in store.load(epoch)])
    if 0 in found:
        assert said.type is CommitUnknown, "what was said not to be written is not there"
        await model.commit(batch([Receipt("t", "never", 0, "", 0)]))
    await model.expect(store, epoch)


def test_an_etcd_that_does_not_answer_is_given_up_in_time() -> None:
    async def run() -> None:
        with etcd_server() as server:
            async with staged(server, term_ms=TERM_MS) as stage:
                store, epoch = await stage.reign()
                server.pause()
                async with asyncio.timeout(20):
                    with pytest.raises((TimeoutError, Unavailable)):
                        await store.holds(epoch)
                    with pytest.raises(CommitUnknown):
                        await store.commit(epoch, batch([Receipt("t", "c", 0, "", 1)]))
                    with pytest.raises(Unavailable, match=r"store\.unavailable: .*\bin time\b"):
                        await stage.open().elect(ME)
                    await store.close()
                server.resume()

    asyncio.run(run())


@pytest.mark.parametrize("round_ms", [800, 1_600], ids=["two fifths of a term", "four fifths of a term"])
def test_an_etcd_that_is_slow_is_waited_for_and_costs_no_lock(round_ms: int) -> None:
    server, term_ms = shared_server(), 2_000

    async def run(proxy: Proxy) -> None:
        async with staged(server, term_ms=term_ms) as stage:
            stage.url = stage.url.replace(server.member.address, proxy.address)
            store, epoch = await stage.reign()
            model, numbers = Model(), iter(range(1, 10_000))
            await write_on(store, epoch, model, numbers, 3)
            proxy.slow(round_ms / 2)
            writing = asyncio.create_task(write_on(store, epoch, model, numbers, 5))
            while not writing.done():
                assert await store.holds(epoch), "it was asked in time, and answered in time"
            await writing
            proxy.heal()
            await write_on(store, epoch, model, numbers, 8)
            await model.expect(store, epoch)

    with Proxy(server.member.address) as proxy:
        asyncio.run(run(proxy))
