"""Where exchanges are on a worker's disk: a folder for each run, and in it one for each attempt, named by its fence.

Nothing is ever renamed; what a reader is told of is what an accepted report lists. A worker does not hear when a run
has ended, so what nobody used for a while goes, and when room is short, what was not used for longest. That is always
safe: whoever misses a file says so, and it is made again. What a killed worker has left is removed by the next one.

The methods wait for the disk: they are called in threads.
"""

import contextlib
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from rota.core.decide.leases import Offer
from rota.wire.names import safe_name
from rota.wire.queries import Part, StageOutput
from rota.worker.accounts import Account
from rota.worker.runners.builds.folder import remove_tree
from rota.worker.runners.queries.parts import part_name

BYTES_MAX = 50 << 30
# A run that nobody asked about for so long is over, or will make again what it lacks.
IDLE_S = 3_600
# Also when room is short, a run that was used a moment ago stays: two would take turns in removing each other.
SPARED_S = 60

_LINK = "elsewhere"
# By this a folder that several workers share is known to be the same one, wherever it is mounted.
_NAME_FILE = ".rota-exchange"

RunKey = tuple[str, str]


class NoRoom(Exception):
    """There is no room for more files of exchanges now."""


class NotWritten(Exception):
    """An attempt has not left the files that it says it wrote."""


class Foreign(Exception):
    """An output that is not one of the run that asks for it, or not reachable from here by how workers are set up."""


class Room:
    """The folder of one attempt."""

    def __init__(self, run: RunKey, folder: str, path: str) -> None:
        self.run = run
        # As reports name it, and where it is.
        self.folder = folder
        self.path = path
        self.is_kept = False


class Exchanges:
    """The files of exchanges of one worker."""

    def __init__(
        self,
        place: Path,
        *,
        worker: str,
        shared: str = "",
        bytes_max: int = BYTES_MAX,
        run_as: Account | None = None,
    ) -> None:
        """`place` is the worker's own folder for them; `shared` one that other workers see too, used instead."""
        self._place = place
        self._shared = Path(shared) if shared else None
        self._worker = folder_name(worker)
        self._bytes_max = bytes_max
        self._run_as = run_as
        self._lock = threading.Lock()
        self._rooms: list[Room] = []
        # How much of each run was kept.
        self._kept: dict[RunKey, int] = {}
        self._base = place
        self._home = place
        self.name = ""

    @property
    def is_shared(self) -> bool:
        """Whether others read the files without asking anybody."""
        return self._shared is not None

    def open(self) -> None:
        """Make what is needed, and remove what an earlier worker has left where nobody else finds it.

        In a shared folder it stays: others may still read it.
        """
        if self._shared is not None:
            self._shared.mkdir(parents=True, exist_ok=True)
            self._base = self._shared.resolve()
            self._home = self._base / self._worker
            self._home.mkdir(mode=self._mode, exist_ok=True)
            self.name = _name_of(self._base)
            self._kept = {run: size_of(str(self._home.joinpath(*run))) for run, _ in _runs(self._home)}
            return
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._base = self._home = self._place.resolve()
        # Another one after each start, as the files are.
        self.name = f"{machine()}-{secrets.token_hex(8)}"
        link = self._home / _LINK
        if link.is_symlink():
            remove_tree(str(link.readlink()))
        remove_tree(str(self._home))
        self._home.mkdir(mode=self._mode)
        if self._run_as is not None:
            # Whom fragments run as cannot enter the worker's own folder.
            elsewhere = Path(tempfile.mkdtemp(prefix=f"rota-exchange-{os.getpid()}-"))
            link.symlink_to(elsewhere)
            elsewhere.chmod(0o711)
            self._base = self._home = elsewhere

    def close(self) -> None:
        """Remove everything, unless others can read it without us: whoever misses it has it made again."""
        if self.name and not self.is_shared:
            remove_tree(str(self._home))
            if self._home != self._place:
                (self._place / _LINK).unlink(missing_ok=True)

    @property
    def _mode(self) -> int:
        return 0o700 if self._run_as is None and self._shared is None else 0o755

    # Rooms.

    def make(self, offer: Offer) -> Room:
        """A folder for an attempt. Raises NoRoom."""
        run = (folder_name(offer.tenant), folder_name(offer.run))
        stage = offer.task_id.rpartition("[")[0] if offer.map_index >= 0 else offer.task_id
        folder = f"{run[0]}/{run[1]}/{folder_name(stage)}/t{max(0, offer.map_index)}-{offer.fence}"
        if self.is_shared:
            folder = f"{self._worker}/{folder}"
        room = Room(run, folder, f"{self._base}/{folder}")
        with self._lock:
            self._rooms.append(room)
        try:
            if self._bytes_max and self._lacking() >= 0:
                self.tidy(spared=run)
                if self._lacking() >= 0:
                    raise NoRoom(
                        f"the exchange of this worker has its {self._bytes_max >> 20:,} MB (worker.exchange_mb)"
                    )
            parent = Path(room.path).parent
            with self._lock:
                # Not while a run is being removed.
                for each in (parent.parent.parent, parent.parent, parent):
                    each.mkdir(mode=self._mode, exist_ok=True)
                Path(room.path).mkdir(0o755)
                os.utime(parent.parent)
            self._give(room.path)
        except BaseException:
            self.discard(room)
            raise
        return room

    def keep(self, room: Room, parts: tuple[Part, ...]) -> None:
        """What an attempt wrote stays, and nobody but the worker may change it. Raises NotWritten."""
        names = {part_name(part.part): part.bytes for part in parts}
        if len(names) != len(parts):
            raise NotWritten("it names a part twice")
        for entry in list(os.scandir(room.path)):
            if entry.name not in names:
                remove_tree(entry.path)
        Path(room.path).chmod(0o755)
        self._take_back(room.path)
        for name, size in names.items():
            path = f"{room.path}/{name}"
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                raise NotWritten(f"{name} is not there") from None
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size != size:
                raise NotWritten(f"{name} is not the file that it says")
            self._take_back(path)
            Path(path).chmod(0o444)
        with self._lock:
            room.is_kept = True
            self._rooms.remove(room)
            self._kept[room.run] = self._kept.get(room.run, 0) + sum(names.values())

    def discard(self, room: Room) -> None:
        """Remove what an attempt has left that came to nothing."""
        remove_tree(room.path)
        with self._lock:
            if room in self._rooms:
                self._rooms.remove(room)

    def _give(self, path: str) -> None:
        if self._run_as is not None:
            os.chown(path, self._run_as.uid, self._run_as.gid)

    def _take_back(self, path: str) -> None:
        if self._run_as is not None:
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)

    # Reading.

    def locate(self, offer: Offer, output: StageOutput) -> str | None:
        """The folder of an output if it is in reach here, else None. Raises Foreign if it is none of this run."""
        run = (folder_name(offer.tenant), folder_name(offer.run))
        steps = output.folder.split("/")
        if tuple(steps[-4:-2]) != run or len(steps) not in (4, 5) or any(step in ("", ".", "..") for step in steps):
            raise Foreign(f"an output in {output.folder!r} is not one of this run")
        if output.root != self.name:
            return None
        with contextlib.suppress(OSError):
            os.utime(f"{self._base}/{'/'.join(steps[:-2])}")
        return f"{self._base}/{output.folder}"

    def served(self, tenant: str, run: str, steps: tuple[str, ...]) -> str:
        """The path of a file that a peer asks for, of which every step is a plain name."""
        with contextlib.suppress(OSError):
            os.utime(self._home / tenant / run)
        return str(self._home.joinpath(tenant, run, *steps))

    # Limits.

    def _lacking(self) -> int:
        """By how much what is there, with what is being written, passes the limit; below 0 if it does not."""
        with self._lock:
            rooms, kept = list(self._rooms), sum(self._kept.values())
        return kept + sum(size_of(room.path) for room in rooms) - self._bytes_max

    def too_large(self) -> Room | None:
        """The attempt that has to stop because there is too much and nothing else can go: the largest."""
        if not self._bytes_max or self._lacking() <= 0:
            return None
        self.tidy()
        if self._lacking() <= 0:
            return None
        with self._lock:
            rooms = list(self._rooms)
        return max(rooms, key=lambda room: size_of(room.path), default=None)

    def tidy(self, spared: RunKey | None = None) -> None:
        """Remove runs that nobody used for long, and, when there is too much, for longest."""
        now = time.time_ns() / 1e9
        found = sorted((used_at, run) for run, used_at in _runs(self._home))
        for used_at, run in found:
            is_idle = now - used_at > IDLE_S
            if is_idle or (self._bytes_max and now - used_at > SPARED_S and run != spared and self._lacking() >= 0):
                self._remove(run)
        if self.is_shared:
            # Of workers that do not come back, too.
            for home in _folders(self._base):
                for run, used_at in _runs(home):
                    if home != self._home and now - used_at > IDLE_S:
                        remove_tree(str(home.joinpath(*run)))

    def _remove(self, run: RunKey) -> None:
        with self._lock:
            if any(room.run == run for room in self._rooms):
                return
            remove_tree(str(self._home.joinpath(*run)))
            self._kept.pop(run, None)


