"""What outlives a program that was killed: for a moment, its supervisor and what that has still to end.

Each supervisor has a lock of the folder open and keeps it until nothing is left of what it started. Whoever holds the
folder next can therefore know, and need not guess from the time that has passed, that no attempt is still at work.
Which workers lived in those programs is noted in the folder: going by their names, a worker elsewhere might be taken
for one of them.
"""

import asyncio
import fcntl
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from rota.app.files import write_whole

LOCK_NAME = "runners.lock"
# Killing takes milliseconds. What cannot be killed, such as a process that waits for a dead disk, is not waited for.
PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.02
NOTES_NAME = "workers.json"
# One for each program that was started while something of another could not be killed.
NOTES_MAX = 100


class RunnersLock:
    """One holder's side of the lock; `fd` is for its supervisors to keep open."""

    def __init__(self, folder: Path) -> None:
        self.fd = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def take(self) -> bool:
        """Take it; whether everything is gone that earlier holders had started."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not (is_alone := self._try()) and time.monotonic() < give_up_at:
            await asyncio.sleep(_LOOK_EVERY_S)
        # Shared: survivors that are not waited for have it too.
        fcntl.flock(self.fd, fcntl.LOCK_SH)
        return is_alone

    def _try(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def free(self) -> None:
        """Give it back."""
        # Not by closing alone: a process that was forked from this one has the file open too, and may live on.
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


class Resident(Struct, frozen=True):
    """A worker that lives in the process that holds the folder."""

    tenant: str
    id: str
    incarnation: str
    # A tenant whose work it takes, which is who may ask about it.
    serves: str


def note_resident(folder: Path, worker: Resident) -> None:
    """Note a worker before it is heard of; a loss of power takes the worker too, and its leases end by themselves."""
    noted = [*residents(folder), worker][-NOTES_MAX:]
    write_whole(folder / NOTES_NAME, msgspec.json.encode(noted), is_durable=False)


def residents(folder: Path) -> list[Resident]:
    """The workers of the folder's holders up to now, of which something may still be known."""
    try:
        return msgspec.json.decode((folder / NOTES_NAME).read_bytes(), type=list[Resident])
    except (FileNotFoundError, msgspec.DecodeError):
        return []


def forget_residents(folder: Path) -> None:
    """Nothing is left of any of them."""
    (folder / NOTES_NAME).unlink(missing_ok=True)
