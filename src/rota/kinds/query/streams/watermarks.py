"""Event time: how far a stream has come, and how that is known.

Pure. A watermark says that no more rows are expected from before it. It is the least over the partitions that are heard
of, and never goes back, whatever they say.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

# Before all rows, and after all of them. Room is left to add sizes and delays without leaving 64 bits.
NEVER = -(1 << 61)
END = 1 << 61


class Clock(Struct, frozen=True):
    """What an operator knows of time: the latest event of each partition, and how far all of them have come."""

    peaks: dict[str, int] = {}
    mark: int = NEVER


def latest(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The latest event of each partition, as several have seen them."""
    peaks: dict[str, int] = {}
    for each in found:
        for partition, peak in each.items():
            peaks[partition] = max(peak, peaks.get(partition, NEVER))
    return peaks


def heard(clock: Clock, peaks: Mapping[str, int]) -> Clock:
    """Latest events of partitions, as one round has them."""
    return Clock(latest((clock.peaks, peaks)), clock.mark)


def advanced(
    clock: Clock, partitions: Sequence[str], *, delay_ms: int, idle: Collection[str] = (), is_final: bool = False
) -> Clock:
    """How far time has come: the least of all partitions that are not idle, or the end if nothing more can come.

    A partition that was never heard of holds everything until it is idle; if all are idle, time stands still.
    """
    if is_final:
        return Clock(clock.peaks, END)
    counted = [each for each in partitions if each not in idle]
    if not counted or any(each not in clock.peaks for each in counted):
        return clock
    return Clock(clock.peaks, max(clock.mark, min(clock.peaks[each] for each in counted) - delay_ms))


def carried(clock: Clock, upstream: int) -> Clock:
    """How far an operator has come that reads from another, which has come as far as `upstream`."""
    return Clock(clock.peaks, max(clock.mark, upstream))
