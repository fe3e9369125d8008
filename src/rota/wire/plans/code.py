"""Python functions in plans."""

import re

_MARK = re.compile(rb"DFPYUD[A-Z][\x00-\x1f]")


def has_code(plan: bytes) -> bool:
    """Whether a plan brings Python functions along.

    The engine writes each as a pickle after a mark of its own, a version and that of Python. Text with that mark and a
    control character behind it is taken for code, too.
    """
    return _MARK.search(plan) is not None
