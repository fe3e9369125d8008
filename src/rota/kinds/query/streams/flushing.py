"""Having files, and names in a folder, on disk before anybody relies on them."""

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa


def write_flushed(path: Path, contents: Iterable[bytes | pa.Buffer]) -> None:
    """Write a new file, and return when it is there after a loss of power; its name may not be yet."""
    with path.open("xb", buffering=0) as file:
        for content in contents:
            left = memoryview(content)
            while left.nbytes:
                left = left[file.write(left) :]
        os.fsync(file.fileno())


def flush(path: Path) -> None:
    """Return when a file, or the names in a folder, are there after a loss of power."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
