"""Ships logs to the blobs while they grow, so that they can be read wherever their attempt runs.

A log becomes numbered blobs under its attempt's name. The last one is called `…-end`, which is how a reader knows that
it has seen everything. What could not be stored stays in the worker's folder and is tried again, by the next worker of
that folder if need be; only what has been stored is removed.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rota.ports import Blobs
from rota.wire.names import END, chunk_name
from rota.worker.logs.folder import LogFolder, read_part, size_of

CHUNK_BYTES_MAX = 1024 * 1024
# A log is looked at twice a second at first, and less and less often as it gets older: an hour of talking makes some
# 400 chunks. One that is still empty is looked for a little more often than that, since its first line is waited for.
LOOK_S_MIN = 0.5
LOOK_S_MAX = 10.0
LOOK_FOR_S_MAX = 2.0
LOOKS_PER_AGE = 20
RETRY_S_MIN = 1.0
RETRY_S_MAX = 60.0
SHIPPED_AT_ONCE = 4


class _Log:
    """One log, and how far it has been shipped."""

    def __init__(self, path: str, now: float) -> None:
        self.path = path
        self.since = now
        self.has_begun = False
        self.has_ended = False
        self.number = 0
        self.sent = 0
        # Name and size of a chunk whose storing failed: perhaps it was stored, so the next try must be the same.
        self.pending: tuple[str, int] | None = None
        # Left behind by another worker; how much of it was shipped is not known yet.
        self.is_left = False
        self.failures = 0
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


def ignore(trouble: str) -> None:
    """Nobody wants to know."""


class LogShipper:
    """Ships the logs of one worker's folder."""

    def __init__(self, blobs: Blobs, folder: LogFolder, complain: Callable[[str], None] = ignore) -> None:
        """`complain` hears of logs that cannot be written, or cannot be stored for the time being, once for each."""
        self.folder = folder
        self._blobs = blobs
        self._complain = complain
        self._logs: dict[str, _Log] = {}
        self._held: dict[str, None] = {}
        self._gate = asyncio.Semaphore(SHIPPED_AT_ONCE)
        self._shipped = asyncio.Event()
        self._is_closed = False

    def start(self) -> None:
        """Ship what an earlier worker has left in the folder. Nobody else may be at work there any more."""
        for path in self.folder.left():
            log = self._logs[path] = _Log(path, self._now())
            log.has_ended = log.is_left = True
            self._look(log)

    def began(self, path: str) -> None:
        """Something may be in a log from now on."""
        if path in self._held and path in self._logs:
            return
        log = self._logs[path] = _Log(path, self._now())
        self._look_later(log, LOOK_S_MIN)

    def ended(self, path: str) -> None:
        """Nothing more will be written to a log. It is shipped in the background."""
        log = self._logs.get(path)
        if log is None or log.has_ended or path in self._held:
            return
        log.has_ended = True
        if size_of(path) < 0:
            self._forget(log)
        else:
            self._look(log)

    @contextmanager
    def held(self, path: str) -> Generator[None]:
        """What several write to in turn is one log: it has not ended before this has."""
        self._held[path] = None
        try:
            yield
        finally:
            del self._held[path]
            self.ended(path)

    def write(self, path: str, text: str) -> None:
        """The whole log of an attempt that has no process. The attempt counts, whether or not there is room for it."""
        try:
            self.folder.append(path, text)
        except OSError as error:
            self._complain(f"the log {path} cannot be written: {error.strerror}")
        self.began(path)
        self.ended(path)

    async def settled(self) -> None:
        """Wait until the logs of all attempts that have ended are shipped."""
        while any(log.has_ended for log in self._logs.values()):
            self._shipped.clear()
            await self._shipped.wait()

    async def close(self, within_s: float) -> None:
        """Ship what can be shipped in time; the rest stays for the next worker of the folder."""
        for log in self._logs.values():
            # Also those that wait for another try.
            self._look(log)
        try:
            async with asyncio.timeout(within_s):
                await self.settled()
        except TimeoutError:
            pass
        self._is_closed = True
        tasks: list[asyncio.Task[None]] = []
        for log in self._logs.values():
            if log.timer is not None:
                log.timer.cancel()
            if log.task is not None:
                log.task.cancel()
                tasks.append(log.task)
        await asyncio.gather(*tasks, return_exceptions=True)

    # One log.

    def _look(self, log: _Log) -> None:
        if log.timer is not None:
            log.timer.cancel()
            log.timer = None
        if log.task is not None or self._is_closed:
            return
        if log.has_ended or size_of(log.path) > log.sent:
            log.task = asyncio.get_running_loop().create_task(self._ship(log))
        else:
            self._look_later(log, self._pause_s(log))

    def _look_later(self, log: _Log, delay_s: float) -> None:
        log.timer = asyncio.get_running_loop().call_later(delay_s, self._look, log)

    def _pause_s(self, log: _Log) -> float:
        most = LOOK_S_MAX if log.has_begun else LOOK_FOR_S_MAX
        return min(most, max(LOOK_S_MIN, (self._now() - log.since) / LOOKS_PER_AGE))

    async def _ship(self, log: _Log) -> None:
        try:
            async with self._gate:
                is_done = (log.is_left and await self._take_over(log)) or await self._ship_chunks(log)
        except Exception as error:  # whatever the blobs or the disk have against it may pass
            log.task = None
            if not log.failures:
                self._complain(f"the log {log.path} cannot be stored yet: {type(error).__name__}: {error}")
            self._look_later(log, min(RETRY_S_MAX, RETRY_S_MIN * (1 << min(log.failures, 10))))
            log.failures += 1
            return
        log.task, log.failures = None, 0
        if is_done:
            self.folder.remove(log.path)
            self._forget(log)
        elif log.has_ended:
            self._look(log)
        else:
            self._look_later(log, self._pause_s(log))

    async def _take_over(self, log: _Log) -> bool:
        """Find out how far another worker has come with a log; whether it was done."""
        listed = await self._blobs.list(f"{self.folder.name_of(log.path)}/log")
        log.number = len(listed)
        log.sent = sum(chunk.size for chunk in listed)
        log.is_left = False
        return bool(listed) and listed[-1].name.endswith(END)

    async def _ship_chunks(self, log: _Log) -> bool:
        """Ship what there is; whether that was the end."""
        while True:
            if log.pending is None:
                has_ended = log.has_ended
                size = max(0, size_of(log.path) - log.sent)
                is_last = has_ended and size <= CHUNK_BYTES_MAX
                if not size and not is_last:
                    return False
                chunk = chunk_name(self.folder.name_of(log.path), log.number, is_last=is_last)
                log.pending = (chunk, min(size, CHUNK_BYTES_MAX))
            name, size = log.pending
            piece = await asyncio.to_thread(read_part, log.path, log.sent, size) if size else b""
            # Waiting for the disk would cost more than all the rest; a loss of power may take the newest chunks.
            await self._blobs.put(name, piece, is_durable=False)
            if not log.has_begun:
                log.has_begun, log.since = True, self._now()
            log.number += 1
            log.sent += size
            log.pending = None
            if name.endswith(END):
                return True
            if size < CHUNK_BYTES_MAX and not log.has_ended:
                return False

    def _forget(self, log: _Log) -> None:
        if log.timer is not None:
            log.timer.cancel()
        self._logs.pop(log.path, None)
        self._shipped.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
