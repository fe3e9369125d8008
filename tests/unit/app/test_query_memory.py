"""A process of queries is never without a limit of memory."""

import pytest

from rota.app.working import ENGINE_SHARE, RESERVED_BYTES, engine_memory, query_memory
from rota.wire.queries import ENGINE_MEMORY

GB = 1 << 30


@pytest.mark.parametrize(
    ("chosen", "machine", "slots", "limit", "share"),
    [
        (0, 24 * GB, 2, 12 * GB + RESERVED_BYTES, 12 * GB),
        (0, 24 * GB, 24, GB + RESERVED_BYTES, GB),
        (2 * GB, 24 * GB, 2, 2 * GB, 2 * GB),
        (20 * GB, 24 * GB, 4, 20 * GB, 6 * GB),
    ],
)
def test_a_slot_has_its_share_of_the_machine(chosen: int, machine: int, slots: int, limit: int, share: int) -> None:
    assert query_memory(chosen, machine, slots) == (limit, share)


def test_a_task_with_sql_is_told_its_slots_share() -> None:
    assert engine_memory(0, 24 * GB, 2) == {ENGINE_MEMORY: str(int(12 * GB * ENGINE_SHARE))}
    assert engine_memory(2 * GB, 24 * GB, 2) == {ENGINE_MEMORY: str(int(2 * GB * ENGINE_SHARE))}
