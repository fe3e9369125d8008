"""A coordinator among several: who leads instead, waiting for the lock, and what is done while leading."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rota.control.driver import CoordinatorDriver
from rota.control.events import Escalate, Level, Tell
from rota.core.bounds import TimeLimits
from rota.core.commands import PutPool
from rota.core.errors import Unavailable
from rota.core.model import Pool
from rota.ports import Candidate, CommitUnknown
from rota.stores.memory import MemoryDisk, MemoryStore
from tests.unit.control.sharing import Shared

PATIENCE_S = 20
LIMITS = TimeLimits()


class Node:
    """One coordinator of several, and what it told."""

    def __init__(self, name: str, disk: MemoryDisk) -> None:
        self.store = Shared(disk)
        self.said: list[Tell | Escalate] = []
        self.spoke = asyncio.Event()
        self.turns: list[bool] = []
        self.driver = CoordinatorDriver(
            self.store,
            LIMITS,
            lambda: round(asyncio.get_running_loop().time() * 1000) + 1_000_000,
            who=Candidate(name, f"grpc://{name}:1", f"http://{name}:2"),
            listener=self._hear,
            shared=self.store,
        )
        self.driver.on_change(lambda: self.turns.append(self.driver.is_leader))
        self.driver.start()

    def _hear(self, said: Tell | Escalate) -> None:
        self.said.append(said)
        self.spoke.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Until something holds that is told of; `played` is not patient for ever."""
        while not holds():
            self.spoke.clear()
            await self.spoke.wait()

    def levels(self, what: str) -> list[Level]:
        return [said.level for said in self.said if isinstance(said, Tell) and said.what == what]


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await play()

    asyncio.run(bounded())


async def two() -> tuple[Node, Node]:
    """One that leads and one that follows."""
    disk = MemoryDisk()
    first = Node("a", disk)
    assert await first.driver.reigns()
    second = Node("b", disk)
    assert not await second.driver.reigns()
    return first, second


def test_who_follows_knows_who_leads_and_says_where():
    async def play() -> None:
        first, second = await two()
        assert second.driver.leader == Candidate("a", "grpc://a:1", "http://a:2")
        with pytest.raises(Unavailable, match=r": a .*grpc://a:1\b") as caught:
            second.driver.check_leads()
        assert (caught.value.code, caught.value.grpc, caught.value.http) == (
            "leader.elsewhere",
            "grpc://a:1",
            "http://a:2",
        )
        first.driver.check_leads()
        assert first.driver.leader == first.driver.who
        await second.driver.stop()
        await first.driver.stop()

    played(play)


def test_a_lock_that_is_given_back_is_taken_at_once_and_not_at_the_next_look():
    async def play() -> None:
        first, second = await two()
        # The next look is hours away.
        second.driver.machine.leadership.next_at += 10_000_000
        await first.driver.stop()
        await second.until(lambda: second.driver.is_leader)
        assert second.driver.leader == second.driver.who
        assert second.turns == [True]
        await second.driver.stop()

    played(play)


def test_who_leads_waits_for_no_vacancy_and_who_steps_down_does_again():
    async def play() -> None:
        first, second = await two()
        assert (first.store.waiting, second.store.waiting) == (0, 1)
        await fail_commit(first)
        await second.until(lambda: second.driver.is_leader)
        await asyncio.sleep(0)
        assert (first.store.waiting, second.store.waiting) == (1, 0)
        await first.driver.stop()
        assert first.store.waiting == 0
        await second.driver.stop()

    played(play)


def test_hints_that_fail_keep_nobody_from_following():
    async def play() -> None:
        disk = MemoryDisk()
        first = Node("a", disk)
        assert await first.driver.reigns()
        second = Node("b", disk)
        second.store.hints_fail = True
        await second.until(lambda: bool(second.levels("leader.unknown")) and bool(second.levels("vacancy.failed")))
        with pytest.raises(Unavailable) as caught:
            second.driver.check_leads()
        assert caught.value.code == "leader.none"
        await second.driver.stop()
        await first.driver.stop()

    played(play)


