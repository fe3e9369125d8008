"""Compiling: a process that imports what somebody wrote, and says what workflows are in it.

`python -P -m rota.kinds.workflow.compiling`, started by `rota.kinds.workflow.deployment` with an environment of its
own. It reads a `Job` from stdin and writes a `Compilation` to stdout. It runs nobody's code itself: each file gets a
copy of this process, with limits on time and memory, which is killed with everything it started when it has answered
or its time is over. When stdin is closed, nobody waits any more: everything ends.
"""

import ctypes
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path

import msgspec

from rota.kinds.workflow.loading import compile_file
from rota.wire.deployments import Broken, Compilation, Job, decode_compilation, decode_job, encode

LENGTH_BYTES = 4
# What one file's workflows may take, as they are deployed.
ANSWER_BYTES_MAX = 48 * 1024 * 1024
# A file that is out of time is told so, and says where it was; one that does not listen is killed after so long.
LAST_WORD_S = 1.0
_PR_SET_CHILD_SUBREAPER = 36
_PIECE_BYTES = 1 << 20


class GivenUp(Exception):
    """Whoever asked has gone."""


def main() -> int:
    """Serve one job."""
    answers = os.dup(1)
    # Whatever is printed from here on is not an answer.
    os.dup2(2, 1)
    leash = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(answers, False)
    os.set_inheritable(leash, False)
    # What user code leaves behind becomes ours, wherever it went.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        job = decode_job(_read_exactly(leash, int.from_bytes(_read_exactly(leash, LENGTH_BYTES), "big")))
        done = [_compile(job, file, (answers, leash)) for file in job.files]
    except GivenUp:
        return 1
    finally:
        _end_children()
    found = Compilation(
        workflows=tuple(workflow for each in done for workflow in each.workflows),
        broken=tuple(broken for each in done for broken in each.broken),
    )
    with open(answers, "wb") as out:  # noqa: PTH123 - it is a descriptor
        out.write(encode(found))
    return 0


def _read_exactly(fd: int, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = os.read(fd, size - len(content))
        if not piece:
            raise GivenUp
        content += piece
    return content


def _compile(job: Job, file: str, ours: tuple[int, ...]) -> Compilation:
    """Have one file compiled by a copy of this process, and see to it that nothing is left of that."""
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (*ours, heard):
            os.close(fd)
        _work(job, file, said)
    os.close(said)
    # By its end, and not by that of the pipe, which something that it started may hold open.
    ended = os.pidfd_open(pid)
    try:
        content = _listen(heard, ended, ours[1], job.timeout_s + LAST_WORD_S)
    finally:
        os.close(heard)
        os.close(ended)
        status = _end_children(pid)
    if isinstance(content, str):
        return Compilation(broken=(Broken(file=file, error=content.format(timeout_s=job.timeout_s)),))
    try:
        return decode_compilation(content)
    except msgspec.MsgspecError:
        return Compilation(broken=(Broken(file=file, error=f"{_ending(status)} while it was loaded"),))


def _listen(heard: int, ended: int, leash: int, patience_s: float) -> bytes | str:
    """What the copy says, or what is wrong with it."""
    give_up_at = time.monotonic() + patience_s
    pieces: list[bytes] = []
    size = 0
    while True:
        ready, _, _ = select.select((heard, ended, leash), (), (), max(0, give_up_at - time.monotonic()))
        if leash in ready:
            raise GivenUp
        if ready == [ended]:
            return b"".join(pieces)
        if not ready:
            return "loading it took longer than {timeout_s:g} s; it was killed with everything it started"
        piece = os.read(heard, _PIECE_BYTES)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            return f"its workflows take more than {ANSWER_BYTES_MAX:,} bytes; arguments of tasks are no place for data"


def _end_children(first: int = 0) -> int:
    """Kill whatever is left of a copy, wherever it went; how the copy itself ended."""
    status = 0
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := children.read_text().split():
        for pid in pids:
            os.kill(int(pid), signal.SIGKILL)
        for _ in pids:
            pid, how = os.waitpid(-1, 0)
            status = how if pid == first else status
    return status


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process ended by itself with code {code}"


def _work(job: Job, file: str, said: int) -> None:
    """In the copy: compile, answer, and end without anything that user code may have asked for at the end."""
    code = 1
    own = os.getpid()
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if job.memory_bytes_max:
            resource.setrlimit(resource.RLIMIT_AS, (job.memory_bytes_max, job.memory_bytes_max))
        answer = encode(compile_file(job, file))
        if os.getpid() != own:
            # A copy that user code has made, and that came back.
            return
        sys.stdout.flush()
        sys.stderr.flush()
        with open(said, "wb") as out:
            out.write(answer)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
