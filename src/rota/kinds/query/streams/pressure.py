"""Back-pressure: how many rows may be read, and of which partitions, while rows wait for others in a state.

Pure. What lets rows wait has a bound. From half of it on only the partition that time waits for is read: rows of all
others would wait as well, and let nobody go. A round after which more would wait than may is not published, but made
with fewer rows. Rows that are near each other have to wait all the same, and if these are more than the bound, the
stream fails: nothing is dropped, and it goes on from there with a larger bound.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rota.core.errors import Refused


class Crowd(Struct, frozen=True, kw_only=True):
    """Rows that wait in an operator, and how far partitions have come that feed it. Nobody waits for `idle` ones."""

    operator: str
    waiting: int
    waiting_max: int
    reached: Mapping[str, int]
    idle: tuple[str, ...] = ()

    @property
    def live(self) -> dict[str, int]:
        """How far those have come that are waited for."""
        return {name: at for name, at in self.reached.items() if name not in self.idle}

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The partitions that alone are read for now; none if there is room enough for all."""
        live = self.live
        if 2 * self.waiting <= self.waiting_max or not live:
            return ()
        least = min(live.values())
        return tuple(name for name, at in live.items() if at == least)

    @property
    def holds(self) -> list[str]:
        """The partitions that are not read meanwhile."""
        wanted = self.waits_for
        return [name for name in self.live if name not in wanted] if wanted else []

    @property
    def share(self) -> int:
        """How many rows of a partition there is room for. Half of it is kept for whoever time waits for."""
        if self.waits_for:
            return max(1, (self.waiting_max - self.waiting) // len(self.waits_for))
        return max(1, (self.waiting_max // 2 - self.waiting) // (len(self.live) or 1))


def rows_allowed(crowds: Sequence[Crowd]) -> dict[str, int]:
    """How many rows of a partition may be read, where that is limited; 0 of one that others have to catch up with.

    Idle partitions are not held: nobody waits for them, and a row that comes there after all is read at once.
    """
    most: dict[str, int] = {}
    for crowd in crowds:
        most |= {name: min(crowd.share, most.get(name, crowd.share)) for name in crowd.reached}
    return most | dict.fromkeys(_held(crowds), 0)


def rows_wanted(crowds: Sequence[Crowd], rows_max: int) -> dict[str, int]:
    """The same with so many rows of those that time waits for: one that is far enough ahead lets others go."""
    wanted = {name: rows_max for crowd in crowds for name in crowd.waits_for}
    return rows_allowed(crowds) | wanted


def _held(crowds: Sequence[Crowd]) -> list[str]:
    """The partitions that are not read. Crowds that go by different times may wait for each other: they hold nobody."""
    stuck = [crowd for crowd in crowds if crowd.waits_for]
    holding: list[Crowd] = []
    while True:
        held = [name for crowd in stuck for name in crowd.holds]
        going = [crowd for crowd in stuck if any(name not in held for name in crowd.waits_for)]
        if not going:
            return list(dict.fromkeys(name for crowd in holding for name in crowd.holds))
        holding += going
        stuck = [crowd for crowd in stuck if crowd not in going]


def check_room(crowds: Sequence[Crowd], before: Mapping[str, int]) -> None:
    """Refuse a round after which more rows would wait than may. Fewer than `before` are fine: it was more once."""
    for crowd in crowds:
        if crowd.waiting > max(crowd.waiting_max, before.get(crowd.operator, 0)):
            text = f"{crowd.waiting:,} rows would wait in {crowd.operator}, and {crowd.waiting_max:,} may (waiting_max)"
            hint = "All of them are near others that may come. Start the stream again with a larger waiting_max."
            raise Refused("stream.full", text, hint, path="waiting_max")
