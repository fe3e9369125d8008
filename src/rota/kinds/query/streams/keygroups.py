"""Key groups: a fixed number of them, so that state can be kept in any number of partitions, and read with any other.

The hash is written down here and not the engine's or Python's: state outlives both.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from rota.kinds.query.streams.kernels import pc
from rota.kinds.query.streams.values import NO_VALUE, as_numbers

GROUPS = 128

_MASK = 0xFFFFFFFF
_FACTOR = 1_000_003
_NULL = 0x5BF03635


def partition_of(group: int, partitions: int) -> int:
    """Which of so many partitions has a group: each has a run of groups that follow each other."""
    return group * partitions // GROUPS


def kept_in(partition: int, partitions: int, others: int) -> tuple[int, ...]:
    """In which of `others` partitions the keys are kept that one of so many has."""
    groups = (group for group in range(GROUPS) if partition_of(group, partitions) == partition)
    return tuple(dict.fromkeys(partition_of(group, others) for group in groups))


def groups_of(table: pa.Table, keys: Sequence[str]) -> pa.Array:
    """The group of each row, by its keys."""
    mixed = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
    for key in keys:
        spread = pc.multiply(mixed, _FACTOR)
        mixed = pc.bit_wise_and(pc.add(spread, _hashed(table.column(key))), _MASK)
    return pc.bit_wise_and(pc.bit_wise_xor(mixed, pc.shift_right(mixed, 16)), GROUPS - 1)


def split(table: pa.Table, keys: Sequence[str], partitions: int) -> list[pa.Table]:
    """The rows of each partition."""
    if partitions == 1 or not table.num_rows:
        return [table] * partitions
    owners = pc.divide(pc.multiply(groups_of(table, keys), partitions), GROUPS)
    return [table.filter(pc.equal(owners, number)) for number in range(partitions)]


def _hashed(column: pa.ChunkedArray) -> pa.Array:
    """A number for each value, found once for each that differs."""
    if pa.types.is_nested(column.type):
        # Arrow does not tell which of these differ.
        found = [None if each is None else zlib.crc32(_written(each)) for each in as_numbers(column).to_pylist()]
        return pc.fill_null(pa.array(found, pa.int64()), _NULL)
    coded: Any = pa.chunked_array([column.combine_chunks()]).dictionary_encode().combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    values: Any = as_numbers(coded.dictionary) if _has_ns(coded.dictionary.type) else coded.dictionary
    sums = pa.array([zlib.crc32(_written(_value(each))) for each in values], pa.int64())
    return pc.fill_null(pc.take(sums, coded.indices), _NULL)


def _has_ns(kind: Any) -> bool:
    is_moment = pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind)
    return is_moment and kind.unit == "ns"


def _value(scalar: Any) -> object:
    """A value as Python has it, or its number; which of these must depend on nothing but the value."""
    try:
        return scalar.as_py()
    except NO_VALUE:
        return as_numbers(scalar).as_py()


def _written(value: object) -> bytes:
    """A value as bytes, the same for whichever width or kind of text a column has, and for both zeros."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        value += 0.0
    return value if isinstance(value, bytes) else msgspec.json.encode(value)
