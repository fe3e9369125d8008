"""Values in and out of bytes: the same value comes back, of the same types, and no pickle is opened by accident."""

import threading
from collections import OrderedDict
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.wire.values import (
    PICKLE,
    PLAIN,
    PLAIN_ELEMENTS_MAX,
    Unreadable,
    Unserialisable,
    Untrusted,
    is_plain,
    pack,
    pack_or_spill,
    unpack,
    unpack_file,
)

LEAVES = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | st.text()
PLAIN_VALUES = st.recursive(
    LEAVES | st.binary(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30
)
ANY_VALUES = st.recursive(
    LEAVES | st.integers() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=30,
)


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


@given(PLAIN_VALUES)
def test_plain_values_travel_as_messagepack(value: Any) -> None:
    encoding, content = pack(value)
    assert encoding == PLAIN
    assert same(unpack(encoding, content), value)


@given(ANY_VALUES)
def test_any_value_comes_back_with_its_types(value: Any) -> None:
    encoding, content = pack(value)
    assert same(unpack(encoding, content, trusted=True), value)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        (1,),
        {1: "one"},
        {"a": {1, 2}},
        1 << 64,
        [-(1 << 64)],
        Text("text"),
        [Text("text")],
        OrderedDict(a=1),
        {Text("key"): 1},
        bytearray(b"x"),
        "\ud800",
        [0] * (PLAIN_ELEMENTS_MAX + 1),
        print,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_messagepack_would_change_is_pickled(value: Any) -> None:
    encoding, content = pack(value)
    assert encoding == PICKLE
    assert same(unpack(encoding, content, trusted=True), value)


def test_a_value_that_holds_itself_is_pickled() -> None:
    value: list[object] = []
    value.append(value)
    assert not is_plain(value)
    encoding, content = pack(value)
    again = unpack(encoding, content, trusted=True)
    assert again[0] is again


def test_a_deep_value_is_pickled_or_refused_but_never_crashes() -> None:
    value: list[object] = []
    for _ in range(5_000):
        value = [value]
    assert not is_plain(value)
    with pytest.raises(Unserialisable, match="deep"):
        pack(value, "task 'deep'")


def test_functions_of_the_main_program_are_pickled_by_value() -> None:
    factor = 3
    encoding, content = pack(lambda value: value * factor)
    assert unpack(encoding, content, trusted=True)(14) == 42


@pytest.mark.parametrize(("encoding", "error"), [(PICKLE, Untrusted), ("other", Unreadable)])
def test_a_pickle_is_opened_only_if_its_source_is_trusted(
    encoding: str, error: type[Exception], tmp_path: Path
) -> None:
    content = pack((1, 2))[1]
    with pytest.raises(error):
        unpack(encoding, content)
    (tmp_path / "value").write_bytes(content)
    with pytest.raises(error):
        unpack_file(encoding, tmp_path / "value")


def test_what_cannot_be_sent_is_explained() -> None:
    with pytest.raises(Unserialisable) as caught:
        pack({"guard": threading.Lock()}, "task 'load' (etl:load)")
    assert str(caught.value) == (
        # wording
        "task 'load' (etl:load) gave a value of type dict, which cannot be sent to another process "
        "(TypeError: cannot pickle '_thread.lock' object). Return its content: numbers, text, bytes, lists, "
        "dictionaries, or objects that can be pickled. Leave connections, locks and open files inside the task."
    )


@pytest.mark.parametrize(
    ("value", "is_spilled"),
    [
        ("x" * 65_000, False),
        ("x" * 66_000, True),
        (("x" * 65_000,), False),
        (("x" * 66_000,), True),
        (bytes(1_000_000), True),
        (tuple(range(100_000)), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_large_value_goes_to_a_file(value: object, is_spilled: bool, tmp_path: Path) -> None:
    target = tmp_path / "result"
    encoding, content = pack_or_spill(value, "a test", str(target))
    assert (content is None) == is_spilled == target.exists()
    if content is None:
        assert unpack_file(encoding, target, trusted=True) == value
    else:
        assert unpack(encoding, content, trusted=True) == value


class Buffered:
    """Pickles as arrays do: what it holds is a buffer, which the pickler hands over without a copy."""

    def __init__(self, content: Any) -> None:
        self.content = bytes(content)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Items of eight bytes, so that their number is not the size.
        return Buffered, (PickleBuffer(memoryview(self.content).cast("d")),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffered) and self.content == other.content

    __hash__ = None


@pytest.mark.parametrize("size", [0, 8, 8_000, 65_528, 65_536, 80_000, 8_000_000])
def test_a_buffer_that_the_pickler_does_not_copy_goes_where_bytes_go(size: int, tmp_path: Path) -> None:
    target = tmp_path / "result"
    value = [Buffered(bytes(range(8)) * (size // 8)), {"again": Buffered(b"12345678")}]
    encoding, content = pack_or_spill(value, "a test", str(target))
    assert encoding == PICKLE
    assert (content is None) == target.exists() == (size > 65_000)
    if content is None:
        assert unpack_file(encoding, target, trusted=True) == value
    else:
        assert unpack(encoding, content, trusted=True) == value
