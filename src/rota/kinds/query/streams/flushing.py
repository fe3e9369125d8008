"""Files that are on disk before anybody relies on them."""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from rota.core.errors import Refused


def write_flushed(path: Path, contents: Iterable[bytes | pa.Buffer]) -> None:
    """Write a new file, and return when it is there after a loss of power; its name may not be yet."""
    with _in_folder(path.parent), path.open("xb", buffering=0) as file:
        for content in contents:
            left = memoryview(content)
            while left.nbytes:
                left = left[file.write(left) :]
        os.fsync(file.fileno())


@contextmanager
def _in_folder(folder: Path) -> Generator[None]:
    """Refuse a folder that cannot be written to.

    That a file is there, or a folder is gone, is for whoever writes: rivals give and take names.
    """
    try:
        yield
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        raise unwritable(folder, error) from error


def unwritable(folder: Path, error: OSError) -> Refused:
    """What is said of a stream's folder that cannot be written to."""
    where = f" ({error.filename})" if error.filename is not None else ""
    text = f"{folder} cannot be written to: {error.strerror or error}{where}"
    return Refused("stream.folder", text, "See that it is a folder with room in it, which this process may write to.")
