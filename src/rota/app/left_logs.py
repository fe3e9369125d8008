"""Logs that a killed worker left in its data folder, read from there as if they had been shipped to the blobs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rota.ports import BlobLost, Blobs, Listed
from rota.wire.names import END
from rota.worker.logs.folder import SUFFIX, LogFolder, read_part, size_of

LOG = "log"


class LeftLogs:
    """The chunks of logs among the blobs, each log followed by the part of it that is still a file (`LogFolder`)."""

    def __init__(self, blobs: Blobs, folder: Path) -> None:
        self._blobs = blobs
        self._root = LogFolder(folder).root

    async def list(self, prefix: str) -> list[Listed]:
        """Attempts of a task, what there is of an attempt, or the chunks of its log; see `rota.ports.Blobs`."""
        found = await self._blobs.list(prefix)
        known = {each.name for each in found}
        attempt, _, last = prefix.rpartition("/")
        if last == LOG and size_of(self._file(attempt)) >= 0:
            return [*found, *self._rest(attempt, found)]
        if size_of(self._file(prefix)) >= 0:
            return found if LOG in known else [*found, Listed(LOG, 0, is_folder=True)]
        left = sorted(path.stem for path in (self._root / prefix).glob(f"*{SUFFIX}"))
        return [*found, *(Listed(name, 0, is_folder=True) for name in left if name not in known)]

    async def read(self, name: str, offset: int, size: int) -> bytes:
        """Part of a chunk; see `rota.ports.Blobs`."""
        folder, _, chunk = name.rpartition("/")
        shipped = await self._blobs.list(folder)
        if any(each.name == chunk for each in shipped):
            return await self._blobs.read(name, offset, size)
        begin = sum(each.size for each in shipped)
        try:
            return await asyncio.to_thread(read_part, self._file(folder.rpartition("/")[0]), begin + offset, size)
        except OSError as error:
            # A worker that was started meanwhile has shipped it.
            raise BlobLost(f"{name}: {error.strerror}") from None

    def _rest(self, attempt: str, shipped: Sequence[Listed]) -> Sequence[Listed]:
        """What was not shipped, as one more chunk. It is not called the last: its worker never said so."""
        size = size_of(self._file(attempt)) - sum(each.size for each in shipped)
        is_whole = bool(shipped) and shipped[-1].name.endswith(END)
        return [] if is_whole or size <= 0 else [Listed(f"{len(shipped):06d}", size)]

    def _file(self, attempt: str) -> str:
        return f"{self._root}/{attempt}{SUFFIX}"
