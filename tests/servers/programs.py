"""Programs of servers that the tests start, wherever this machine has them."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest


def find_program(name: str, elsewhere: Iterable[Path], how: str) -> str:
    """A program on the path, or the first that exists of those elsewhere. `how` says how to come by one.

    Without one the test is skipped at a desk, and fails on a build server.
    """
    found = shutil.which(name) or next((str(path) for path in elsewhere if path.exists()), "")
    if found:
        return found
    text = f"there is no {name}: {how}, then run this again"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)
