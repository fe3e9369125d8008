"""Workers that are started as processes of their own on this machine: `rota worker`, with a folder and a file each.

Folders have numbers, so that a worker that comes after another one in the same folder ships the logs that were left.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rota.config.spawners import SpawnerSettings
from rota.core.model import Capacity
from rota.ports import Wanted
from rota.worker.spawners.processes import Process, Surroundings, start_process

SETTINGS_FILE = "rota.json5"
COMMAND = (sys.executable, "-m", "rota", "worker")


class WorkerSpawner:
    """Starts workers as one table of the settings says."""

    def __init__(
        self,
        settings: SpawnerSettings,
        around: Surroundings,
        capacity: Capacity,
        table: Mapping[str, object],
        secrets: Callable[[], Mapping[str, str]],
    ) -> None:
        """`table` is what its file of settings says of a worker, `secrets` what is in its environment only."""
        self.settings = settings
        self._around = around
        self._capacity = capacity
        self._table = table
        self._secrets = secrets
        self._busy: dict[int, None] = {}

    @property
    def name(self) -> str:
        """See the port."""
        return self.settings.name

    def offer(self, wanted: Wanted) -> Capacity:
        """See the port."""
        return self._capacity

    async def start(self, wanted: Wanted) -> "NumberedProcess":
        """See the port."""
        number = next(each for each in range(1, self.settings.max_alive + 1) if each not in self._busy)
        self._busy[number] = None
        name = f"{self.name}-{number}"
        folder = self._around.folder / name
        try:
            words = [*COMMAND, f"--config={self._write(folder, name)}"]
            process = await start_process(
                words,
                env=self._around.env_of((), self._secrets()),
                folder=folder,
                log=self._around.folder / f"{name}.log",
                about=(("worker", name),),
            )
        except BaseException:
            del self._busy[number]
            raise
        return NumberedProcess(process, lambda: self._busy.pop(number, None))

    def _write(self, folder: Path, name: str) -> Path:
        """The file of settings of one worker. Tables cannot be said in a variable."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / SETTINGS_FILE
        table = {**self._table, "name": name, "data": str(folder / "worker")}
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode({"worker": table}))
        return path


class NumberedProcess:
    """A process whose number is free again when it has ended."""

    def __init__(self, process: Process, free: Callable[[], object]) -> None:
        self._process = process
        self._free = free
        self.about = process.about
        self.stop = process.stop

    async def ended(self) -> str:
        """See the port."""
        try:
            return await self._process.ended()
        finally:
            self._free()
