"""Where in the user's files something was written, for messages about it."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.core.errors import Refused

_OURS = str(Path(__file__).parents[2])


class RefusedAt(Refused):
    """A refusal of something that was written at `place`; `bare` is what is said where the place is told beside it."""

    def __init__(self, bare: Refused, place: str) -> None:
        super().__init__(bare.code, f"{place}: {bare.reason}" if place else bare.reason, bare.hint, path=bare.path)
        self.bare = bare
        self.place = place


def here() -> str:
    """File and line of the user's code that is calling; they are never part of a definition."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - the only way to know who calls
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def place_of(function: Callable[..., Any]) -> str:
    """File and line of a function; empty if it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
