"""Starting a process from nothing: its own session, an environment and files that were given on purpose, limits."""

import contextlib
import fcntl
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

from rota.worker.supervisor import trees

# The kernel's own choice of whom to kill for memory should be an attempt, and never the worker or the supervisor.
OOM_SCORE = 500
_ABOVE_ALL_TARGETS = 64
# What Python or the supervisor ignores must not be ignored by the program: ignoring outlives exec.
_CHANGED_SIGNALS = (
    signal.SIGCHLD,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGXFSZ,
)
# How many files a program may open: as many as if it had been started by the worker. The supervisor itself needs more.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)


def allow_many_files() -> None:
    """For this process: two or three files for each attempt at once."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES[1], _FILES[1]))


class NotStarted(Exception):
    """The program could not be run."""


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, files: Sequence[int], memory_bytes_max: int) -> int:
    """Run a program; the process id. `files` become its descriptors 1, 2, 3…, and 0 is empty.

    Returns when the program runs, so that a name that does not exist is told from a program that failed.
    """
    parent = os.getpid()
    told, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if pid == 0:
        _become(argv, env, cwd, files, memory_bytes_max, parent, tell)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        trouble = pipe.read()
    if trouble:
        os.waitpid(pid, 0)
        raise NotStarted(trouble.decode(errors="replace"))
    return pid


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    files: Sequence[int],
    memory_bytes_max: int,
    parent: int,
    tell: int,
) -> NoReturn:
    """Between fork and exec. Whatever goes wrong is told through the pipe, which closes by itself if all goes well."""
    doing = "be set up"
    try:
        trees.die_with_parent(parent)
        os.setsid()
        trees.become_subreaper()
        signal.set_wakeup_fd(-1)
        for number in _CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - pathlib costs a third of the start
            file.write(str(OOM_SCORE))
        resource.setrlimit(resource.RLIMIT_NOFILE, _FILES)
        if memory_bytes_max:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes_max, memory_bytes_max))
        nothing = os.open(os.devnull, os.O_RDWR)
        # First out of the way of the numbers they are to get.
        held = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL_TARGETS) for file in (nothing, *files)]
        for target, file in enumerate(held):
            os.dup2(file, target, inheritable=True)
        if cwd:
            doing = f"enter the folder {cwd!r}"
            os.chdir(cwd)
        doing = f"run {argv[0]!r}"
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - running what was asked for is the job
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(tell, f"could not {doing}: {error}".encode())
    os._exit(127)
