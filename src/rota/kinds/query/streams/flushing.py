"""Files that are on disk before anybody relies on them."""

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
