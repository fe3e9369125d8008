"""Logs of attempts: where each lives, and reading it as it grows.

A log is a plain file under the worker's folder. The supervisor makes it with the first byte that an attempt writes, so
an attempt that wrote nothing has none, which reads as empty.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from rota.wire.names import attempt_name, safe_name

READ_BYTES_MAX = 1024 * 1024


class LogFolder:
    """The logs below one folder."""

    def __init__(self, folder: Path) -> None:
        self.root = (folder / "logs").absolute()

    def place(self, tenant: str, run: str, task: str, attempt: int, fence: int) -> str:
        """Where the log of an attempt is, or will be."""
        return f"{self.root}/{attempt_name(tenant, run, task, attempt, fence)}.log"

    def find(self, tenant: str, run: str, task: str) -> list[Path]:
        """The logs of a task's attempts, oldest first."""
        folder = self.root / safe_name(tenant) / safe_name(run) / safe_name(task)
        return sorted(folder.glob("*.log"), key=_attempt_and_fence)


def collect(home: Path, is_wanted: Callable[[str], bool], older_than_ns: int) -> int:
    """Remove a tenant's logs of runs that nobody refers to, unless they were written to since an instant.

    `home` is the tenant's folder, and `is_wanted` is asked with the safe name of a run. Gives how many runs that were.
    """
    removed = 0
    for folder in sorted(home.glob("*")):
        newest = max((path.stat().st_mtime_ns for path in folder.rglob("*")), default=0)
        if newest < older_than_ns and not is_wanted(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
            removed += 1
    return removed


def _attempt_and_fence(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.stem.split("-"))


def read_on(path: Path, offset: int, bytes_max: int = READ_BYTES_MAX) -> tuple[bytes, int]:
    """What was written from an offset on, and the offset to ask for next. Nothing new: empty, the same offset."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            piece = file.read(bytes_max)
    except FileNotFoundError:
        return b"", offset
    return piece, offset + len(piece)
