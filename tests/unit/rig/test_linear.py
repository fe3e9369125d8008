"""The linearizability checker accepts histories that have an order, and only those."""

from collections.abc import Hashable
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.rig.linear import (
    Op,
    Outcome,
    Register,
    check,
    check_each,
    with_reads_as_old_as,
    without_idle,
)

pytestmark = pytest.mark.slow

UNKNOWN = None


def op(began: int, ended: int | None, *does: Hashable, answer: Hashable = None, client: str = "c") -> Op:
    return Op(client=client, does=does, answer=answer, began_ns=began, ended_ns=ended)


def write(began: int, ended: int | None, value: Hashable) -> Op:
    return op(began, ended, "write", value)


def read(began: int, ended: int | None, answer: Hashable) -> Op:
    return op(began, ended, "read", answer=answer)


def swap(began: int, ended: int | None, old: Hashable, new: Hashable, answer: Hashable = None) -> Op:
    return op(began, ended, "swap", old, new, answer=answer)


GOOD: dict[str, list[Op]] = {
    "nothing happened": [],
    "one after the other": [write(0, 1, 1), read(2, 3, 1), write(4, 5, 2), read(6, 7, 2)],
    "overlapping operations take effect in either order": [write(0, 10, 1), write(0, 10, 2), read(11, 12, 1)],
    "a read that overlaps a write sees it or not": [
        write(0, 1, 1),
        write(2, 9, 2),
        read(3, 4, 1),
        read(5, 6, 2),
        read(7, 8, 2),
    ],
    "an unknown write may have happened": [write(0, 1, 1), write(2, UNKNOWN, 2), read(5, 6, 2)],
    "or not": [write(0, 1, 1), write(2, UNKNOWN, 2), read(5, 6, 1)],
    "or much later": [
        write(0, 1, 1),
        write(2, UNKNOWN, 2),
        read(5, 6, 1),
        write(7, 8, 3),
        read(9, 10, 3),
        read(11, 12, 2),
    ],
    "what touches at one instant overlaps": [write(0, 5, 1), read(5, 6, None), read(7, 8, 1)],
    "a swap that did and one that did not": [
        write(0, 1, 1),
        swap(2, 3, 1, 2, answer=True),
        swap(4, 5, 1, 3, answer=False),
        read(6, 7, 2),
    ],
    "a swap of unknown outcome did": [write(0, 1, 1), swap(2, UNKNOWN, 1, 2), read(5, 6, 2)],
    "two swaps from one value, in an order that lets one": [
        write(0, 1, 1),
        swap(2, 9, 1, 2, answer=False),
        swap(2, 9, 1, 3, answer=True),
        read(10, 11, 3),
    ],
}

BAD: dict[str, list[Op]] = {
    "a write was lost": [write(0, 1, 1), write(2, 3, 2), read(4, 5, 1)],
    "a value that nobody wrote": [write(0, 1, 1), read(2, 3, 7)],
    "the old value after the new one was seen": [write(0, 1, 1), write(2, 9, 2), read(3, 4, 2), read(5, 6, 1)],
    "seen before it was asked for": [read(0, 1, 1), write(2, 3, 1)],
    "an unknown write was seen before it was asked for": [write(0, 1, 1), read(2, 3, 2), write(4, UNKNOWN, 2)],
    "an unknown write took effect twice": [
        write(0, 1, 1),
        write(2, UNKNOWN, 2),
        read(4, 5, 2),
        write(6, 7, 3),
        read(8, 9, 3),
        read(10, 11, 2),
    ],
    "two swaps from one value both did": [
        write(0, 1, 1),
        swap(2, 9, 1, 2, answer=True),
        swap(2, 9, 1, 3, answer=True),
    ],
    "a swap that said no, and did": [write(0, 1, 1), swap(2, 3, 1, 2, answer=False), read(4, 5, 2)],
    "two readers disagree about the order": [
        write(0, 20, 1),
        write(0, 20, 2),
        read(2, 3, 1),
        read(4, 5, 2),
        read(6, 7, 1),
    ],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=GOOD)
