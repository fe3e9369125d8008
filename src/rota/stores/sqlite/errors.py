"""From SQLite's errors to ours: what happened, whether anything was written, what to do."""

import errno
from pathlib import Path

import apsw

from rota.core.errors import Refused, Unavailable
from rota.ports import StoreRefused

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
# A value that no column can hold is the fault of whoever sent it, and of nobody else in the batch.
UNSTORABLE = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.TooBigError,
    AttributeError,
    OverflowError,
    TypeError,
    ValueError,
)


def is_full(error: apsw.Error, connection: apsw.Connection) -> bool:
    """Whether it was space that ran out."""
    if isinstance(error, apsw.FullError):
        return True
    return isinstance(error, apsw.IOError) and connection.system_errno in _NO_SPACE


def is_corrupt(error: BaseException) -> bool:
    """Whether the file is not what was written."""
    return isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError)


def corrupt_reason(path: Path, error: BaseException) -> str:
    """What happened to a damaged file."""
    return f"{path} is damaged: {error}."


CORRUPT_HINT = (
    "Run `rota db check` to see how far it goes. To go back to a copy made by `rota db backup`, stop Rota, move the"
    " folder aside and put the copy into a new one as rota.db."
)


def at_open(error: BaseException, connection: apsw.Connection | None, path: Path) -> BaseException:
    """What to raise when a folder cannot be opened."""
    if is_corrupt(error):
        return Refused("store.corrupt", corrupt_reason(path, error), CORRUPT_HINT)
    if not isinstance(error, apsw.Error) or isinstance(error, apsw.SQLError):
        return error
    if connection is not None and is_full(error, connection):
        return Unavailable("store.full", f"no space left for {path}.")
    return Unavailable("store.unavailable", f"{path} cannot be opened: {error}.")


def not_written(
    error: BaseException, connection: apsw.Connection, path: Path
) -> Unavailable | StoreRefused | BaseException:
    """What to raise when nothing was written, or nothing could be read."""
    if isinstance(error, UNSTORABLE):
        return StoreRefused(f"{type(error).__name__}: {error}")
    if is_corrupt(error):
        return Unavailable("store.corrupt", f"{corrupt_reason(path, error)} {CORRUPT_HINT}")
    if not isinstance(error, apsw.Error) or isinstance(error, apsw.SQLError):
        # Not the disk's doing: a bug of ours, or one of the store's own words (Fenced).
        return error
    if is_full(error, connection):
        return Unavailable("store.full", f"no space left for {path.name}; nothing was written.")
    return Unavailable("store.unavailable", f"{path.name}: {type(error).__name__}: {error}.")
