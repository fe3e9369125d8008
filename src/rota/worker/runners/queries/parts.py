"""One file of an exchange: what it is called, and how one knows that it is still the one that was reported.

Its checksum is that of all of it. It is made when the file has been written, and again before it is read: by the task
on the same disk, and by the worker that gives it out, once for each file. At 10 GB/s both together are less than a
hundredth of what a query costs (docs/decisions/0016-queries.md).
"""

import os
import re
import stat

from rota.wire.queries import Part

# The header with the ticket by which a peer is known: that of a token of a session, as the engine asks a bucket.
TICKET = "x-amz-security-token"
_PIECE_BYTES = 1 << 20
_SEEN_MAX = 10_000
_read_asked = re.compile(r"p(\d{1,9})\.(\d{1,18})\.([0-9a-f]{16})\.arrow").fullmatch


class NotAPart(Exception):
    """There is no such file, or it is not the one that was reported; the text says what it is."""


def part_name(part: int) -> str:
    """What the file of a part is called."""
    return f"p{part}.arrow"


def asked_name(part: Part) -> str:
    """What a peer is asked for: the name says what the file has to be, so that one request both checks and reads."""
    return f"p{part.part}.{part.bytes}.{part.checksum}.arrow"


def read_asked(name: str) -> Part | None:
    """The part that a peer asks for; None if that is no name of one."""
    found = _read_asked(name)
    return Part(int(found[1]), int(found[2]), 0, found[3]) if found else None


class Seen:
    """Files whose content was looked at, and what it was: it need not be again while nobody touches them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], str] = {}

    def measure(self, file: int) -> tuple[int, str]:
        """The size of a file and its checksum."""
        found = os.fstat(file)
        key = (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)
        if key not in self._known:
            size, checksum = measure(file)
            if len(self._known) >= _SEEN_MAX:
                self._known.clear()
            self._known[(*key[:3], size)] = checksum
            return size, checksum
        return found.st_size, self._known[key]


def open_part(path: str, part: Part, seen: Seen | None = None) -> int:
    """A descriptor of the very file that was reported. Raises NotAPart."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotAPart(f"{path} cannot be opened: {error.strerror}") from None
    try:
        bytes_found = _size_of(file)
        if bytes_found != part.bytes:
            raise NotAPart(f"{path} has {bytes_found:,} bytes and not the {part.bytes:,} that were reported")
        if (seen.measure if seen else measure)(file) != (part.bytes, part.checksum):
            raise NotAPart(f"{path} was changed since it was reported")
    except BaseException as error:
        os.close(file)
        if isinstance(error, OSError):
            raise NotAPart(f"{path} cannot be read: {error.strerror}") from None
        raise
    return file


def check_part(path: str, part: Part) -> None:
    """Raise NotAPart unless the file at a path is the one that was reported."""
    os.close(open_part(path, part))


def measure(file: int) -> tuple[int, str]:
    """The size of a file and the checksum of all of it. Raises NotAPart if it is none."""
    import xxhash  # an extra: every worker imports this module, and only those that run queries measure

    # It is not mapped: whoever cuts a file short would end the process that looks at it.
    buffer = bytearray(max(1, min(_PIECE_BYTES, _size_of(file))))
    view = memoryview(buffer)
    hashed = xxhash.xxh3_64()
    size = 0
    while count := os.preadv(file, [buffer], size):
        hashed.update(view[:count])
        size += count
    return size, hashed.hexdigest()


def _size_of(file: int) -> int:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise NotAPart("it is not a file")
    return found.st_size
