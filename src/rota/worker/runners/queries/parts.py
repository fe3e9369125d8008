"""One file of an exchange: what it is called, and how one knows that it is still the one that was reported.

Its checksum is that of its footer, where Arrow keeps the place and size of everything in the file: a file that is
short, is another one or was not written to its end is noticed for the price of one read. To sum up all of it, twice,
would cost a tenth of what an exchange does; a disk that changes bytes behind our back is not noticed.
"""

import os
import re
import stat
import zlib

from rota.wire.queries import Part

# What an Arrow file ends with: the length of its footer, and this.
_MAGIC = b"ARROW1"
_TAIL_BYTES = 4 + len(_MAGIC)
_FIRST_READ_BYTES = 64 * 1024
_read_asked = re.compile(r"p(\d{1,9})\.(\d{1,18})\.([0-9a-f]{8})\.arrow").fullmatch


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


def open_part(path: str, part: Part) -> int:
    """A descriptor of the very file that was reported. Raises NotAPart."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotAPart(f"{path} cannot be opened: {error.strerror}") from None
    try:
        bytes_found, checksum = measure(file)
        if bytes_found != part.bytes:
            raise NotAPart(f"{path} has {bytes_found:,} bytes and not the {part.bytes:,} that were reported")
        if checksum != part.checksum:
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
    """The size of an Arrow file and the checksum of its footer. Raises NotAPart."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise NotAPart("it is not a file")
    size = found.st_size
    start = max(0, size - _FIRST_READ_BYTES)
    tail = os.pread(file, size - start, start)
    if len(tail) < _TAIL_BYTES or not tail.endswith(_MAGIC):
        raise NotAPart("it is not a whole Arrow file")
    footer_bytes = int.from_bytes(tail[-_TAIL_BYTES : -len(_MAGIC)], "little") + _TAIL_BYTES
    if footer_bytes > size:
        raise NotAPart("it is not a whole Arrow file")
    if footer_bytes > len(tail):
        tail = os.pread(file, footer_bytes, size - footer_bytes)
    return size, f"{zlib.crc32(tail[-footer_bytes:]):08x}"
