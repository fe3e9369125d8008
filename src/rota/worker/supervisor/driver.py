"""The worker's end of the supervisor: asks for processes and logs, hears of their ends, starts another if it died."""

import asyncio
import fcntl
import os
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from msgspec import Struct

from rota.core.decide.leases import Offer
from rota.worker.accounts import Account
from rota.worker.environment import passed_on
from rota.worker.logs.driver import LogShipper
from rota.worker.supervisor import trees
from rota.worker.supervisor.patience import outlast
from rota.worker.supervisor.stream import Stream

# What one attempt may write; beyond it output is counted and dropped.
LOG_BYTES_MAX = 64 * 1024 * 1024
HAND_OVER_S = 0.01
MARK = "ROTA_SUPERVISOR"

_encode = msgspec.json.Encoder().encode


class _Said(Struct):
    """A message of the supervisor."""

    id: int
    said: str
    pid: int = 0
    error: str = ""
    status: int = 0
    oom: bool = False
    struck: bool = False
    written: int = 0
    dropped: int = 0
    tails: list[str] = []


_decode = msgspec.json.Decoder(_Said).decode


class NotStarted(Exception):
    """The program could not be run; the text says why."""


class SupervisorLost(Exception):
    """The supervisor died, and with it everything that it had started."""


class Ended(Struct, frozen=True):
    """How the first process of a tree ended; nothing of the tree is left."""

    status: int
    out_of_memory: bool
    # Whether it still ran when it was killed on our request.
    was_killed: bool


class Logged(Struct, frozen=True):
    """A log that is complete, with the end of each stream."""

    written: int
    dropped: int
    tails: tuple[str, ...]


class Child:
    """A process that the supervisor started, with whatever it starts itself."""

    def __init__(self, link: "_Link", id: int, pid: int, end: "asyncio.Future[_Said | None]") -> None:
        self.pid = pid
        self._link = link
        self._id = id
        self._end = end

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return self._end.done()

    def when_over(self, then: Callable[[], None]) -> None:
        """Have something called once nothing of it is left."""
        self._end.add_done_callback(lambda _: then())

    async def ended(self) -> Ended:
        """Wait until nothing of it is left. Raises SupervisorLost if nobody could see how it ended."""
        said = await asyncio.shield(self._end)
        if said is None:
            raise SupervisorLost
        return Ended(said.status, said.oom, said.struck)

    def ask_to_stop(self) -> None:
        """Send SIGTERM to its first process."""
        self._link.say({"do": "ask", "id": self._id})

    async def kill(self) -> None:
        """Kill it with everything it started; returns when none of it is left, however often this call is cancelled."""
        self._link.say({"do": "kill", "id": self._id})
        await outlast(self._end)


class Log:
    """A log that is being written, through pipes whose writing ends are `ends`.

    The supervisor is asked to read them only after a moment, or when there is something in them: most short attempts
    print nothing, and two more switches between processes would be a third of what they cost.
    """

    def __init__(self, link: "_Link", id: int, path: str, streams: int, bytes_max: int, logs: LogShipper) -> None:
        pipes = [os.pipe() for _ in range(streams)]
        self.ends: tuple[int, ...] = tuple(pipe[1] for pipe in pipes)
        self._reading = [pipe[0] for pipe in pipes]
        self._link = link
        self._id = id
        self._path = path
        self._logs = logs
        self._asked = {"do": "log", "id": id, "path": path, "files": streams, "bytes_max": bytes_max}
        self._end: asyncio.Future[_Said | None] | None = None
        self._timer = asyncio.get_running_loop().call_later(HAND_OVER_S, self.hand_over)

    def hand_over(self) -> "asyncio.Future[_Said | None]":
        """Have the supervisor read the pipes from now on."""
        if self._end is None:
            self._timer.cancel()
            self._end = self._link.expect_end(self._id)
            self._link.say(self._asked, self._reading)
            self._close_reading()
            self._logs.began(self._path)
        return self._end

    def _close_reading(self) -> None:
        for file in self._reading:
            os.close(file)
        self._reading.clear()

    def let_go(self) -> None:
        """Close our own copies of the writing ends, once others have theirs."""
        ends, self.ends = self.ends, ()
        for file in ends:
            os.close(file)

    async def complete(self) -> Logged:
        """Wait until everything is in the file that was written until now, whoever still holds the pipe."""
        self.let_go()
        if self._end is None and not any(_waiting_bytes(file) for file in self._reading):
            self._timer.cancel()
            self._close_reading()
            return _SILENT
        end = self.hand_over()
        if not end.done():
            self._link.say({"do": "close", "id": self._id})
        try:
            said = await outlast(end)
        finally:
            self._logs.ended(self._path)
        return _SILENT if said is None else Logged(said.written, said.dropped, tuple(said.tails))


_SILENT = Logged(0, 0, ())


