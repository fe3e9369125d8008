"""What an action has left: files, folders and links that it was asked for, with their digests.

Nothing of the action runs any more. What it made is not trusted: links may lead anywhere, names may be any bytes, files
may be no files, permissions may keep us out of what is ours.
"""

import contextlib
import os
import stat
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

from rota.core.ids import Digest
from rota.wire.reapi import remote_execution_pb2 as rx
from rota.wire.reapi.digests import as_message, digest_of
from rota.wire.reapi.limits import BLOB_BYTES_MAX, TREE_BYTES_MAX, TREE_DEPTH_MAX, TREE_PATHS_MAX
from rota.worker.runners.builds.actions import Command, Output
from rota.worker.runners.builds.content import Blob, Changed
from rota.worker.runners.builds.sandbox import INSIDE
from rota.worker.runners.builds.shelf import hash_file
from rota.worker.runners.builds.staging import is_within, resolve
from rota.worker.runners.builds.trees import Invalid, check_link

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}

T = TypeVar("T")


class Collected(Struct):
    """Outputs as a result lists them, what has to be sent for that, and files that are worth keeping."""

    files: list[rx.OutputFile] = field(default_factory=list[rx.OutputFile])
    folders: list[rx.OutputDirectory] = field(default_factory=list[rx.OutputDirectory])
    file_links: list[rx.OutputSymlink] = field(default_factory=list[rx.OutputSymlink])
    folder_links: list[rx.OutputSymlink] = field(default_factory=list[rx.OutputSymlink])
    blobs: dict[Digest, Blob] = field(default_factory=dict[Digest, Blob])
    kept: list[tuple[Digest, bool, str]] = field(default_factory=list[tuple[Digest, bool, str]])


def collect(root: str, command: Command, *, is_root: bool = False) -> Collected:
    """Look at every output; those that are not there are left out. Raises Invalid, Changed.

    `is_root` says that the action's folder was its root file system.
    """
    collector = _Collector(root, command, is_root)
    for output in command.outputs:
        try:
            collector.look(output)
        except (FileNotFoundError, NotADirectoryError):
            raise Changed(f"the output {output.name!r} vanished") from None
    return collector.found


