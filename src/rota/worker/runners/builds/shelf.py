"""Content on disk as actions are given it: a file per blob and per mode, which nobody may write to.

Mode and time belong to the inode, and all links to a blob share one; so a blob that is wanted both with and without
the right to execute it is kept twice. Every file has the same time. One that has another, or another size, was changed
by an action: root may write to anything. It is read again before anybody is given it.
"""

import contextlib
import hashlib
import itertools
import os
import shutil
from pathlib import Path

from msgspec import Struct

from rota.core.ids import Digest

# 2001-09-09 01:46:40 UTC: some day that is long over, and the same for all, so that no output depends on it.
INPUT_NS = 1_000_000_000 * 1_000_000_000
PLAIN, EXECUTABLE = 0o444, 0o555
_READ_BYTES = 1 << 20


class WrongContent(Exception):
    """These are not the bytes of that digest."""


class Key(Struct, frozen=True, gc=False):
    """One file of the shelf: whose it is, by the name of their folder, what it is, and how it may be used."""

    owner: str
    digest: Digest
    is_executable: bool

    @property
    def mode(self) -> int:
        """The permissions of the file."""
        return EXECUTABLE if self.is_executable else PLAIN

    @property
    def twin(self) -> "Key":
        """The same content with the other mode."""
        return Key(self.owner, self.digest, not self.is_executable)


class Shelf:
    """The files below one folder."""

    def __init__(self, cache: Path, parts: Path) -> None:
        self._cache = str(cache)
        self._parts = str(parts)
        # Threads take from it at once.
        self._numbers = itertools.count()

    def place(self, key: Key) -> str:
        """Where the file of a key is, or will be."""
        digest = key.digest
        mark = "x" if key.is_executable else ""
        return f"{self._cache}/{key.owner}/{digest.hash[:2]}/{digest.hash}-{digest.size}{mark}"

    def part(self) -> str:
        """A new name for what is not whole yet."""
        return f"{self._parts}/{next(self._numbers)}"

    def scan(self) -> list[Key]:
        """All files, those first that were used least recently; what is no blob of ours is removed."""
        found: list[tuple[int, str, str]] = []
        for where, _, names in os.walk(self._cache):
            for name in names:
                path = f"{where}/{name}"
                with contextlib.suppress(FileNotFoundError):
                    about = os.lstat(path)
                    if _is_sound(about, name):
                        # Every link that is made changes this time.
                        found.append((about.st_ctime_ns, name, where))
                    else:
                        os.unlink(path)
        return [_key_of(where, name) for _, name, where in sorted(found)]

    def put(self, key: Key, content: bytes) -> None:
        """Keep small content that a front end gave. Raises WrongContent."""
        if len(content) != key.digest.size or hashlib.sha256(content).hexdigest() != key.digest.hash:
            raise WrongContent(f"what was read as {key.digest.hash} is something else")
        part = self.part()
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "wb", buffering=0) as out:
                _write_all(out.fileno(), content)
            self.publish(key, part)
        except OSError:
            self.discard([part])
            raise

    def publish(self, key: Key, part: str) -> None:
        """Put a whole file, whose content was checked, where it belongs."""
        os.chmod(part, key.mode)
        os.utime(part, ns=(INPUT_NS, INPUT_NS))
        place = self.place(key)
        try:
            os.rename(part, place)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
            os.rename(part, place)

    def copy_twin(self, key: Key) -> None:
        """Make the file of a key from its twin. Raises WrongContent if that is not what it should be."""
        part = self.part()
        try:
            shutil.copyfile(self.place(key.twin), part)
            check_file(part, key.digest)
            self.publish(key, part)
        finally:
            self.discard([part])

    def adopt(self, key: Key, path: str) -> None:
        """Keep an output, whose digest is known, by another link to it; nobody else may have it open."""
        part = self.part()
        os.link(path, part)
        try:
            self.publish(key, part)
        finally:
            # A link onto another link to the same file is no move, and leaves both.
            self.discard([part])

    def is_untouched(self, key: Key) -> bool:
        """Whether a file still has the time, the size and the mode that it was given."""
        try:
            about = os.stat(self.place(key))
        except OSError:
            return False
        return about.st_mtime_ns == INPUT_NS and about.st_size == key.digest.size and about.st_mode & 0o7777 == key.mode

    def restore(self, key: Key) -> bool:
        """Whether a file has the content that it should have; if so it is given its mode and its time again."""
        place = self.place(key)
        try:
            check_file(place, key.digest)
            os.chmod(place, key.mode)
            os.utime(place, ns=(INPUT_NS, INPUT_NS))
        except (WrongContent, OSError):
            return False
        return True

    def set_aside(self, key: Key) -> str:
        """Take a file from its place; whoever has a link to it keeps it. What is left is to be discarded."""
        part = self.part()
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.place(key), part)
        return part

    def discard(self, parts: list[str]) -> None:
        """Remove what is of no use any more."""
        for part in parts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)


def check_file(path: str, digest: Digest) -> None:
    """Refuse a file that is not the content of a digest."""
    if hash_file(path) != digest:
        raise WrongContent(f"{path} is not what it is called")


def hash_file(path: str) -> Digest:
    """The digest of what is in a file; a symbolic link is not followed."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return hash_open(file)
    finally:
        os.close(file)


def hash_open(file: int) -> Digest:
    """The digest of what is in an open file, from its beginning."""
    sha, size = hashlib.sha256(), 0
    while piece := os.pread(file, _READ_BYTES, size):
        sha.update(piece)
        size += len(piece)
    return Digest(sha.hexdigest(), size)


def _key_of(where: str, name: str) -> Key:
    sha, _, size = name.rstrip("x").partition("-")
    return Key(where.rpartition("/")[0].rpartition("/")[2], Digest(sha, int(size)), name.endswith("x"))


def _is_sound(about: os.stat_result, name: str) -> bool:
    sha, _, size = name.rstrip("x").partition("-")
    is_named = len(sha) == 64 and size.isdigit() and int(size) == about.st_size
    mode = EXECUTABLE if name.endswith("x") else PLAIN
    return is_named and about.st_mode & 0o7777 == mode and about.st_mtime_ns == INPUT_NS


def _write_all(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
