"""Processes that spawners start: what they find around them, and how they end.

They get little of this service's environment, because its tokens and the password of its store are in there. A process
that outlives the service would be one that nobody counts, so the kernel asks it to end when the service is gone.
"""

import asyncio
import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from rota.core.model import Pairs
from rota.worker.spawners import guard

# What a program needs to run at all.
PLAIN = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
LOGS_KEPT = 20


class Surroundings(Struct, frozen=True):
    """What spawners of one service have in common."""

    # Where those whom they start reach the coordinator.
    coordinator: str
    # Where their logs and folders go.
    folder: Path
    # The environment of this service.
    environ: Mapping[str, str]
    # How to speak to the coordinator: variables that are no secrets.
    certificates: Mapping[str, str]

    def env_of(self, names: Sequence[str], more: Mapping[str, str]) -> dict[str, str]:
        """What a child finds in its environment."""
        passed = {name: self.environ[name] for name in (*PLAIN, *names) if name in self.environ}
        return {**passed, **self.certificates, "ROTA_COORDINATOR": self.coordinator, **more}


class Process:
    """A child that is a process, with everything that stays in its group."""

    def __init__(self, process: asyncio.subprocess.Process, about: Pairs) -> None:
        self._process = process
        self._about = about

    @property
    def about(self) -> Pairs:
        """See the port."""
        return (("pid", str(self._process.pid)), *self._about)

    async def ended(self) -> str:
        """See the port."""
        code = await self._process.wait()
        # Whatever it has left behind in its group.
        self._signal(signal.SIGKILL)
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        return f"ended with code {code}" if code else ""

    async def stop(self, patience_s: float) -> None:
        """See the port."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(patience_s):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: int) -> None:
        # One that is gone needs no signal.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


async def start_process(
    words: Sequence[str], *, env: Mapping[str, str], folder: Path | None, log: Path, about: Pairs
) -> Process:
    """Start a program; what it prints goes to a file of its own. Raises OSError."""
    if shutil.which(words[0], path=env.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            # Away from the environment of whoever developed something here, and from the folder that it is started in.
            *(sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *words),
            env=dict(env),
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    return Process(process, (*about, ("log", str(log))))


def drop_old_logs(folder: Path, prefix: str) -> None:
    """Keep the newest logs of a spawner."""
    logs = sorted(folder.glob(f"{prefix}-*.log"), key=lambda path: path.stat().st_mtime_ns)
    for path in logs[:-LOGS_KEPT]:
        path.unlink(missing_ok=True)
