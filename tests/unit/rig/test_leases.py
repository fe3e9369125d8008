"""The model of leases of pull workers accepts what may happen to one task, and nothing else."""

import pytest

from rota.core.decide.leases import Judgement
from tests.rig.leases import FAIL, FINISH, GRANT, check_leases
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