class _Collector:
    def __init__(self, root: str, command: Command, is_root: bool) -> None:
        self._root = root
        self._is_root = is_root
        self._command = command
        self._entries = 0
        self.found = Collected()

    def look(self, output: Output) -> None:
        path = self._where(output)
        if path is None:
            return
        try:
            about = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISLNK(about.st_mode):
            link = rx.OutputSymlink(path=output.name, target=self._target(path))
            links = self.found.folder_links if self._leads_to_folder(path) else self.found.file_links
            links.append(link)
        elif stat.S_ISDIR(about.st_mode):
            self.found.folders.append(self._folder(output, path))
        else:
            digest, is_executable = self._file(path, about)
            self.found.files.append(
                rx.OutputFile(path=output.name, digest=as_message(digest), is_executable=is_executable)
            )

    def _where(self, output: Output) -> str | None:
        """Where an output really is: its parents may be links that the action made. None if it cannot be there."""
        if not output.path:
            return self._root
        parent, _, name = output.path.rpartition("/")
        place = resolve(self._root, parent, is_root=self._is_root)
        if not is_within(self._root, place):
            raise Invalid(f"its output {output.name[:200]!r} is outside of its folder, through a symbolic link")
        return f"{place}/{name}"

    def _leads_to_folder(self, path: str) -> bool:
        try:
            return os.path.isdir(resolve(self._root, self._below(path), is_root=self._is_root))
        except Invalid:  # a link that leads to itself
            return False

    def _below(self, path: str) -> str:
        return path[len(self._root) + 1 :]

    def _file(self, path: str, about: os.stat_result) -> tuple[Digest, bool]:
        kind = _KINDS.get(stat.S_IFMT(about.st_mode))
        if kind is not None:
            raise Invalid(f"its output {self._below(path)[:200]!r} is {kind}")
        if about.st_size > BLOB_BYTES_MAX:
            raise Invalid(
                f"its output {self._below(path)[:200]!r} has {about.st_size:,} bytes; the most is {BLOB_BYTES_MAX:,}"
            )
        digest = _permitted(path, lambda: hash_file(path))
        is_executable = bool(about.st_mode & stat.S_IXUSR)
        self.found.blobs.setdefault(digest, Blob(digest, path=path))
        self.found.kept.append((digest, is_executable, path))
        return digest, is_executable

    def _target(self, path: str) -> str:
        """Where a link leads, if it stays in the action's folder. An absolute one into that is made relative.

        Out of a root file system no link leads: there it is as the action made it.
        """
        target = os.readlink(path)
        below = self._below(path)
        if self._is_root:
            return _text(target, "a symbolic link in its outputs leads to")
        for root in (self._root, INSIDE):
            if is_within(root, os.path.normpath(target)):
                below_root = os.path.normpath(target)[len(root) :]
                target = os.path.relpath(f"{self._root}{below_root}", path.rpartition("/")[0])
                break
        target = _text(target, "a symbolic link in its outputs leads to")
        check_link(below, target)
        return target

    def _folder(self, output: Output, path: str) -> rx.OutputDirectory:
        children: dict[Digest, rx.Directory] = {}
        root, digest = self._directory(path, children, 1)
        listed = rx.OutputDirectory(path=output.name)
        if self._command.has_trees:
            tree = rx.Tree(root=root, children=children.values()).SerializeToString(deterministic=True)
            if len(tree) > TREE_BYTES_MAX:
                raise Invalid(f"the tree of its output {output.name[:200]!r} has more than {TREE_BYTES_MAX:,} bytes")
            listed.tree_digest.CopyFrom(as_message(self._add(tree)))
        if self._command.has_folders:
            listed.root_directory_digest.CopyFrom(as_message(digest))
            for each in (root, *children.values()):
                self._add(each.SerializeToString(deterministic=True))
        return listed

    def _directory(self, path: str, children: dict[Digest, rx.Directory], depth: int) -> tuple[rx.Directory, Digest]:
        if depth > TREE_DEPTH_MAX:
            raise Invalid(f"its outputs are deeper than {TREE_DEPTH_MAX} folders")
        message = rx.Directory()
        for entry in _permitted(path, lambda: sorted(os.scandir(path), key=_name_of), is_folder=True):
            self._entries += 1
            if self._entries > TREE_PATHS_MAX:
                raise Invalid(f"its outputs have more than {TREE_PATHS_MAX:,} entries")
            name = _text(entry.name, "its outputs have the name")
            about = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(about.st_mode):
                message.symlinks.add(name=name, target=self._target(entry.path))
            elif stat.S_ISDIR(about.st_mode):
                child, digest = self._directory(entry.path, children, depth + 1)
                children[digest] = child
                message.directories.add(name=name, digest=as_message(digest))
            else:
                digest, is_executable = self._file(entry.path, about)
                message.files.add(name=name, digest=as_message(digest), is_executable=is_executable)
        return message, digest_of(message.SerializeToString(deterministic=True))

    def _add(self, content: bytes) -> Digest:
        digest = digest_of(content)
        self.found.blobs.setdefault(digest, Blob(digest, content=content))
        return digest


def _name_of(entry: os.DirEntry[str]) -> str:
    return entry.name


def _text(name: str, what: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{what} {os.fsencode(name)[:200]!r}, which is not UTF-8") from None
    return name


def _permitted(path: str, look: Callable[[], T], *, is_folder: bool = False) -> T:
    """Look at something; if an action has forbidden that, it is allowed again first."""
    try:
        return look()
    except PermissionError:
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700 if is_folder else 0o600)
        return look()
