"""What outlives a program that was killed: for a moment, its supervisor and what that has still to end.

Each supervisor has a lock of the folder open and keeps it until nothing is left of what it started. Whoever holds the
folder next can therefore know, and need not guess from the time that has passed, that no attempt is still at work.
"""

import asyncio
import fcntl
import os
import time
from pathlib import Path

LOCK_NAME = "runners.lock"
# Killing takes milliseconds. What cannot be killed, such as a process that waits for a dead disk, is not waited for.
PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.02


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
