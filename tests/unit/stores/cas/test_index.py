"""The index: slots, and the line in which they wait."""

from hashlib import sha256

import pytest

from rota.core.ids import Digest
from rota.stores.cas import index as index_module
from rota.stores.cas.index import Index, Slot


def key(number: int) -> bytes:
    return sha256(b"%d" % number).digest()


def filled(count: int, tick: int = 1) -> tuple[Index, list[Slot]]:
    index = Index()
    shelf = index.add_shelf("acme")
    return index, [index.add(shelf, key(number), 10, 1, number, tick) for number in range(count)]


def test_a_slot_is_used_again_and_means_the_new_entry() -> None:
    index, slots = filled(3)
    index.remove(slots[1])
    assert not index.has(slots[1])
    assert index.find("acme", key(1), 10) is None
    slot = index.add(index.shelves[0], key(9), 20, 1, 0, 1)
    assert slot == slots[1]
    assert index.find("acme", key(9), 20) == slot
    assert len(index) == 3
    # It stands in line twice, and whoever empties the line looks whether it is still there.
    assert set(index.oldest(1_000, 100, 2)) == set(slots)


def test_the_first_in_line_are_those_that_were_used_longest_ago() -> None:
    index, slots = filled(5)
    index.missing("acme", [Digest(key(2).hex(), 10)], 2)
    index.touch(slots[0], 3)
    assert sorted(index.oldest(1_000, 100, 2)) == [slots[1], slots[3], slots[4]]
    assert index.oldest(1_000, 100, 3) == [slots[2]]
    assert index.oldest(1_000, 100, 3) == []
    index.requeue(slots[2], 3)
    assert sorted(index.oldest(1_000, 100, 9)) == [slots[0], slots[2]]


def test_no_more_leave_the_line_than_are_wanted() -> None:
    index, _ = filled(10)
    assert len(index.oldest(25, 100, 2)) == 3
    assert len(index.oldest(1_000, 2, 2)) == 2
    assert len(index.oldest(1_000, 100, 2)) == 5


def test_the_line_does_not_grow_with_every_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_SPARE_PLACES", 10)
    index, slots = filled(20)
    digests = [Digest(key(number).hex(), 10) for number in range(20)]
    tick = 1
    while not index.is_slack():
        tick += 1
        assert tick < 100, "it is slack before long"
        assert index.missing("acme", digests, tick) == []
    for _ in index.squeeze():
        pass
    assert not index.is_slack()
    assert sorted(index.oldest(1_000, 100, tick + 1)) == sorted(slots)


def test_what_is_loaded_is_what_was_there() -> None:
    index, slots = filled(2_000)
    for number in range(0, 2_000, 3):
        index.remove(slots[number])
    index.touch(slots[1], 7)
    rows = [index.row(slot) for slot in slots if index.has(slot)]
    loaded = Index()
    loaded.add_shelf("acme")
    loaded.load(rows[::-1])
    assert len(loaded) == len(index)
    assert [loaded.row(row[0]) for row in rows] == rows
    assert sorted(loaded.used_since(2)) == [slots[1]]
    assert len(loaded.oldest(1_000_000, 10_000, 7)) == len(rows) - 1
    again = loaded.add(loaded.shelves[0], key(0), 10, 1, 0, 8)
    assert again not in [row[0] for row in rows]