def test_alone_nobody_is_sent_elsewhere():
    async def play() -> None:
        driver = CoordinatorDriver(MemoryStore(), LIMITS, lambda: 1_000_000, who=Candidate("alone"))
        driver.check_leads()
        driver.start()
        assert await driver.reigns()
        await driver.stop()

    played(play)


def test_a_duty_is_begun_with_every_reign_and_cancelled_with_its_end():
    async def play() -> None:
        node = Node("a", MemoryDisk())
        begun: list[asyncio.Event] = []

        async def duty() -> None:
            begun.append(asyncio.Event())
            await begun[-1].wait()

        node.driver.on_reign("early", duty)
        assert await node.driver.reigns()
        await asyncio.sleep(0)
        assert len(begun) == 1
        node.driver.on_reign("late", duty)
        await asyncio.sleep(0)
        assert len(begun) == 2, "a reign that has begun already counts"
        await fail_commit(node)
        await node.until(lambda: len(node.levels("duty.ended")) == 3)
        assert node.levels("duty.ended") == [Level.WARNING] * 3, "it was on purpose: early, late and tidying up"
        await node.until(lambda: node.driver.is_leader)
        await asyncio.sleep(0)
        assert len(begun) == 4
        assert not node.driver.machine.leadership.standing.stepping_down
        await node.driver.stop()
        assert len(node.levels("duty.ended")) == 3, "whoever stops need not be told"

    played(play)


def test_a_duty_that_fails_or_is_cancelled_by_somebody_else_is_an_error():
    async def play() -> None:
        node = Node("a", MemoryDisk())

        async def fails() -> None:
            raise TimeoutError("too late")

        async def cancelled() -> None:
            raise asyncio.CancelledError

        assert await node.driver.reigns()
        node.driver.on_reign("fails", fails)
        node.driver.on_reign("cancelled", cancelled)
        await node.until(lambda: len(node.levels("duty.ended")) == 2)
        assert node.levels("duty.ended") == [Level.ERROR, Level.ERROR]
        assert node.driver.is_leader
        await node.driver.stop()

    played(play)


async def fail_commit(node: Node) -> None:
    """Make it step down: what became of a commit is not known."""

    async def commit(*_: object) -> None:
        del node.store.commit
        raise CommitUnknown("the line broke")

    node.store.commit = commit  # type: ignore[method-assign] - once, in place of the real one
    with pytest.raises(Unavailable):
        await node.driver.ask(PutPool(tenant="t", command_id="p", pool=Pool(tenant="t", name="p", slots=1)))


def test_a_time_limit_that_says_nothing_is_an_error_and_not_a_lost_lock():
    async def play() -> None:
        node = Node("a", MemoryDisk())
        assert await node.driver.reigns()
        answered = asyncio.Event()

        async def holds(epoch: int) -> bool:
            answered.set()
            raise TimeoutError

        node.store.holds = holds  # type: ignore[method-assign] - in place of the real one
        await answered.wait()
        await node.until(lambda: bool(node.levels("holds.failed")))
        assert node.driver.is_leader, "no answer is no proof, and no loss either"
        await node.driver.stop()

    played(play)


def test_who_has_won_names_its_predecessor_no_more():
    async def play() -> None:
        first, second = await two()
        loading = asyncio.Event()

        async def load(epoch: int) -> Any:
            loading.set()
            await asyncio.Event().wait()
            yield

        second.store.load = load  # type: ignore[method-assign] - one that takes long
        await first.driver.stop()
        await loading.wait()
        with pytest.raises(Unavailable) as caught:
            second.driver.check_leads()
        assert caught.value.code == "leader.none"
        for task in list(second.driver._running):
            task.cancel()
        await second.driver.stop()

    played(play)
