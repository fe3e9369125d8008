"""A warm process: waits for calls on descriptor 3, makes them one at a time, and says how they ended.

`python -m rota.worker.runners.child`, started by the supervisor from an empty environment. Whatever user code leaves
behind (threads, processes, closed or changed streams) makes the process spent: it is not used again.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from rota.running import Cancelled, Context
from rota.wire.values import pack_or_spill, unpack_file
from rota.wire.work import StoredValue, decode_python
from rota.worker.channel import CONNECTION_LOST, Frames, send
from rota.worker.runners.calls import Call, Done, perform
from rota.worker.runners.sequels import inline_bytes_max

CHANNEL = 3
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Given(Struct, frozen=True, array_like=True):
    """An input, as `rota.core.decide.leases.Input` is written."""

    task: str
    results: tuple[bytes | None, ...]
    is_group: bool = False
    is_grown: bool = False


class Request(Struct, frozen=True, array_like=True):
    """An attempt to make. One open file comes along: its log."""

    tenant: str
    run: str
    task: str
    attempt: int
    fence: int
    deadline_at: int | None
    work: bytes
    params: bytes
    inputs: tuple[Given, ...]
    # Where the worker has put inputs that were too large to travel, by their names.
    stored: dict[str, str]
    result_file: str
    workflow: str
    version: int
    logical_at: int
    map_index: int
    first_started_at: int
    # The folder of the bundle with its code, if it has one; always the same in one process.
    code: str = ""


_decode = msgspec.msgpack.Decoder(Request).decode
_encode = msgspec.msgpack.Encoder().encode


class Process:
    """This process and how it was before any user code ran in it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.env = dict(os.environ)
        self.cwd = str(Path.cwd())
        self.nothing = os.open(os.devnull, os.O_RDWR)
        self.statm = os.open("/proc/self/statm", os.O_RDONLY)
        self.started_bytes = self.memory_bytes()

    def enter(self, request: Request, log: int) -> None:
        """Send output to the attempt's log, and say in the environment which attempt it is."""
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self._set("ROTA_TENANT", request.tenant)
        self._set("ROTA_RUN", request.run)
        self._set("ROTA_TASK", request.task)
        self._set("ROTA_ATTEMPT", str(request.attempt))
        self._set("ROTA_FENCE", str(request.fence))
        if request.code:
            self._set("ROTA_BUNDLE", request.code)

    def _set(self, name: str, value: str) -> None:
        if self.env.get(name) != value:
            os.environ[name] = self.env[name] = value

    def memory_bytes(self) -> int:
        """How much memory this process occupies."""
        return int(os.pread(self.statm, 128, 0).split()[1]) * _PAGE_BYTES

    def stop_copies(self) -> None:
        """End here if this is a copy that user code forked and that came back: it is not the one that was asked."""
        if os.getpid() != self.pid:
            sys.stdout.flush()
            os._exit(0)

    def log_failure(self, text: str) -> None:
        """Write to the attempt's log, below everything that was printed, whatever was done to the streams."""
        self.stop_copies()
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with contextlib.suppress(Exception):  # user code may have put anything there
                cast(TextIOWrapper, stream).flush()
        left = memoryview(f"{text}\n".encode(errors="backslashreplace"))
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(2, left) :]

    def leave(self) -> bool:
        """Put things back as they were; whether that is not possible."""
        is_spent = sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        for stream in (sys.__stdout__, sys.__stderr__):
            try:
                assert stream is not None, "the interpreter was started with both streams"
                stream.flush()
            except (OSError, ValueError):
                is_spent = True
        os.dup2(self.nothing, 1)
        os.dup2(self.nothing, 2)
        if os.environ != self.env:
            os.environ.clear()
            os.environ.update(self.env)
        with contextlib.suppress(OSError):
            os.chdir(self.cwd)
        # A forgotten alarm would kill the next attempt, and a request to stop would pass it by.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return is_spent or has_threads() or has_children()


def has_threads() -> bool:
    """Whether somebody else is still at work in this process, and could write to the next attempt's log."""
    return threading.active_count() > 1


def has_children() -> bool:
    """Whether a process is left that user code started, directly or not: we are its subreaper."""
    try:
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True
    except ChildProcessError:
        return False


def watch(cancelled: Cancelled) -> None:
    """From now on a request to stop is passed on. Until then it ends the process: nobody would hear of it."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("take context().cancelled in the task's own thread first, and give it to the others")
    signal.signal(signal.SIGTERM, cancelled.set)


def make(process: Process, request: Request, log: int) -> Done:
    """One attempt."""
    process.enter(request, log)
    work = decode_python(request.work)
    # What is our own is not looked for in a bundle, and finds nothing there that it imports.
    if request.code and request.code not in sys.path and not work.function.startswith("rota."):
        sys.path.insert(0, request.code)
        # Others read the same folder.
        sys.dont_write_bytecode = True

    def open_stored(value: StoredValue) -> Any:
        return unpack_file(value.encoding, Path(request.stored[value.ref.name]), trusted=True)

    is_shared = not work.is_preparing and (bool(work.maps) or request.map_index >= 0)
    bytes_max = inline_bytes_max(is_shared=is_shared)

    def keep(value: object, what: str) -> tuple[str, bytes | None]:
        process.stop_copies()
        return pack_or_spill(value, what, request.result_file, bytes_max)

    context = Context(
        tenant=request.tenant,
        run=request.run,
        task=request.task,
        attempt=request.attempt,
        fence=request.fence,
        workflow=request.workflow,
        version=request.version,
        map_index=request.map_index,
        logical_at=request.logical_at,
        deadline_at=request.deadline_at,
        packed=request.params,
        zone=work.zone,
        watch=watch,
        may_grow=work.may_grow,
    )
    call = Call(
        work,
        context,
        request.inputs,
        open_stored,
        keep,
        True,
        request.first_started_at,
        log_failure=process.log_failure,
    )
    done = perform(call)
    process.stop_copies()
    done.is_spent |= process.leave()
    done.grown_bytes = process.memory_bytes() - process.started_bytes
    return done


def main() -> int:
    """Serve until the worker hangs up."""
    channel = socket.socket(fileno=os.dup(CHANNEL))
    os.close(CHANNEL)
    for stream in (sys.stdout, sys.stderr):
        # What was printed must be in the log when the process is killed a moment later.
        cast(TextIOWrapper, stream).reconfigure(line_buffering=True, errors="backslashreplace")
    process = Process()
    frames = Frames()
    os.dup2(process.nothing, 1)
    os.dup2(process.nothing, 2)
    try:
        while (received := frames.receive(channel)) is not None:
            for frame in received:
                (log,) = frames.take_files(1)
                send(channel, _encode(make(process, _decode(frame), log)))
    except OSError:
        return CONNECTION_LOST
    return 0


if __name__ == "__main__":
    sys.exit(main())
