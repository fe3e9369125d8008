"""Unpacked bundles on disk: each is made beside its place and put there whole, and removed when others need room."""

import os
import shutil
import tempfile
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from rota.core.errors import Refused
from rota.wire.bundles import check_members
from rota.worker.accounts import Account

# While it is being made or removed. No digest begins like this.
_PART = "part-"
_OWNER_EXECUTES = 0o100 << 16


class Unusable(Exception):
    """A bundle that cannot be unpacked; the text says why."""


class BundleFolder:
    """Unpacked bundles by their digests, each with its size in bytes."""

    def __init__(self, place: Path, run_as: Account | None = None) -> None:
        """`run_as` is the user that code is run as, if it is another: it cannot enter the worker's own folder."""
        self._place = place
        self._run_as = run_as
        self._root: Path | None = None

    def open(self) -> dict[str, int]:
        """What is there already, that which was used least recently first; what was left half-made is removed."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        if self._run_as is not None:
            # Made anew: by the link it is found again if we are killed.
            self._root = Path(tempfile.mkdtemp(prefix=f"rota-bundles-{os.getpid()}-"))
            self._root.chmod(0o711)
            (self._place / f"{_PART}{os.getpid()}").symlink_to(self._root)
            return {}
        self._root = self._place
        kept = [folder for folder in self._root.iterdir() if folder.is_dir()]
        kept.sort(key=lambda folder: folder.stat().st_mtime_ns)
        return {folder.name: _size_of(folder) for folder in kept}

    def _sweep(self) -> None:
        for left in self._place.iterdir():
            if left.is_symlink():
                _remove(left.readlink())
                left.unlink()
            elif left.name.startswith(_PART):
                _remove(left)

    def path(self, digest: str) -> Path:
        """Where a bundle is."""
        assert self._root is not None, "it is opened before it is used"
        return self._root / digest

    def packed(self, digest: str) -> Path:
        """Where the packed form is put for a moment."""
        return self._place / f"{_PART}{digest}.zip"

    def unpack(self, digest: str) -> int:
        """Make the folder of a bundle from its packed form; how many bytes it has. Raises Unusable."""
        assert self._root is not None, "it is opened before it is used"
        part = Path(tempfile.mkdtemp(prefix=f"{_PART}{digest[:12]}-", dir=self._root))
        try:
            with ZipFile(self.packed(digest)) as archive:
                size = _unpack(archive, part)
            part.rename(self.path(digest))
        except (Refused, BadZipFile, NotImplementedError, EOFError, ValueError) as error:
            _remove(part)
            raise Unusable(str(error)) from None
        except BaseException:
            _remove(part)
            raise
        return size

    def touch(self, digest: str) -> None:
        """It is used; whoever opens this folder next should know."""
        os.utime(self.path(digest))

    def remove(self, digest: str) -> None:
        """Make room. Nobody sees a part of it."""
        part = self.path(f"{_PART}{digest}")
        self.path(digest).rename(part)
        _remove(part)

    def close(self) -> None:
        """Remove what nobody could find again."""
        if self._run_as is not None and self._root is not None:
            self._sweep()


def _unpack(archive: ZipFile, target: Path) -> int:
    """Write every file, for everybody to read and nobody to change."""
    size = 0
    folders = {target: None}
    for member in check_members(archive):
        path = target / member.filename
        path.parent.mkdir(parents=True, exist_ok=True)
        folders.update(dict.fromkeys(parent for parent in path.parents if parent.is_relative_to(target)))
        with archive.open(member) as packed, path.open("xb") as file:
            shutil.copyfileobj(packed, file)
        path.chmod(0o555 if member.external_attr & _OWNER_EXECUTES else 0o444)
        size += member.file_size
    for folder in folders:
        folder.chmod(0o555)
    return size


def _size_of(folder: Path) -> int:
    return sum((Path(where) / name).lstat().st_size for where, _, names in os.walk(folder) for name in names)


def _remove(path: Path) -> None:
    """Remove a tree, also one that may not be changed; what cannot be removed is tried again at the next start."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for where, _, _ in os.walk(path):
        Path(where).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
