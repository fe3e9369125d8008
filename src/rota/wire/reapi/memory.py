"""What was read of directories and trees before: of two actions of a build most are the same."""

from collections import OrderedDict
from typing import Generic, TypeVar

from rota.core.ids import Digest

# Names of files and directories in one memory.
NAMES_MAX = 500_000

Key = tuple[str, Digest]
Kept = TypeVar("Kept")


class Memory(Generic[Kept]):
    """By tenant and digest, up to so many names; what was not used for longest goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[Kept, int]] = OrderedDict()
        self._names = 0

    def get(self, key: Key) -> Kept | None:
        """What is remembered of that content."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: Key, kept: Kept, names: int) -> None:
        """Remember it, if it is not larger than all that may be remembered."""
        if key in self._kept:
            return
        self._kept[key] = (kept, names + 1)
        self._names += names + 1
        while self._names > NAMES_MAX:
            _, (_, names) = self._kept.popitem(last=False)
            self._names -= names
