"""An action's folder: its inputs are links to content, its folders are its own, and its outputs have where to go."""

import errno
import os
import shutil
import stat
from collections.abc import Mapping

from rota.core.ids import Digest
from rota.worker.runners.builds.actions import Command, Output
from rota.worker.runners.builds.folder import BuildFolder, Room
from rota.worker.runners.builds.shelf import EXECUTABLE, INPUT_NS, PLAIN
from rota.worker.runners.builds.trees import Invalid, Layout

# What a file system says that has no links, or none to there, or no more of them.
_NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
# What it says about names that it cannot have.
_NO_NAME = (errno.EILSEQ, errno.ENAMETOOLONG, errno.EINVAL)
# As many as the kernel follows on one path.
LINKS_MAX = 40


def stage(
    folder: BuildFolder,
    room: Room,
    layout: Layout,
    places: Mapping[tuple[Digest, bool], str],
    command: Command,
    *,
    is_private: bool = False,
) -> None:
    """Make everything an action finds when it starts; `places` has all content but the empty one. Raises Invalid.

    Inputs are shared and not to be written to, unless they are to be private: then they are copies.
    """
    folder.make(room)
    root = room.root
    try:
        for path in layout.folders:
            _make_folder(folder, f"{root}/{path}")
        for path, digest, is_executable in layout.files:
            target = f"{root}/{path}"
            if is_private:
                _copy(folder, places[digest, is_executable] if digest.size else os.devnull, target, is_executable)
            elif digest.size:
                _link(places[digest, is_executable], target)
            else:
                _make_empty(target, EXECUTABLE if is_executable else PLAIN)
        for path, target in layout.links:
            os.symlink(target, f"{root}/{path}")
    except OSError as error:
        if error.errno in _NO_NAME:
            raise Invalid(f"its input tree has names that this machine cannot have: {error}") from None
        raise
    _check_cwd(root, command.cwd, layout.is_root)
    for output in command.outputs:
        _make_parents(folder, root, output, layout.is_root)


def _make_folder(folder: BuildFolder, path: str) -> None:
    os.mkdir(path, 0o755)
    folder.give(path)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copyfile(source, target)
        os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))
        os.utime(target, ns=(INPUT_NS, INPUT_NS))


def _copy(folder: BuildFolder, source: str, target: str, is_executable: bool) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if is_executable else 0o644)
    os.utime(target, ns=(INPUT_NS, INPUT_NS))
    folder.give(target)


def _make_empty(path: str, mode: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(file, mode)
        os.utime(file, ns=(INPUT_NS, INPUT_NS))
    finally:
        os.close(file)


def _check_cwd(root: str, cwd: str, is_root: bool) -> None:
    place = resolve(root, cwd, is_root=is_root)
    if not is_within(root, place) or not os.path.isdir(place):
        raise Invalid(f"its working directory {cwd[:200]!r} is no folder of its input tree")


def _make_parents(folder: BuildFolder, root: str, output: Output, is_root: bool) -> None:
    """The folder of an output; inputs may be links, so it is looked up where it really is."""
    parent = output.path.rpartition("/")[0]
    if not parent:
        return
    place = resolve(root, parent, is_root=is_root)
    if not is_within(root, place):
        raise Invalid(f"its output {output.name[:200]!r} is outside of the action's folder, through a symbolic link")
    missing: list[str] = []
    while not os.path.isdir(place):
        missing.append(place)
        place = place.rpartition("/")[0]
    for path in reversed(missing):
        try:
            _make_folder(folder, path)
        except FileExistsError:
            raise Invalid(f"its output {output.name[:200]!r} is below an input that is no folder") from None


def resolve(root: str, path: str, *, is_root: bool) -> str:
    """Where a path below the action's folder is when its symbolic links are followed. Nothing may run there meanwhile.

    In a root file system links are followed as its own programs follow them, and so never out of it.
    """
    if not is_root:
        return os.path.realpath(f"{root}/{path}")
    left, place = path.split("/")[::-1], [root]
    links = 0
    while left:
        part = left.pop()
        if part == "..":
            del place[max(1, len(place) - 1) :]
        elif part not in ("", "."):
            target = _target_of("/".join((*place, part)))
            if target is None:
                place.append(part)
                continue
            links += 1
            if links > LINKS_MAX:
                raise Invalid(f"{path[:200]!r} leads through more than {LINKS_MAX} symbolic links")
            if target.startswith("/"):
                del place[1:]
            left += target.split("/")[::-1]
    return "/".join(place)


def _target_of(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def is_within(root: str, path: str) -> bool:
    """Whether a path without symbolic links is the action's folder or below it."""
    return path == root or path.startswith(f"{root}/")
