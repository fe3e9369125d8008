"""Names for sockets in folders of any depth."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

# What fits into the kernel's address of a socket, with the zero at its end.
PATH_BYTES_MAX = 107


@contextmanager
def short_path(path: Path) -> Generator[str]:
    """A name for a socket that the kernel takes however deep its folder is: through a descriptor of that folder."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
