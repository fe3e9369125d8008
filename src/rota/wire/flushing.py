"""Having a file, or the names in a folder, on disk."""

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Return when what was written is there after a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
