"""Telling an operator what others did, without letting them fill the log."""

from collections.abc import Callable

KINDS_MAX = 50


class Sparing:
    """Passes a line on at most once in a while for each kind; the next one says how many were left out."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float], every_s: float = 10.0) -> None:
        """`clock` gives seconds that only grow."""
        self._say = say
        self._clock = clock
        self._every_s = every_s
        # When each kind was told last, and how many of it have not been told since.
        self._told: dict[str, tuple[float, int]] = {}

    def tell(self, kind: str, line: str) -> None:
        """Say it, if nothing of its kind was said just now."""
        now = self._clock()
        if kind not in self._told and len(self._told) >= KINDS_MAX:
            kind = "other"
        told_at, unsaid = self._told.get(kind, (None, 0))
        if told_at is not None and now - told_at < self._every_s:
            self._told[kind] = (told_at, unsaid + 1)
            return
        self._told[kind] = (now, 0)
        self._say(f"{line} ({unsaid} more like this)" if unsaid else line)