def test_a_history_with_an_order_is_accepted_and_the_order_is_shown(history: list[Op]):
    verdict = check(history, Register())
    assert verdict.outcome is Outcome.LINEARIZABLE, str(verdict)
    state: Any = Register().initial
    for each in verdict.order:
        state = Register().step(state, each)
        assert state is not None
    assert {id(each) for each in history if each.ended_ns is not None} <= {id(each) for each in verdict.order}


@pytest.mark.parametrize("history", BAD.values(), ids=BAD)
def test_a_history_without_one_is_noticed_and_what_could_not_be_placed_is_named(history: list[Op]):
    verdict = check(history, Register())
    assert verdict.outcome is Outcome.BROKEN
    assert verdict.stuck
    assert all(str(each) in str(verdict) for each in verdict.stuck)


def by_hand(history: list[Op]) -> bool:
    """The definition itself: some order of all that ended, and of some of the others, explains it."""
    ended = [each for each in history if each.ended_ns is not None]
    unknown = [each for each in history if each.ended_ns is None]
    for mask in range(1 << len(unknown)):
        chosen = ended + [each for number, each in enumerate(unknown) if mask >> number & 1]
        for order in permutations(chosen):
            if any(
                late.ended_ns is not None and late.ended_ns < early.began_ns
                for place, early in enumerate(order)
                for late in order[place + 1 :]
            ):
                continue
            state: Any = Register().initial
            for each in order:
                state = Register().step(state, each)
                if state is None:
                    break
            else:
                return True
    return False


@st.composite
def histories(draw: st.DrawFn) -> list[Op]:
    found: list[Op] = []
    for number in range(draw(st.integers(1, 5))):
        began = draw(st.integers(0, 12))
        ended = draw(st.one_of(st.none(), st.integers(began, 14)))
        value = draw(st.integers(1, 2))
        match draw(st.sampled_from(["read", "write", "swap"])):
            case "read":
                found.append(read(began, ended, draw(st.sampled_from([None, 1, 2]))))
            case "write":
                found.append(write(began, ended, value))
            case _:
                found.append(swap(began, ended, value, 3 - value, answer=draw(st.booleans())))
        assert len(found) == number + 1
    return found


@given(histories())
def test_the_search_finds_what_trying_every_order_finds(history: list[Op]):
    assert check(history, Register()).is_linearizable == by_hand(history)


@given(histories())
def test_leaving_out_what_cannot_matter_changes_no_verdict(history: list[Op]):
    values = [each.does[1] for each in history if each.does[0] == "write"]
    if len(values) == len(set(values)):
        assert check(without_idle(history), Register()).is_linearizable == by_hand(history)


def test_a_search_that_takes_too_long_says_so():
    history = [write(0, 100, number) for number in range(12)] + [read(200, 201, "nobody's")]
    verdict = check(history, Register(), situations_max=50)
    assert verdict.outcome is Outcome.UNDECIDED
    assert not verdict.is_linearizable


def test_thousands_of_operations_of_a_few_clients_are_judged():
    history: list[Op] = []
    for number in range(1, 2_000):
        at = number * 10
        history += [write(at, at + 14, number), read(at + 1, at + 9, number - 1 or None)]
        if number % 50 == 0:
            history.append(write(at + 2, UNKNOWN, -number))
    assert check(without_idle(history), Register()).is_linearizable
    assert check(without_idle([*history, read(30_000, 30_001, 1)]), Register()).outcome is Outcome.BROKEN


def test_each_register_is_judged_alone():
    good = [structs.replace(each, about="good") for each in GOOD["or not"]]
    bad = [structs.replace(each, about="bad") for each in BAD["a write was lost"]]
    verdicts = check_each([*good, *bad], Register())
    assert {name: verdict.is_linearizable for name, verdict in verdicts.items()} == {"good": True, "bad": False}


def test_a_read_may_be_as_old_as_it_is_allowed_to_be_and_no_older():
    ms = 1_000_000
    history = [write(0, 1 * ms, 1), write(2 * ms, 3 * ms, 2), read(9 * ms, 10 * ms, 1)]
    assert not check(history, Register()).is_linearizable
    assert check(with_reads_as_old_as(history, 7), Register()).is_linearizable
    assert not check(with_reads_as_old_as(history, 5), Register()).is_linearizable
