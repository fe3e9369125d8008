"""Where builds happen on disk: one folder with the cache of content, what is on its way there, and a room per action.

All three are in one file system, so that inputs can be links and outputs can be moved. A room is removed when its
attempt is over; what a killed worker has left is removed by the next one.
"""

import contextlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from rota.worker.accounts import Account

_LINK = "elsewhere"


class Room:
    """One attempt's place: the action's folder, and files for what it prints. Nothing but `root` is seen inside."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.root = f"{path}/root"
        # What it prints, as open files: an action may remove their names.
        self.printed: tuple[int, int] = (-1, -1)

    def open(self) -> None:
        """Make the files for what is printed."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        out = os.open(f"{self.path}/stdout", flags, 0o600)
        self.printed = (out, -1)
        self.printed = (out, os.open(f"{self.path}/stderr", flags, 0o600))

    def close(self) -> None:
        """What was printed is gone after this."""
        for file in self.printed:
            if file >= 0:
                os.close(file)
        self.printed = (-1, -1)


class BuildFolder:
    """The folder of one worker. Nobody else works there."""

    def __init__(self, place: Path, run_as: Account | None = None) -> None:
        """`run_as` is the user that actions run as, if it is another: it cannot enter the worker's own folder."""
        self._place = place
        self._run_as = run_as
        self.home = place

    @property
    def cache(self) -> Path:
        """Content that may be used again."""
        return self.home / "cache"

    @property
    def parts(self) -> Path:
        """Content that is not whole yet."""
        return self.home / "parts"

    def open(self) -> None:
        """Make what is needed, and remove what an earlier worker has left."""
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.home = self._place.resolve()
        link = self.home / _LINK
        if link.is_symlink():
            # A folder that nobody would find again, of a worker that ran actions as another user.
            remove_tree(str(link.readlink()))
            link.unlink()
        for name in ("rooms", "parts"):
            remove_tree(str(self.home / name))
        if self._run_as is not None:
            self.home = Path(tempfile.mkdtemp(prefix=f"rota-builds-{os.getpid()}-"))
            link.symlink_to(self.home)
        for name, mode in (("rooms", 0o711), ("parts", 0o700), ("cache", 0o700)):
            (self.home / name).mkdir(mode=mode, exist_ok=True)
        if self._run_as is not None:
            self.home.chmod(0o711)

    def close(self) -> None:
        """Remove what nobody could find again."""
        if self._run_as is not None and self.home != self._place:
            remove_tree(str(self.home))
            (self._place / _LINK).unlink(missing_ok=True)

    def room(self, fence: int) -> Room:
        """The room of an attempt, which may not be there yet."""
        return Room(str(self.home / "rooms" / f"{fence:x}"))

    def make(self, room: Room) -> None:
        """Make a room; empty, whatever was there."""
        remove_tree(room.path)
        os.mkdir(room.path, 0o711)
        os.mkdir(room.root, 0o755)
        self.give(room.root)

    def give(self, path: str | int) -> None:
        """Let whom actions run as have a folder or an open file."""
        if self._run_as is not None:
            os.chown(path, self._run_as.uid, self._run_as.gid)

    def take_back(self, path: str) -> None:
        """Let nobody but the worker have a file that an action made."""
        if self._run_as is not None:
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)


def remove_tree(path: str) -> None:
    """Remove a tree whatever its permissions and however deep it is; what resists is left for the next start."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(path)
    except (OSError, RecursionError):
        _remove_flat(path)


def _remove_flat(path: str) -> None:
    """Remove a tree by moving every folder of it to its top: no path gets long, and no call gets deep."""
    # A name that nothing in the tree has, and numbers behind it.
    token, moved = secrets.token_hex(8), 0
    waiting, emptied = [path], list[str]()
    while waiting:
        folder = waiting.pop()
        emptied.append(folder)
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            for entry in list(os.scandir(folder)):
                with contextlib.suppress(OSError):
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    # A folder that may not be written to cannot be moved.
                    os.chmod(entry.path, 0o700)
                    moved += 1
                    aside = f"{path}/{token}-{moved}"
                    os.rename(entry.path, aside)
                    waiting.append(aside)
    for folder in reversed(emptied):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
