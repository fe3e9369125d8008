"""Back-pressure: who is read, and how much, while rows wait."""

import pytest

from rota.core.errors import Refused
from rota.kinds.query.streams.pressure import Crowd, check_room, rows_allowed
from rota.kinds.query.streams.watermarks import NEVER


def crowd(
    waiting: int, operator: str = "j", waiting_max: int = 100, idle: tuple[str, ...] = (), **reached: int
) -> Crowd:
    return Crowd(operator=operator, waiting=waiting, waiting_max=waiting_max, reached=reached, idle=idle)


TABLE = [
    # waiting, how far partitions have come, idle ones, and how many rows of each may be read
    (0, {"l": 10, "r": 5}, (), {"l": 50, "r": 50}),
    (50, {"l": 10, "r": 5}, (), {"l": 25, "r": 25}),
    (51, {"l": 10, "r": 5}, (), {"l": 0, "r": 49}),
    (51, {"l": 5, "r": 5}, (), {"l": 24, "r": 24}),
    (60, {"l": 10, "r": NEVER}, (), {"l": 0, "r": 40}),
    (60, {"l1": 10, "l2": 90, "r": 50}, (), {"l1": 40, "l2": 0, "r": 0}),
    # Nobody waits for one that is idle; and it is read if rows come there.
    (60, {"l": 10, "r": 5}, ("r",), {"l": 40, "r": 40}),
    (60, {"l": 10, "r": 5}, ("l", "r"), {"l": 40, "r": 40}),
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
    assert rows_allowed(crowds) == {"s": 15, "l": 50, "r": 15}


def test_two_that_wait_for_partitions_of_each_other_do_not_wait_for_ever() -> None:
    # They go by different columns of the same rows.
    crowds = [crowd(60, "a", s=1, t=9), crowd(60, "b", s=9, t=1)]
    assert rows_allowed(crowds) == {"s": 40, "t": 40}


def test_a_round_after_which_too_many_would_wait_is_refused() -> None:
    with pytest.raises(Refused, match=r"stream\.full: 101 rows would wait in j, and 100 may"):
        check_room([crowd(101)], {"j": 40})
    check_room([crowd(100)], {"j": 40})


def test_a_bound_that_was_lowered_is_reached_little_by_little() -> None:
    check_room([crowd(150)], {"j": 150})
    with pytest.raises(Refused, match=r"stream\.full"):
        check_room([crowd(151)], {"j": 150})
