"""Back-pressure: who is read, and how much, while rows wait."""

import pytest

from rota.core.errors import Refused
from rota.kinds.query.streams.pressure import Crowd, check_room, rows_allowed, rows_wanted
from rota.kinds.query.streams.watermarks import NEVER
from tests.refusals import refused


def crowd(
    waiting: int, operator: str = "j", waiting_max: int = 100, idle: tuple[str, ...] = (), **reached: int
) -> Crowd:
    return Crowd(operator=operator, waiting=waiting, waiting_max=waiting_max, reached=reached, idle=idle)


TABLE = [
    # waiting, how far partitions have come, idle ones, and how many rows of each may be read
    (0, {"l": 10, "r": 5}, (), {"l": 25, "r": 25}),
    (40, {"l": 10, "r": 5}, (), {"l": 5, "r": 5}),
    (50, {"l": 10, "r": 5}, (), {"l": 1, "r": 1}),
    (51, {"l": 10, "r": 5}, (), {"l": 0, "r": 49}),
    (51, {"l": 5, "r": 5}, (), {"l": 24, "r": 24}),
    (60, {"l": 10, "r": NEVER}, (), {"l": 0, "r": 40}),
    (60, {"l1": 10, "l2": 90, "r": 50}, (), {"l1": 40, "l2": 0, "r": 0}),
    # Nobody waits for one that is idle; and it is read if rows come there.
    (60, {"l": 10, "r": 5}, ("r",), {"l": 40, "r": 40}),
    (60, {"l": 10, "r": 5}, ("l", "r"), {"l": 1, "r": 1}),
    # At the bound, and past it, one row tells whether time goes on.
    (100, {"l": 10, "r": 5}, (), {"l": 0, "r": 1}),
    (500, {"l": 10, "r": 5}, (), {"l": 0, "r": 1}),
]


@pytest.mark.parametrize(("waiting", "reached", "idle", "wanted"), TABLE)
def test_from_half_of_the_bound_on_only_what_time_waits_for_is_read(
    waiting: int, reached: dict[str, int], idle: tuple[str, ...], wanted: dict[str, int]
) -> None:
    assert rows_allowed([crowd(waiting, idle=idle, **reached)]) == wanted


def test_a_partition_is_read_no_more_than_any_of_those_has_room_for_that_it_feeds() -> None:
    crowds = [crowd(0, "a", s=1, l=1), crowd(30, "b", waiting_max=60, s=1, r=0)]
    assert rows_allowed(crowds) == {"s": 1, "l": 25, "r": 1}


def test_two_that_wait_for_partitions_of_each_other_do_not_wait_for_ever() -> None:
    # They go by different columns of the same rows.
    crowds = [crowd(60, "a", s=1, t=9), crowd(60, "b", s=9, t=1)]
    assert rows_allowed(crowds) == {"s": 40, "t": 40}


def test_a_round_after_which_too_many_would_wait_is_refused() -> None:
    with refused("stream.full", "101 ", " j, ", " 100 ", path="waiting_max"):
        check_room([crowd(101)], {"j": 40})
    check_room([crowd(100)], {"j": 40})


def test_a_bound_that_was_lowered_is_reached_little_by_little() -> None:
    check_room([crowd(150)], {"j": 150})
    with pytest.raises(Refused, match=r"stream\.full"):
        check_room([crowd(151)], {"j": 150})


def test_crowds_that_wait_for_each_other_hold_nobody_also_beside_others_that_have_room() -> None:
    crowds = [crowd(60, "a", s=1, t=9), crowd(60, "b", s=9, t=1), crowd(0, "c", d=1, e=1)]
    assert rows_allowed(crowds) == {"s": 40, "t": 40, "d": 25, "e": 25}


def test_a_crowd_that_waits_for_what_another_one_holds_for_a_while_goes_on_holding() -> None:
    crowds = [crowd(60, "a", l=9, r=1), crowd(60, "b", l=1, s=9)]
    assert rows_allowed(crowds) == {"l": 0, "r": 40, "s": 0}


def test_many_rows_of_what_time_waits_for_may_let_others_go() -> None:
    assert rows_wanted([crowd(100, l=9, r=1)], 1_000) == {"l": 0, "r": 1_000}
