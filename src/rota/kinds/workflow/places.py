"""Where in the user's files something was written, for messages about it."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OURS = str(Path(__file__).parents[2])


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
