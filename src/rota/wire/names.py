"""Ids as names of files and blobs. An id may hold any printable character; a name has few and never leads elsewhere."""

import re
from hashlib import sha256

# How the name of a log's last part ends.
END = "-end"

_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
_NAME_BYTES_MAX = 200
_HEAD_BYTES = 120
_is_safe = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{_NAME_BYTES_MAX - 1}}}").fullmatch


def safe_name(id: str) -> str:
    """One path segment for an id; different ids get different names.

    What is not a letter, a digit, `_`, `-` or `.` is written as %XX, and so is a leading dot, so that no name is `.`,
    `..` or hidden. A name that would be too long for a file system ends in a digest instead.
    """
    if _is_safe(id):
        return id
    raw = id.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if byte in _KEPT else f"%{byte:02X}" for byte in raw)
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _NAME_BYTES_MAX:
        name = f"{name[:_HEAD_BYTES]}~{sha256(raw).hexdigest()}"
    return name or "%"


def attempt_name(tenant: str, run: str, task: str, attempt: int, fence: int) -> str:
    """Where what belongs to one attempt is kept: `tenant/run/task/attempt-fence`."""
    return f"{task_name(tenant, run, task)}/{attempt}-{fence}"


def task_name(tenant: str, run: str, task: str) -> str:
    """Where what belongs to the attempts of one task is kept."""
    return f"{safe_name(tenant)}/{safe_name(run)}/{safe_name(task)}"


def chunk_name(attempt: str, number: int, *, is_last: bool) -> str:
    """A part of the log of an attempt, which is given by its name; the last part says so."""
    return f"{attempt}/log/{number:06d}{END if is_last else ''}"
