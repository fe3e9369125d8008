"""From SQLite's errors to ours: what happened, whether anything was written, what to do."""

import errno
import struct
from pathlib import Path

import apsw
import msgspec

from rota.core.errors import Refused, Unavailable
from rota.ports import StoreRefused
from rota.stores.sqlite.connection import Connection

# A quota and a limit on the size of files are space that ran out, too.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# After one of these nobody knows what is on the disk, whatever the operating system gave as a reason.
_OF_SYNC = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)
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

# What a row of a damaged file may do to whoever turns it into a record.
UNREADABLE = (KeyError, TypeError, ValueError, struct.error, msgspec.MsgspecError)


def is_full(error: apsw.Error, connection: Connection) -> bool:
    """Whether it was space that ran out."""
    if isinstance(error, apsw.FullError):
        return True
    if not isinstance(error, apsw.IOError) or getattr(error, "extendedresult", 0) in _OF_SYNC:
        return False
    return connection.system_errno in _NO_SPACE


def is_corrupt(error: BaseException) -> bool:
    """Whether the file is not what was written."""
    return isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError)


def corrupt_reason(path: Path, error: BaseException | str) -> str:
    """What happened to a damaged file."""
    return f"{path} is damaged: {error}."


CORRUPT_HINT = (
    "Run `rota db check` to see how far it goes. To go back to a copy made by `rota db backup`, stop Rota, move the"
    " folder aside and put the copy into a new one as rota.db."
)


def at_open(error: BaseException, connection: Connection | None, path: Path) -> BaseException:
    """What to raise when a folder cannot be opened."""
    if is_corrupt(error):
        return Refused("store.corrupt", corrupt_reason(path, error), CORRUPT_HINT)
    if not isinstance(error, apsw.Error) or isinstance(error, apsw.SQLError):
        return error
    if connection is not None and is_full(error, connection):
        return Unavailable("store.full", f"no space left for {path}.")
    return Unavailable("store.unavailable", f"{path} cannot be opened: {error}.")


def not_written(error: BaseException, connection: Connection, path: Path) -> Unavailable | StoreRefused | BaseException:
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


def not_read(error: BaseException, connection: Connection, path: Path) -> BaseException:
    """What to raise when nothing could be read. Bytes that are no text and words that are no state are damage, too."""
    if isinstance(error, UNREADABLE):
        said = corrupt_reason(path, f"{type(error).__name__}: {error}")
        return Unavailable("store.corrupt", f"{said} {CORRUPT_HINT}")
    return not_written(error, connection, path)
