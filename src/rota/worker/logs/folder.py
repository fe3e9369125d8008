"""Where logs lie until they have been shipped: plain files under the worker's folder.

The supervisor makes a file with the first byte that an attempt writes, so an attempt that wrote nothing has none.
"""

import contextlib
import os
from itertools import count
from pathlib import Path

from rota.core.decide.leases import Offer
from rota.wire.names import attempt_name

SUFFIX = ".log"


class LogFolder:
    """The logs below one folder."""

    def __init__(self, folder: Path) -> None:
        self.root = (folder / "logs").absolute()

    def place(self, offer: Offer) -> str:
        """Where the log of an attempt is, or will be."""
        name = attempt_name(offer.tenant, offer.run, offer.task_id, offer.attempt, offer.fence)
        return f"{self.root}/{name}{SUFFIX}"

    def name_of(self, path: str) -> str:
        """The name of the attempt whose log is at a place."""
        return path.removeprefix(f"{self.root}/").removesuffix(SUFFIX)

    def left(self) -> list[str]:
        """Every log that lies here."""
        return sorted(str(path) for path in self.root.rglob(f"*{SUFFIX}"))

    def set_aside(self, cluster: str) -> str:
        """Move logs of another cluster's work to a folder that is not shipped; its path, or nothing without logs."""
        if not self.left():
            return ""
        asides = (self.root.with_name(f"logs-of-{cluster}-{number}") for number in count(1))
        aside = next(path for path in asides if not path.exists())
        self.root.rename(aside)
        return str(aside)

    def append(self, path: str, text: str) -> None:
        """Add to a log that no supervisor writes."""
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", errors="replace", opener=_private) as file:
            file.write(text)

    def remove(self, path: str) -> None:
        """Remove a log, and the folders that are empty without it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - on the path of every attempt that prints
        with contextlib.suppress(OSError):
            for parent in Path(path).parents:
                if parent == self.root:
                    break
                parent.rmdir()


def size_of(path: str) -> int:
    """How much is in a log; -1 if there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - asked about twice a second for each attempt
    except (FileNotFoundError, NotADirectoryError):
        return -1


def read_part(path: str, offset: int, size: int) -> bytes:
    """Part of a log."""
    with Path(path).open("rb", buffering=0) as file:
        return os.pread(file.fileno(), size, offset)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
