"""How many partitions a query gets, from slots and bytes."""

import pytest

from rota.kinds.query.sizing import ALONE_BYTES, MB, PARTITIONS_MAX, finer, partitions


@pytest.mark.parametrize(
    ("slots", "read_bytes", "expected"),
    [
        (8, 0, 1),
        (8, ALONE_BYTES, 1),
        (8, ALONE_BYTES + 1, 8),
        (2, 1_600 * MB, 2),
        (2, 2_400 * MB, 4),
        (2, 100_000 * MB, 8),
        (1, 800 * MB, 1),
        (1, 2_400 * MB, 3),
        (1_000, 100_000 * MB, PARTITIONS_MAX),
    ],
)
def test_small_queries_are_one_task_and_large_ones_come_in_a_few_waves(
    slots: int, read_bytes: int, expected: int
) -> None:
    assert partitions(slots, read_bytes) == expected


def test_a_query_that_ran_out_of_memory_is_cut_finer_up_to_a_limit() -> None:
    assert finer(1) == 8
    assert finer(4) == 16
    assert finer(PARTITIONS_MAX) == PARTITIONS_MAX
