"""Where files of answers are kept: a folder of files, or a prefix in a bucket.

`rota.wire.targets` says what is done there.

Names are relative and have slashes. Whatever is done here may be done again by whoever comes after one that was killed.
"""

import io
import os
import shutil
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import obstore

from rota.core.errors import Refused
from rota.wire.capabilities import FENCED, Sink
from rota.wire.flushing import flush
from rota.wire.stores import knock, open_store, store_of, troubles

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_PART_BYTES = 8 << 20
_COPIES_AT_ONCE = 16


class Folder(Protocol):
    """Files by their names."""

    # What it can promise about what is written there.
    capabilities: Sink

    def check(self) -> None:
        """Refuse a place that cannot be written to."""
        ...

    def names(self, below: str = "") -> list[str]:
        """What is directly in it, or in a folder in it, in the order of names: files, which are whole, and folders,
        with a slash behind them.
        """
        ...

    def open(self, name: str) -> Any:
        """A file to write to, which is there when it has been closed."""
        ...

    def size(self, name: str) -> int:
        """How many bytes a file has."""
        ...

    def reveal(self, names: Sequence[tuple[str, str]]) -> None:
        """Have files seen under other names. Under the old ones they may be there still."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove files, those that are there."""
        ...

    def remove_all(self, name: str) -> None:
        """Remove all that is below a name."""
        ...

    def settle(self) -> None:
        """Have what was done survive a loss of power."""
        ...


def open_folder(place: str) -> Folder:
    """A folder by its path or its URL."""
    if "://" in place and store_of(place, "query.target"):
        return BucketFolder(place)
    return LocalFolder(place.removeprefix("file://"))


class LocalFolder:
    """A folder of this machine, or one that machines share."""

    capabilities = FENCED

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def check(self) -> None:
        """Refuse a file."""
        if self._path.exists() and not self._path.is_dir():
            raise Refused("query.target", f"{self._path} is a file", "Name a folder.", path="path")

    def names(self, below: str = "") -> list[str]:
        """What is directly in it."""
        try:
            found = (self._path / below).iterdir()
            return sorted(f"{path.name}/" if path.is_dir() else path.name for path in found)
        except FileNotFoundError:
            return []

    def open(self, name: str) -> Any:
        """A file, whose folders are made with it."""
        (self._path / name).parent.mkdir(parents=True, exist_ok=True)
        return _Flushed(self._path / name)

    def size(self, name: str) -> int:
        """How many bytes a file has."""
        return (self._path / name).stat().st_size

    def reveal(self, names: Sequence[tuple[str, str]]) -> None:
        """Rename them."""
        for name, to in names:
            (self._path / name).replace(self._path / to)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files."""
        for name in names:
            (self._path / name).unlink(missing_ok=True)

    def remove_all(self, name: str) -> None:
        """Remove a folder."""
        shutil.rmtree(self._path / name, ignore_errors=True)

    def settle(self) -> None:
        """Flush the folder."""
        flush(self._path)


class _Flushed(io.FileIO):
    """A file that is on the disk when it has been closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w")

    def give_up(self) -> None:
        """It is removed with its folder."""

    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
        super().close()


class BucketFolder:
    """A prefix in a bucket. What is put there is seen as a whole or not at all; it gets another name by copying it."""

    capabilities = FENCED

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._name = store_of(url)
        self._opened: ObjectStore | None = None

    @contextmanager
    def _asking(self) -> Generator["ObjectStore"]:
        # A file that is gone is not trouble with the store.
        try:
            with troubles(self._name, "query.target", passing=FileNotFoundError):
                if self._opened is None:
                    self._opened = open_store(self._url)
                yield self._opened
        except FileNotFoundError as error:
            raise FileNotFoundError(str(error).partition("\n")[0]) from None

    def check(self) -> None:
        """Refuse a bucket that is not there or does not let us in."""
        knock(f"{self._url}/", "query.target")

    def names(self, below: str = "") -> list[str]:
        """What is directly in it."""
        with self._asking() as store:
            found = obstore.list_with_delimiter(store, below)  # pyright: ignore[reportUnknownMemberType]  # Arrow's overload
            folders = (f"{_last(path)}/" for path in found["common_prefixes"])
            return sorted([*folders, *(_last(blob["path"]) for blob in found["objects"])])

    def open(self, name: str) -> Any:
        """An upload."""
        return _Upload(self, name)

    def upload(self, name: str) -> Any:
        """What takes the bytes of an object."""
        with self._asking() as store:
            return obstore.open_writer(store, name, buffer_size=_PART_BYTES)

    def put(self, write: Any, *content: bytes) -> None:
        """Hand over bytes, or with none of them come to the end."""
        with self._asking():
            write(*content)

    def size(self, name: str) -> int:
        """How many bytes an object has."""
        with self._asking() as store:
            return obstore.head(store, name)["size"]

    def reveal(self, names: Sequence[tuple[str, str]]) -> None:
        """Copy them: each copy is there whole, or not at all."""
        with self._asking() as store, ThreadPoolExecutor(_COPIES_AT_ONCE) as threads:
            for done in [threads.submit(obstore.copy, store, name, to) for name, to in names]:
                done.result()

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects."""
        if names:
            with self._asking() as store:
                obstore.delete(store, list(names))

    def remove_all(self, name: str) -> None:
        """Remove what is below a prefix."""
        with self._asking() as store:
            listed = obstore.list(store, prefix=name)  # pyright: ignore[reportUnknownMemberType]  # Arrow's overload
            for found in listed:
                obstore.delete(store, [blob["path"] for blob in found])

    def settle(self) -> None:
        """A store that has answered has done so."""


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


class _Upload(io.RawIOBase):
    """An upload as a file; the object is there once it has been closed, and never if it has not."""

    def __init__(self, folder: BucketFolder, name: str) -> None:
        self._folder = folder
        self._into = folder.upload(name)
        self._is_given_up = False

    def give_up(self) -> None:
        """Whatever else is written is not wanted."""
        self._is_given_up = True

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        if not self._is_given_up:
            self._folder.put(self._into.write, bytes(content))
        return len(content)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if not self._is_given_up:
                self._folder.put(self._into.close)

    def __del__(self) -> None:
        # Whoever forgets it has not come to its end.
        self._is_given_up = True
        super().__del__()
