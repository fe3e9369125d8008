"""Large values on their way in and out of an attempt: between the blobs and files that its process can open."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from rota.core.decide.leases import Offer
from rota.core.ids import BlobRef
from rota.ports import BlobLost, Blobs
from rota.wire.names import attempt_name
from rota.wire.work import StoredValue, decode_value, encode_value


class InputsLost(Exception):
    """Outputs of upstream tasks that are gone, by the tasks that made them."""

    def __init__(self, tasks: tuple[str, ...], cause: str) -> None:
        super().__init__(cause)
        self.tasks = tasks


class NotMoved(Exception):
    """A value could not be fetched or stored; nobody's fault, and worth another try."""


class Parcels:
    """Files of attempts under one folder, each named by its fence."""

    def __init__(self, blobs: Blobs, scratch: Path) -> None:
        self._blobs = blobs
        self._scratch = scratch
        self._folder: str | None = None

    def folder(self) -> str:
        """A folder of our own, made when it is first needed."""
        if self._folder is None:
            self._scratch.mkdir(parents=True, exist_ok=True)
            self._sweep()
            self._folder = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self._scratch)
        return self._folder

    def _sweep(self) -> None:
        """Remove what workers that were killed have left here."""
        for left in self._scratch.iterdir():
            pid = left.name.partition("-")[0]
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(left, ignore_errors=True)

    def result_file(self, offer: Offer) -> str:
        """Where an attempt puts a result that is too large to travel."""
        return f"{self.folder()}/{offer.fence}-result"

    async def fetch(self, offer: Offer) -> dict[str, str]:
        """Copies of the large inputs, by the names of their blobs. Raises InputsLost."""
        files: dict[str, str] = {}
        try:
            for ref, _ in stored_inputs(offer):
                target = files[ref.name] = f"{self.folder()}/{offer.fence}-input-{len(files)}"
                await self._blobs.fetch(ref, Path(target))
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
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def stored_inputs(offer: Offer) -> list[tuple[BlobRef, str]]:
    """References among the inputs, each once, with the name of the task that made it."""
    found: dict[str, tuple[BlobRef, str]] = {}
    for given in offer.inputs:
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
