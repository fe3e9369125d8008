"""The lock of a data folder: one process at a time is its writer, and the others can say which.

The kernel holds it (`flock`), so it is free the moment its process is gone, whatever the process died of. The file
says who holds it, for people; only the kernel is believed. It is never deleted: two processes must not be able to
lock two files of the same name.
"""

import fcntl
import os
import socket
import time
from pathlib import Path

import msgspec

from rota.core.errors import Refused

LOCK_NAME = "rota.lock"
_READ_BYTES_MAX = 4_096
# How often a lock that others only look at is tried again. A look takes microseconds, unless it waits for a core.
_LOOKS_MAX = 500_000


class Holder(msgspec.Struct, frozen=True):
    """What a lock file says about who holds the lock."""

    pid: int
    host: str
    since: int
    who: str = ""


class FolderLock:
    """One process's side of the lock."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK_NAME
        self._fd: int | None = None

    def take(self, who: str = "") -> bool:
        """Take the lock if it is free. A lock that is held is held against everybody, its holder included."""
        if self._fd is not None:
            return False
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_taken = _lock(fd) and self._is_the_file(fd)
        except BaseException:
            os.close(fd)
            raise
        if not is_taken:
            os.close(fd)
            return False
        self._sign(fd, who)
        self._fd = fd
        return True

    @staticmethod
    def _sign(fd: int, who: str) -> None:
        """Say who holds it. On a full disk nobody can, and the lock is held all the same."""
        holder = Holder(os.getpid(), socket.gethostname(), time.time_ns() // 1_000_000, who)
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, msgspec.json.encode(holder) + b"\n", 0)
        except OSError:
            return

    def _is_the_file(self, fd: int) -> bool:
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(fd))

    def is_held(self) -> bool:
        """Whether this process still holds it; a lock on a file that somebody deleted keeps nobody out."""
        return self._fd is not None and self._is_the_file(self._fd)

    def free(self) -> None:
        """Give it back, if it is held."""
        fd, self._fd = self._fd, None
        if fd is not None:
            # Not by closing alone: a process that was forked from this one has the file open too, and may live on.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _lock(fd: int) -> bool:
    """Lock a file unless another process holds it. One that only looks (`holder_of`) is gone in a moment."""
    for _ in range(_LOOKS_MAX):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if _is_exclusive(fd):
                return False
            os.sched_yield()
    return False


def _is_exclusive(fd: int) -> bool:
    """Whether the lock is held, and not only looked at."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def holder_of(folder: Path) -> str:
    """Who holds a folder's lock, for people; empty if nobody does."""
    path = folder / LOCK_NAME
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(os.pread(fd, _READ_BYTES_MAX, 0))
    finally:
        os.close(fd)
    return ""


def _read(content: bytes) -> str:
    try:
        holder = msgspec.json.decode(content, type=Holder)
    except msgspec.DecodeError:
        return "a process that did not say which"
    who = f" ({holder.who})" if holder.who else ""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(holder.since // 1_000))
    return f"process {holder.pid} on {holder.host}{who}, since {since}"


def held(folder: Path) -> Refused:
    """What to say to somebody who needs a folder that another process uses."""
    return Refused(
        "store.held",
        f"the data folder {folder} is in use by {holder_of(folder) or 'a process that is just leaving'}.",
        "Stop that process, or choose another folder.",
    )