def _waiting_bytes(pipe: int) -> int:
    """How much is in a pipe that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)


class Supervisor:
    """Starts the supervisor when it is first needed, and again whenever it died."""

    def __init__(
        self,
        logs: LogShipper,
        *,
        log_bytes_max: int = LOG_BYTES_MAX,
        kept_open: Sequence[int] = (),
        run_as: Account | None = None,
    ) -> None:
        """`logs` ships what attempts print. `run_as` is whom they run as, if it is not the worker's own user.

        `kept_open` are descriptors that a supervisor has open until nothing is left of what it started.
        """
        self._logs = logs
        self.run_as = run_as
        self._log_bytes_max = log_bytes_max
        self._kept_open = tuple(kept_open)
        self._link: _Link | None = None
        self._next_id = 0
        self._is_closed = False

    @property
    def pid(self) -> int:
        """The process id of the supervisor; 0 if there is none."""
        return 0 if self._link is None or self._link.is_lost else self._link.pid

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: str = "",
        files: Sequence[int] = (),
        memory_bytes_max: int = 0,
        is_exact: bool = False,
    ) -> Child:
        """Run a program with nothing but this environment; `files` become its descriptors 1, 2, 3….

        With `is_exact` not even the mark is added by which it is found should all of the supervisor be killed at once;
        then its children may outlive that. If this call is cancelled, the program is killed.
        """
        link, id = self._living(), self._new_id()
        started, end = link.expect(id), link.expect_end(id)
        who, given = self.run_as, dict(env)
        if not is_exact:
            given[MARK] = link.mark
            if who is not None:
                given["HOME"] = who.home
        program = {
            "argv": list(argv),
            "env": given,
            "cwd": cwd or (who.home if who is not None else ""),
            "memory_bytes_max": memory_bytes_max,
            "uid": -1 if who is None else who.uid,
            "gid": -1 if who is None else who.gid,
        }
        link.say({"do": "start", "id": id, "program": program, "files": len(files)}, files)
        try:
            said = await asyncio.shield(started)
        except asyncio.CancelledError:
            await outlast(link.undo(id, started, end))
            raise
        if said is None:
            raise SupervisorLost
        if said.error:
            link.forget(id)
            raise NotStarted(said.error)
        return Child(link, id, said.pid, end)

    def open_log(self, offer: Offer, streams: int = 1) -> Log:
        """Have what comes through new pipes written to the log of an attempt."""
        path = self._logs.folder.place(offer)
        log = Log(self._living(), self._new_id(), path, streams, self._log_bytes_max, self._logs)
        if self.run_as is not None:
            for end in log.ends:
                # So that /dev/stdout, which opens the pipe anew, is open to that user.
                os.fchown(end, self.run_as.uid, self.run_as.gid)
        return log

    def held_log(self, offer: Offer) -> AbstractContextManager[None]:
        """Have what is written to the log of an attempt in turns be one log."""
        return self._logs.held(self._logs.folder.place(offer))

    async def close(self) -> None:
        """Stop for good: returns when nothing that was started is left."""
        self._is_closed = True
        if self._link is not None:
            self._link.stream.close()
            self._link.lost()
            await outlast(self._link.over)

    def _living(self) -> "_Link":
        if self._is_closed:
            raise SupervisorLost
        if self._link is None or self._link.is_lost:
            self._link = _Link(self._kept_open)
        return self._link

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


class _Link:
    """One supervisor process, from its start to its end."""

    def __init__(self, kept_open: tuple[int, ...]) -> None:
        ours, theirs = socket.socketpair()
        self.mark = os.urandom(8).hex()
        self.is_lost = False
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._starts: dict[int, asyncio.Future[_Said | None]] = {}
        self._ends: dict[int, asyncio.Future[_Said | None]] = {}
        with theirs:
            words = [theirs.fileno(), os.getpid(), *kept_open]
            # In a session of its own: Ctrl-C at a terminal is for the worker, which then decides.
            self._process = subprocess.Popen(  # noqa: S603 - our own program, by our own interpreter
                [sys.executable, "-P", "-m", "rota.worker.supervisor", *map(str, words)],
                env=passed_on(),
                pass_fds=[theirs.fileno(), *kept_open],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.stream = Stream(ours, self._hear, self.lost)

    def say(self, message: dict[str, Any], files: Sequence[int] = ()) -> None:
        """Ask for something; if the supervisor is gone, every answer is None."""
        self.stream.send(_encode(message), files)

    def expect(self, id: int) -> "asyncio.Future[_Said | None]":
        """The answer to a start."""
        return self._expect(self._starts, id)

    def expect_end(self, id: int) -> "asyncio.Future[_Said | None]":
        """The end of a tree or a log."""
        return self._expect(self._ends, id)

    def _expect(self, waiting: "dict[int, asyncio.Future[_Said | None]]", id: int) -> "asyncio.Future[_Said | None]":
        future: asyncio.Future[_Said | None] = self._loop.create_future()
        if self.over.done():
            future.set_result(None)
        else:
            waiting[id] = future
        return future

    async def undo(self, id: int, started: "asyncio.Future[_Said | None]", end: "asyncio.Future[_Said | None]") -> None:
        """End what is only just being started."""
        self.say({"do": "kill", "id": id})
        said = await started
        if said is not None and not said.error:
            await end

    def forget(self, id: int) -> None:
        """What was never started does not end."""
        self._ends.pop(id, None)

    def _hear(self, frame: bytes) -> None:
        said = _decode(frame)
        waiting = self._starts if said.said in ("started", "refused") else self._ends
        future = waiting.pop(said.id, None)
        if future is not None and not future.done():
            future.set_result(said)

    def lost(self) -> None:
        """The supervisor is gone, or told to go: when nothing that it had started is left, everybody is told."""
        if not self.is_lost:
            self.is_lost = True
            exit_fd = os.pidfd_open(self.pid)
            self._loop.add_reader(exit_fd, self._exited, exit_fd)

    def _exited(self, exit_fd: int) -> None:
        self._loop.remove_reader(exit_fd)
        os.close(exit_fd)
        if self._process.wait() == 0:
            self._tell_all()
            return
        # It was killed. One of the pair has ended what they had started, unless both were killed together.
        clean = self._loop.run_in_executor(None, trees.end_marked, f"{MARK}={self.mark}")
        clean.add_done_callback(lambda _: self._tell_all())

    def _tell_all(self) -> None:
        for future in [*self._starts.values(), *self._ends.values()]:
            if not future.done():
                future.set_result(None)
        self._starts.clear()
        self._ends.clear()
        if not self.over.done():
            self.over.set_result(None)
