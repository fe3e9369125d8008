"""Large values on their way in and out of an attempt: between the blobs and files that its process can open."""

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from rota.core.decide.leases import Offer
from rota.core.ids import BlobRef
from rota.ports import BlobLost, Blobs
from rota.wire.names import attempt_name
from rota.wire.work import StoredValue, decode_value, encode_value
from rota.worker.accounts import Account

RESULTS = "results"


class InputsLost(Exception):
    """Outputs of upstream tasks that are gone, by the tasks that made them."""

    def __init__(self, tasks: tuple[str, ...], cause: str) -> None:
        super().__init__(cause)
        self.tasks = tasks


class NotMoved(Exception):
    """A value could not be fetched or stored; nobody's fault, and worth another try."""


class Parcels:
    """Files of attempts under one folder, each named by its fence.

    Where code runs as another user, that user cannot enter the worker's folder. Then the files are in a place that it
    can reach: inputs in a folder that only the worker writes, results in one that belongs to the user.
    """

    def __init__(self, blobs: Blobs, scratch: Path, run_as: Account | None = None) -> None:
        self._blobs = blobs
        self._scratch = scratch
        self._run_as = run_as
        self._folder: str | None = None

    def folder(self) -> str:
        """A folder of our own, made when it is first needed."""
        if self._folder is None:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
            prefix = f"{os.getpid()}-"
            if self._run_as is None:
                self._folder = tempfile.mkdtemp(prefix=prefix, dir=self._scratch)
            else:
                folder = Path(tempfile.mkdtemp(prefix=prefix))
                # By this it is found again if we are killed.
                (self._scratch / folder.name).symlink_to(folder)
                self._open_to(self._run_as, folder)
                self._folder = str(folder)
        return self._folder

    def _open_to(self, account: Account, folder: Path) -> None:
        folder.chmod(0o711)
        results = folder / RESULTS
        results.mkdir(0o700)
        os.chown(results, account.uid, account.gid)

    def _sweep(self) -> None:
        """Remove what workers that were killed have left here."""
        for left in self._scratch.iterdir():
            pid = left.name.partition("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                _remove(left)

    def result_file(self, offer: Offer) -> str:
        """Where an attempt puts a result that is too large to travel."""
        where = self.folder() if self._run_as is None else f"{self.folder()}/{RESULTS}"
        return f"{where}/{offer.fence}-result"

    async def publish_file(self, offer: Offer, encoding: str) -> bytes:
        """Like `publish`, what the attempt has put into its file."""
        with contextlib.closing(_Opened(self.result_file(offer), self._run_as)) as opened:
            return await self.publish(offer, encoding, opened.path)

    async def fetch(self, offer: Offer) -> dict[str, str]:
        """Copies of the large inputs, by the names of their blobs. Raises InputsLost."""
        files: dict[str, str] = {}
        try:
            for ref, _ in stored_inputs(offer):
                target = files[ref.name] = f"{self.folder()}/{offer.fence}-input-{len(files)}"
                await self._blobs.fetch(ref, Path(target))
                if self._run_as is not None:
                    Path(target).chmod(0o644)
        except BlobLost as error:
            self.discard(offer, files)
            raise _lost(offer, files, error) from error
        except BaseException as error:
            self.discard(offer, files)
            if isinstance(error, Exception):
                raise _not_moved("an input could not be fetched", error) from error
            raise
        return files

    async def open(self, offer: Offer) -> dict[str, bytes]:
        """The large inputs themselves, for code in this process. Raises InputsLost."""
        contents: dict[str, bytes] = {}
        for ref, _ in stored_inputs(offer):
            try:
                contents[ref.name] = await self._blobs.get(ref)
            except BlobLost as error:
                raise _lost(offer, {ref.name: ""}, error) from error
            except Exception as error:
                raise _not_moved("an input could not be fetched", error) from error
        return contents

    async def publish(self, offer: Offer, encoding: str, content: bytes | Path) -> bytes:
        """Store a large result under the attempt's own name; what to report. It is seen when the report is accepted."""
        place = attempt_name(offer.tenant, offer.run, offer.task_id, offer.attempt, offer.fence)
        try:
            ref = await self._blobs.put(f"{place}/result", content)
        except Exception as error:
            raise _not_moved("its result could not be stored", error) from error
        return encode_value(StoredValue(encoding, ref))

    def discard(self, offer: Offer, files: dict[str, str]) -> None:
        """Remove what was made for an attempt."""
        for path in (self.result_file(offer), *files.values()):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - on every attempt's path

    def close(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            # Of a folder elsewhere there is a link of the same name here.
            _remove(self._scratch / Path(self._folder).name)
            self._folder = None


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        shutil.rmtree(folder.readlink(), ignore_errors=True)
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


class _Opened:
    """A result's file, opened once and for all: its name may stand for another file the next time."""

    def __init__(self, path: str, owner: Account | None) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise _not_moved("its result cannot be read", error) from error
        self.path = Path(f"/proc/self/fd/{self._file}")
        found = os.fstat(self._file)
        if owner is not None and (found.st_uid != owner.uid or found.st_nlink != 1 or not stat.S_ISREG(found.st_mode)):
            # A link to a file that the worker may read, and the user may not.
            self.close()
            raise NotMoved("its result is not a file of its own")

    def close(self) -> None:
        """Close it."""
        os.close(self._file)


def stored_inputs(offer: Offer) -> list[tuple[BlobRef, str]]:
    """References among the inputs, each once, with the name of the task that made it.

    One that went on as others needs what those gave, and not what it was planned from.
    """
    found: dict[str, tuple[BlobRef, str]] = {}
    for given in [each for each in offer.inputs if each.is_grown] or offer.inputs:
        for number, result in enumerate(given.results):
            value = None if result is None else decode_value(result)
            if isinstance(value, StoredValue):
                found[value.ref.name] = (value.ref, f"{given.task}[{number}]" if given.is_group else given.task)
    return list(found.values())


def _not_moved(what: str, error: Exception) -> NotMoved:
    return NotMoved(f"{what}: {type(error).__name__}: {error}")


def _lost(offer: Offer, files: dict[str, str], error: BlobLost) -> InputsLost:
    """Only the last that was asked for is known to be lost; the others may well be there."""
    last = list(files)[-1]
    return InputsLost(tuple(task for ref, task in stored_inputs(offer) if ref.name == last), str(error))
