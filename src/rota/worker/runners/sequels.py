"""What follows from what a function gave: tasks that a branch skips, how wide others are mapped, another look later."""

from typing import Any, cast

from rota.core.bounds import GROWTH_TASKS_MAX
from rota.running import Fail, Reschedule
from rota.wire.elements import Unforeseen, elements_of
from rota.wire.work import INLINE_BYTES_MAX, SHARED_BYTES_MAX, Branches, Sensor


def widths(maps: tuple[tuple[str, int], ...], value: Any) -> tuple[tuple[str, int], ...]:
    """How many tasks there are of each that is mapped over a value."""
    try:
        count = len(elements_of(value))
    except Unforeseen as error:
        raise Unforeseen(f"{maps[0][0]!r} is mapped over what this task gives: {error}") from None
    for task, factor in maps:
        if count * factor > GROWTH_TASKS_MAX:
            raise Unforeseen(
                f"{task!r} would be {count * factor:,} tasks, and {GROWTH_TASKS_MAX:,} are the most; "
                "give each a slice of the list"
            )
    return tuple((task, count * factor) for task, factor in maps)


def skipped_by(branches: Branches, value: Any) -> tuple[str, ...]:
    """The tasks that are skipped after a branch chose, or after a condition held or did not."""
    if branches.is_condition:
        return () if value else branches.unless
    choices = dict(branches.choices)
    chosen = _chosen(value)
    for name in chosen:
        if name not in choices:
            known = ", ".join(map(repr, choices)) or "nothing"
            raise Unforeseen(f"the branch chose {name!r}, which does not follow it; it may choose {known}")
    kept = {task for name in chosen for task in choices[name]}
    return tuple(task for task in branches.unless if task not in kept)


def _chosen(value: Any) -> list[str]:
    if value is None:
        return []
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple | set) or not all(isinstance(item, str) for item in cast(list[Any], items)):
        kind = type(value).__name__
        raise Unforeseen(f"a branch returns the id of a task, a list of them or None, and this is a {kind}")
    return list(cast(list[str], items))


def ask_again(sensor: Sensor, first_started_at: int, now: int) -> Reschedule | Fail:
    """What a sensor that saw nothing raises: it looks again after a while, or has run out of patience."""
    ends_at = (first_started_at or now) + sensor.timeout_ms
    if now >= ends_at:
        return Fail(f"saw nothing for {sensor.timeout_ms / 1_000:,.0f} s, which is all the time it has")
    return Reschedule(min(sensor.poke_ms, ends_at - now) / 1_000)


def put_together(pieces: dict[str, Any]) -> Any:
    """What a task gives that went on as others: the tables that those gave, one after the other, as one."""
    for task, piece in pieces.items():
        if type(piece).__name__ != "Table":
            given = "nothing" if piece is None else f"a {type(piece).__name__}"
            raise Fail(f"{task!r} gave {given} where a piece of the answer should be; clear this task to run it anew")
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]  # an extra, and half a second

    return cast(Any, pyarrow).concat_tables(list(pieces.values()))


def inline_bytes_max(*, is_shared: bool) -> int:
    """How large a value may be that travels in messages.

    Of a mapped task all results travel together to who takes them, and what tasks are mapped over travels to each.
    """
    return SHARED_BYTES_MAX if is_shared else INLINE_BYTES_MAX
