"""Rounds: which rows are read next, decided before they are read.

Pure. A plan is written down before its round runs. It has everything that depends on a clock or on how much may be read
at once, so that a round that is made again is the same round.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

# Where a partition is read from next: numbers that its source understands, in an order that only grows.
Offset = tuple[int, ...]


class Range(Struct, frozen=True, array_like=True):
    """Rows of a partition, from an offset up to another one."""

    source: str
    partition: int
    begin: Offset
    end: Offset


class Plan(Struct, frozen=True, kw_only=True):
    """What a round reads. `idle` partitions hold no watermark; after the final round no more rows can come.

    `begins` is where all partitions were read up to, also those that it reads nothing of. `held` are not read by our
    own choice. `begun_at_ms`: since when whoever has planned it looks at sources.
    """

    round: int
    planned_at_ms: int
    ranges: tuple[Range, ...] = ()
    begins: dict[str, Offset] = {}
    idle: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    begun_at_ms: int = 0
    is_final: bool = False


class Planned(Protocol):
    """What planning asks of a source."""

    def beginning(self, partition: int) -> Offset:
        """Where a partition begins."""
        ...

    def end_of_range(self, partition: int, begin: Offset, rows_max: int) -> Offset:
        """How far to read if about so many rows are wanted; `begin` if there are none."""
        ...

    def is_over(self, partition: int, begin: Offset) -> bool:
        """Whether no rows can come from here on, now or later."""
        ...


class Reading(Struct, frozen=True):
    """A source as a plan sees it: what can be read, how many partitions it has, and how it is told that one is idle."""

    name: str
    source: Planned
    partitions: int
    idle_ms: int = 0


def partition_name(source: str, partition: int) -> str:
    """What a partition is called among those of all sources."""
    return f"{source}/{partition}"


def plan_round(
    number: int,
    readings: Sequence[Reading],
    offsets: Mapping[str, Offset],
    heard_at_ms: Mapping[str, int],
    *,
    rows_max: int,
    now_ms: int,
    begun_at_ms: int = 0,
    allowed: Mapping[str, int] = MappingProxyType({}),
) -> Plan | None:
    """The next round, or None if there is nothing to do. `offsets` are those of partitions that were read before.

    `heard_at_ms`: when a partition last had rows; it is idle if that is longer ago than its source allows. `allowed`:
    how many rows of some partitions are read at most. Those of which none are held, since others have to catch up with
    them, and never idle: time must not pass rows that we chose not to read.
    """
    begins = _begins(readings, offsets)
    total = sum(each.partitions for each in readings) or 1
    share = max(1, rows_max // total)
    ranges: list[Range] = []
    idle: list[str] = []
    is_over = True
    for reading in readings:
        for partition in range(reading.partitions):
            name = partition_name(reading.name, partition)
            begin, most = begins[name], min(share, allowed.get(name, share))
            end = reading.source.end_of_range(partition, begin, most) if most else begin
            is_silent = reading.idle_ms and now_ms - heard_at_ms.get(name, now_ms) >= reading.idle_ms
            if end != begin:
                ranges.append(Range(reading.name, partition, begin, end))
            elif reading.source.is_over(partition, end) or (is_silent and most):
                idle.append(name)
            is_over = is_over and reading.source.is_over(partition, end)
    if not ranges and not is_over and not idle:
        return None
    return Plan(
        round=number,
        planned_at_ms=now_ms,
        ranges=tuple(ranges),
        begins=begins,
        idle=tuple(idle),
        held=tuple(name for name in begins if not allowed.get(name, 1)),
        begun_at_ms=begun_at_ms,
        is_final=is_over,
    )


def _begins(readings: Sequence[Reading], offsets: Mapping[str, Offset]) -> dict[str, Offset]:
    """Where each partition is read from next."""
    return {
        name: offsets.get(name) or reading.source.beginning(partition)
        for reading in readings
        for partition in range(reading.partitions)
        if (name := partition_name(reading.name, partition))
    }


def offsets_after(offsets: Mapping[str, Offset], plan: Plan) -> dict[str, Offset]:
    """Where partitions are read from next, once a plan was carried out."""
    after = dict(offsets)
    for each in plan.ranges:
        after[partition_name(each.source, each.partition)] = each.end
    return after


def goes_on(plan: Plan, readings: Sequence[Reading], offsets: Mapping[str, Offset]) -> bool:
    """Whether a plan reads on from these offsets. One that was written down before a stream was restored may not."""
    begins = _begins(readings, offsets)
    return plan.begins == begins and all(
        begins.get(partition_name(each.source, each.partition)) == each.begin < each.end for each in plan.ranges
    )