def _runs(home: Path) -> Iterator[tuple[RunKey, float]]:
    """The runs that a worker has files of, and when each was used last."""
    for tenant in _folders(home):
        for run in _folders(tenant):
            with contextlib.suppress(FileNotFoundError):
                yield (tenant.name, run.name), run.stat().st_mtime


def machine() -> str:
    """What is the same for all processes that reach each other over loopback, and for no others."""
    known = [Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")]
    with contextlib.suppress(OSError):
        text = f"{known[0].read_text().strip()} {known[1].readlink()}"
        return sha256(text.encode()).hexdigest()[:12]
    return "unknown"


def size_of(path: str) -> int:
    """How much is in a folder, in folders in it too."""
    size = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(path):
            with contextlib.suppress(OSError):
                is_folder = entry.is_dir(follow_symlinks=False)
                size += size_of(entry.path) if is_folder else entry.stat(follow_symlinks=False).st_size
    return size


def _folders(path: Path) -> list[Path]:
    try:
        return [each for each in path.iterdir() if each.is_dir() and not each.is_symlink()]
    except FileNotFoundError:
        return []


def folder_name(id: str) -> str:
    """An id as a name without anything that means something in an address."""
    name = safe_name(id)
    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest() if "%" in name or "~" in name else name


def _name_of(folder: Path) -> str:
    """The name of a shared folder, which whoever is first makes up."""
    file = folder / _NAME_FILE
    with contextlib.suppress(FileExistsError):
        made = folder / f"{_NAME_FILE}-{secrets.token_hex(8)}"
        made.write_text(secrets.token_hex(16))
        try:
            # A name that is there is whole.
            os.link(made, file)
        finally:
            made.unlink()
    return file.read_text().strip()
