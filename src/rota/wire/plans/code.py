"""What plans do beside reading: Python functions that they bring along, and files that they write."""

import re
from typing import Any

# What kind of function, the version of this form, and Python 3 of some minor version. A pickle may begin in many ways.
_MARK = re.compile(rb"DFPYUD[A-Z][\x00-\x1f]\x03")

_SINK = "DataSinkExec"
_MEMORY = "DataSinkExec: sink=MemoryTable"


def has_code(plan: bytes) -> bool:
    """Whether a plan brings Python functions along.

    The engine writes each as a pickle after a mark of its own. Text that looks just like the mark is taken for code,
    too; code is never taken for text.
    """
    return _MARK.search(plan) is not None


def has_sink(plan: Any) -> bool:
    """Whether a plan of the engine writes something itself. Text that looks just like it is taken for it, too."""
    return any(line.startswith(_SINK) for line in _lines(plan.display_indent()))


def has_sink_of_files(shown: str) -> bool:
    """Whether a plan that is shown like this writes files, and not only to tables in memory."""
    return any(line.startswith(_SINK) and not line.startswith(_MEMORY) for line in _lines(shown))


def _lines(shown: str) -> list[str]:
    return [line.lstrip() for line in shown.splitlines()]
