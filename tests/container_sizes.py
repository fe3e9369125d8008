"""How many things the containers of an object hold, by where they are: finds what grows and is never given back."""

from collections import deque
from collections.abc import Iterator
from typing import Any

_PLAIN = (str, bytes, int, float, bool, type(None))


def sizes_of(**roots: Any) -> dict[str, int]:
    """The number of things in all containers below some objects, summed by path; other packages are not entered."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    # The shortest path to each thing is found first.
    left = deque((root, name) for name, root in roots.items())
    while left:
        one, path = left.popleft()
        if isinstance(one, _PLAIN) or id(one) in seen:
            continue
        seen.add(id(one))
        inside = list(_inside(one, path))
        if isinstance(one, dict | list | tuple | set | frozenset | deque):
            found[path] = found.get(path, 0) + len(one)
        left += inside
    return found


def grown(before: dict[str, int], after: dict[str, int], by: int) -> list[str]:
    """The containers that hold more things than before, by at least so many."""
    return [
        f"{path}: {before.get(path, 0)} -> {size}"
        for path, size in sorted(after.items())
        if size - before.get(path, 0) >= by
    ]


def _inside(one: Any, path: str) -> Iterator[tuple[Any, str]]:
    if isinstance(one, dict):
        for key, value in list(one.items()):
            yield key, f"{path}.keys()"
            yield value, f"{path}[]"
    elif isinstance(one, list | tuple | set | frozenset | deque):
        for value in list(one):
            yield value, f"{path}[]"
    elif hasattr(one, "__struct_fields__"):
        for name in one.__struct_fields__:
            yield getattr(one, name), f"{path}.{name}"
    elif type(one).__module__.partition(".")[0] == "rota":
        names = [*vars(one)] if hasattr(one, "__dict__") else []
        for kind in type(one).__mro__:
            slots = getattr(kind, "__slots__", ())
            names += [slots] if isinstance(slots, str) else slots
        for name in names:
            if hasattr(one, name):
                yield getattr(one, name), f"{path}.{name}"
