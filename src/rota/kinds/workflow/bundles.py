"""Which files go with workflows: all of a folder that may belong to its code, or a file and what it imports beside it.

Nothing is run to find that out. What is read here is what is compiled and what workers get, so a file that changes
meanwhile cannot be one thing here and another there.
"""

import ast
import os
import stat
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from msgspec import Struct

from rota.core.bounds import BUNDLE_FILES_MAX, BUNDLE_PACKED_BYTES_MAX
from rota.core.errors import Refused
from rota.kinds.workflow.dependencies import imported_modules, module_files
from rota.wire.bundles import BundleFile, check_member

IGNORE_FILE = ".rotaignore"
# Never part of anybody's code; what begins with a dot is not either.
_LEFT_OUT = ("__pycache__", "node_modules")
_COMPILED = (".pyc", ".pyo")
# What is in every virtual environment, and in every data folder of ours, whatever they are called.
_MARKS = ("pyvenv.cfg", "rota.db")


class Sources(Struct, frozen=True):
    """What goes into a bundle: the folder it was read from, its files, and those of them that may define workflows."""

    root: Path
    files: tuple[BundleFile, ...]
    candidates: tuple[str, ...]


def gather(path: Path) -> Sources:
    """The files for a path: a Python file, or a folder."""
    if path.is_dir():
        return _gather_folder(path)
    if not path.exists():
        raise Refused("field.value", f"there is no file or folder {path}", path="PATH")
    if path.suffix != ".py":
        raise Refused("field.value", f"{path} is not a Python file", "Give a file that ends in .py, or a folder.")
    reader = _Reader(path.resolve().parent)
    name = path.resolve().name
    _follow_imports(reader, name)
    return Sources(reader.root, tuple(reader.files.values()), (name,))


def _gather_folder(path: Path) -> Sources:
    reader = _Reader(path.resolve())
    patterns = _patterns(reader.root / IGNORE_FILE)
    for name in _walk(reader.root, PurePosixPath(), patterns, (reader.root,)):
        reader.read(name)
    candidates = [name for name, file in reader.files.items() if name.endswith(".py") and mentions_rota(file.content)]
    return Sources(reader.root, tuple(reader.files.values()), tuple(sorted(candidates)))


class _Reader:
    """Reads files below a root, as many and as large as a bundle may have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, BundleFile] = {}
        self._bytes = 0

    def read(self, name: str) -> BundleFile:
        """One file, with what it holds now."""
        path = self.root / name
        check_member(name)
        try:
            real = path.resolve(strict=True)
            found = real.stat()
        except (OSError, RuntimeError) as error:
            raise _unusable(path, f"it cannot be found: {_reason(error)}") from None
        if not real.is_relative_to(self.root):
            raise _unusable(path, f"it leads out of {self.root}, to {real}")
        if not stat.S_ISREG(found.st_mode):
            raise _unusable(path, "it is not a plain file")
        if self._bytes + found.st_size > BUNDLE_PACKED_BYTES_MAX:
            text = f"with {name} ({found.st_size:,} bytes) the files below {self.root} have more than"
            hint = f"Name what the code does not need in {IGNORE_FILE}."
            raise Refused("bundle.size", f"{text} {BUNDLE_PACKED_BYTES_MAX:,} bytes", hint, path=name)
        if len(self.files) >= BUNDLE_FILES_MAX:
            hint = f"Name what the code does not need in {IGNORE_FILE}."
            raise Refused("bundle.size", f"there are more than {BUNDLE_FILES_MAX:,} files below {self.root}", hint)
        try:
            with real.open("rb") as opened:
                content = opened.read(found.st_size + 1)
        except OSError as error:
            raise _unusable(path, f"it cannot be read: {_reason(error)}") from None
        if len(content) > found.st_size:
            raise _unusable(path, "it grows while it is read")
        self._bytes += len(content)
        file = self.files[name] = BundleFile(name, content, bool(found.st_mode & stat.S_IXUSR))
        return file


def _walk(root: Path, below: PurePosixPath, patterns: list[str], inside: tuple[Path, ...]) -> Iterator[str]:
    """The names of files in a folder, in order, without what is left out."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except OSError as error:
        raise _unusable(root / below, f"this folder cannot be read: {_reason(error)}") from None
    for entry in entries:
        name = below / entry.name
        if entry.name.startswith(".") or entry.name in _LEFT_OUT or entry.name.endswith(_COMPILED):
            continue
        is_folder = entry.is_dir()
        if _is_ignored(name, patterns, is_folder=is_folder):
            continue
        if not is_folder:
            yield str(name)
        elif not any((root / name / mark).exists() for mark in _MARKS):
            real = (root / name).resolve()
            if not real.is_relative_to(root):
                raise _unusable(root / name, f"it leads out of {root}, to {real}")
            if real in inside:
                raise _unusable(root / name, "it leads back into itself")
            yield from _walk(root, name, patterns, (*inside, real))


def _patterns(path: Path) -> list[str]:
    """What a folder's list of ignored files says, a pattern in each line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, f"it cannot be read: {error}") from None
    found: list[str] = []
    for number, line in enumerate(lines, 1):
        pattern = line.strip()
        if pattern.startswith("!"):
            text = f"line {number} of {path} takes something in again, which is not done here"
            raise Refused("bundle.file", text, "Name what is left out, and nothing else.", path=IGNORE_FILE)
        if pattern and not pattern.startswith("#"):
            found.append(pattern)
    return found


def _is_ignored(name: PurePosixPath, patterns: list[str], *, is_folder: bool) -> bool:
    """As .gitignore has it: a pattern with a slash inside is about the whole path, one without about any part of it."""
    for pattern in patterns:
        if pattern.endswith("/") and not is_folder:
            continue
        wanted = pattern.rstrip("/")
        subject = str(name) if "/" in wanted else name.name
        if fnmatchcase(subject, wanted.lstrip("/")):
            return True
    return False


def mentions_rota(content: bytes) -> bool:
    """Whether a file imports Rota; one that cannot be parsed does if it has the word in it."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return b"rota" in content
    return any(name.partition(".")[0] == "rota" for name in imported_modules(tree, ""))


def _follow_imports(reader: _Reader, first: str) -> None:
    """Read a file, and the modules beside it that it imports, and theirs."""
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in reader.files:
            continue
        file = reader.read(name)
        try:
            tree = ast.parse(file.content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # It is reported when it is compiled.
            continue
        package = ".".join(PurePosixPath(name).parts[:-1])
        for module in imported_modules(tree, package):
            waiting += module_files(module, lambda each: (reader.root / each).is_file())


def _unusable(path: Path, why: str) -> Refused:
    return Refused(
        "bundle.file", f"{path} cannot be put into a bundle: {why}", f"Remove it, or name it in {IGNORE_FILE}."
    )


def _reason(error: OSError | RuntimeError) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
