"""Event time: how far a stream has come, and how that is known.

Pure. A watermark says that no more rows are expected from before it. It is the least over the partitions that are heard
of, and never goes back, whatever they say.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, structs

# Before all rows, and after all of them. Room is left to add sizes and delays without leaving 64 bits.
NEVER = -(1 << 61)
END = 1 << 61


class Clock(Struct, frozen=True):
    """What an operator knows of time: the latest event of each partition, and how far all of them have come.

    `heard_at` is when rows of a partition came last, and `silent` are those of which none came for too long: a source
    may have rows of which a view lets none through.
    """

    peaks: dict[str, int] = {}
    mark: int = NEVER
    heard_at: dict[str, int] = {}
    silent: tuple[str, ...] = ()


def latest(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The latest event of each partition, as several have seen them."""
    peaks: dict[str, int] = {}
    for each in found:
        for partition, peak in each.items():
            peaks[partition] = max(peak, peaks.get(partition, NEVER))
    return peaks


def heard(clock: Clock, peaks: Mapping[str, int]) -> Clock:
    """Latest events of partitions, as one round has them."""
    return structs.replace(clock, peaks=latest((clock.peaks, peaks)))


def listened(clock: Clock, partitions: Mapping[str, int], fed: Collection[str], *, now_ms: int, since_ms: int) -> Clock:
    """Which partitions are silent, by how long each may be without rows; 0 for any time.

    `fed` have rows in this round, or are not read by our own choice. Nobody has listened before `since_ms`.
    """
    heard_at = {each: now_ms if each in fed else max(since_ms, clock.heard_at.get(each, 0)) for each in partitions}
    silent = tuple(each for each, idle_ms in partitions.items() if idle_ms and now_ms - heard_at[each] >= idle_ms)
    return structs.replace(clock, heard_at=heard_at, silent=silent)


def advanced(
    clock: Clock, partitions: Iterable[str], *, delay_ms: int, idle: Collection[str] = (), is_final: bool = False
) -> Clock:
    """How far time has come: the least of all partitions that are not idle, or the end if nothing more can come.

    A partition that was never heard of holds everything until it is idle; if all are idle, time stands still.
    """
    if is_final:
        return structs.replace(clock, mark=END)
    counted = [each for each in partitions if each not in idle and each not in clock.silent]
    if not counted or any(each not in clock.peaks for each in counted):
        return clock
    return structs.replace(clock, mark=max(clock.mark, min(clock.peaks[each] for each in counted) - delay_ms))


def carried(clock: Clock, upstream: int) -> Clock:
    """How far an operator has come that reads from another, which has come as far as `upstream`."""
    return structs.replace(clock, mark=max(clock.mark, upstream))
