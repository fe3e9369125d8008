"""Leases of pull workers: the model refuses what must not be, and real coordinators keep to it while they change."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from rota.app.clocks import SystemClock
from rota.config.settings import limits_for
from rota.control.driver import CoordinatorDriver
from rota.core.decide.leases import Judgement
from rota.ports import Candidate
from rota.stores.memory import MemoryStore
from tests.rig.leases import FAIL, FINISH, GRANT, LeaseLoad, among, check_leases
from tests.rig.linear import Op, Outcome

MS = 1_000_000
LEASE_MS = 1_000


def grant(began: int, ended: int, fence: int) -> Op:
    return Op(client="w", about="t", does=(GRANT,), answer=fence, began_ns=began * MS, ended_ns=ended * MS)


def finish(began: int, ended: int | None, fence: int, answer: Judgement | None = None, what: str = FINISH) -> Op:
    ended_ns = None if ended is None else ended * MS
    return Op(client="w", about="t", does=(what, fence), answer=answer, began_ns=began * MS, ended_ns=ended_ns)


YES, AGAIN, OLD = Judgement.ACCEPTED, Judgement.DUPLICATE, Judgement.OLD_FENCE

GOOD: dict[str, list[Op]] = {
    "claimed and finished": [grant(0, 1, 5), finish(2, 3, 5, YES)],
    "finished, and said so again": [grant(0, 1, 5), finish(2, 3, 5, YES), finish(4, 5, 5, AGAIN)],
    "failed, and tried again": [grant(0, 1, 5), finish(2, 3, 5, YES, FAIL), grant(4, 5, 6), finish(6, 7, 6, YES)],
    "lapsed, and given to another; the first is too late": [
        grant(0, 1, 5),
        grant(1_200, 1_201, 6),
        finish(1_202, 1_203, 5, OLD),
        finish(1_204, 1_205, 6, YES),
    ],
    "kept beyond its length, since nobody else asked": [grant(0, 1, 5), finish(9_000, 9_001, 5, YES)],
    "an outcome that nobody heard of counted": [grant(0, 1, 5), finish(2, None, 5, what=FAIL), grant(10, 11, 6)],
}

BAD: dict[str, list[Op]] = {
    "two hold it at once": [grant(0, 1, 5), grant(500, 501, 6)],
    "a fence that falls": [grant(0, 1, 5), grant(1_200, 1_201, 4)],
    "an old fence counted": [grant(0, 1, 5), grant(1_200, 1_201, 6), finish(1_202, 1_203, 5, YES)],
    "two outcomes counted": [
        grant(0, 1, 5),
        grant(1_200, 1_201, 6),
        finish(1_202, 1_203, 6, YES),
        finish(1_204, 1_205, 5, YES),
    ],
    "the live fence was turned away": [grant(0, 1, 5), finish(2, 3, 5, OLD)],
    "granted after it was over": [grant(0, 1, 5), finish(2, 3, 5, YES), grant(5_000, 5_001, 6)],
}


@pytest.mark.parametrize("ops", GOOD.values(), ids=GOOD)
def test_what_may_happen_is_accepted(ops: list[Op]):
    verdict = check_leases(ops, LEASE_MS)["t"]
    assert verdict.is_linearizable, str(verdict)


@pytest.mark.parametrize("ops", BAD.values(), ids=BAD)
def test_what_must_not_happen_is_noticed(ops: list[Op]):
    assert check_leases(ops, LEASE_MS)["t"].outcome is Outcome.BROKEN


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not look():
            await asyncio.sleep(0.01)


async def campaign(tasks: int, reigns: int) -> LeaseLoad:
    """Pull workers at work while one coordinator after the other takes over."""
    disk = MemoryStore().disk
    drivers: list[CoordinatorDriver] = []

    def begin() -> CoordinatorDriver:
        who = Candidate(f"coordinator-{len(drivers)}")
        drivers.append(CoordinatorDriver(MemoryStore(disk), limits_for(2_000), SystemClock(), who=who))
        drivers[-1].start()
        return drivers[-1]

    assert await begin().reigns()
    load = LeaseLoad(among(drivers, Random(1)), seed=1, tasks=tasks, lease_ms=LEASE_MS)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(load.run())
        for _ in range(reigns - 1):
            goal = len(load.ops) + tasks // reigns
            await until(lambda goal=goal: len(load.ops) >= goal or running.done())
            before, standby = drivers[-1], begin()
            await before.stop()
            await until(lambda standby=standby: standby.is_leader)
    await drivers[-1].stop()
    return load


def test_leases_stay_exclusive_while_coordinators_come_and_go():
    load = asyncio.run(campaign(tasks=60, reigns=4))
    verdicts = check_leases(load.ops, LEASE_MS)
    assert len(verdicts) == 60
    assert [str(verdict) for verdict in verdicts.values() if not verdict.is_linearizable] == []
    assert any(op.answer not in (YES, AGAIN) for op in load.ops if op.does[0] != GRANT), "some were too late"
