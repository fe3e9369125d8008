"""Small files in folders that others may write to, too: nothing but a plain file is read, and no link is followed.

Whoever can write to a stream's folder may put a pipe or a link there. A coordinator that reads and writes there must
neither wait for a pipe nor write to where a link leads.
"""

import os
import secrets
import stat
from pathlib import Path

from rota.wire.flushing import flush

FILE_BYTES_MAX = 1 << 20
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


def read_plain(path: Path) -> bytes:
    """What is in a plain file. Raises OSError, or ValueError with what is wrong with it."""
    # A pipe would wait for whoever writes to it.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError(f"{path.name} is not a plain file")
        content = os.read(file, FILE_BYTES_MAX + 1)
    finally:
        os.close(file)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{path.name} has more than {FILE_BYTES_MAX:,} bytes")
    return content


def write_plain(path: Path, content: bytes) -> None:
    """Put a file in place, as a whole and there after a loss of power. What had the name before is replaced."""
    # A name that nobody can have guessed, or has by chance in a container with the same number of a process.
    aside = path.with_name(f"_{path.name}-{secrets.token_hex(8)}")
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o644)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    flush(path.parent)
