"""Who a worker is: a folder's identity, which outlives the process, and the lock that keeps it one process's own.

A folder that was copied to another machine has the same identity there; the coordinator refuses the second one while
the first lives (P-CLONE).
"""

import contextlib
import fcntl
import os
import re
import secrets
import socket
from pathlib import Path

from rota.core.errors import Refused
from rota.core.graph import check_id

NAME_FILE = "worker-id"
CLUSTER_FILE = "cluster"
LOCK_FILE = "worker.lock"

_not_kept = re.compile(r"[^A-Za-z0-9_.-]+").sub


class Identity:
    """The worker of a folder, for as long as this process has it."""

    def __init__(self, folder: Path, id: str, lock: int) -> None:
        self.folder = folder
        self.id = id
        # Another one for each life of the process.
        self.incarnation = secrets.token_hex(8)
        self._lock = lock

    @property
    def cluster_file(self) -> Path:
        """The file with the cluster that this worker has joined."""
        return self.folder / CLUSTER_FILE

    def cluster(self) -> str:
        """The cluster that this worker has joined; empty if it has joined none yet."""
        try:
            return self.cluster_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def join(self, cluster: str) -> None:
        """Belong to a cluster from now on, also in later lives of the process."""
        _keep(self.cluster_file, cluster)

    def free(self) -> None:
        """Let another process have the folder."""
        with contextlib.suppress(OSError):
            # Not by closing alone: a process that was forked from this one has the file open too.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)


def take_identity(folder: Path, name: str = "") -> Identity:
    """Be the worker of a folder. `name` is its id; without one it is made up once, and kept.

    Refused while another process has the folder, and if the folder belongs to a worker of another name.
    """
    if name:
        check_id(name, "name")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(folder)
    except OSError as error:
        hint = "Name a folder that the worker may write to."
        raise Refused("store.missing", f"{folder} cannot be used: {error.strerror}", hint, path="data") from None
    try:
        return Identity(folder, _name(folder, name), lock)
    except BaseException:
        os.close(lock)
        raise


def _lock(folder: Path) -> int:
    file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 32, 0).decode(errors="replace").strip()
        os.close(file)
        raise Refused(
            "worker.held",
            f"{folder} is the folder of a worker that runs already: process {holder or 'unknown'}",
            "Stop it, or give each worker a folder of its own.",
            path="data",
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _name(folder: Path, name: str) -> str:
    path = folder / NAME_FILE
    try:
        known = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        known = ""
    if known:
        check_id(known, str(path))
        if name and name != known:
            hint = f"Leave the name out, use another folder, or remove {path} to give this one a new name."
            raise Refused("field.value", f"{folder} belongs to the worker {known!r}", hint, path="name")
        return known
    made = name or f"{_not_kept('-', socket.gethostname())[:200] or 'worker'}-{secrets.token_hex(3)}"
    _keep(path, made)
    return made


def _keep(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_text(f"{text}\n", encoding="utf-8")
    part.replace(path)
