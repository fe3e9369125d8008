"""Starting a process from nothing: a session, an environment and files that were given on purpose, walls and limits."""

import contextlib
import fcntl
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

from rota.worker.supervisor import confinement, trees

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


class Program:
    """What to run, how and as whom; a user of -1 is the supervisor's own."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, memory_bytes_max: int, uid: int, gid: int
    ) -> None:
        self.argv = list(argv)
        self.env = dict(env)
        self.cwd = cwd
        self.memory_bytes_max = memory_bytes_max
        self.uid = uid
        self.gid = gid


def spawn(program: Program, files: Sequence[int]) -> int:
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
        _become(program, files, parent, tell)
    os.close(tell)
    with os.fdopen(told, "rb") as pipe:
        trouble = pipe.read()
    if trouble:
        os.waitpid(pid, 0)
        raise NotStarted(trouble.decode(errors="replace"))
    return pid


def _become(program: Program, files: Sequence[int], parent: int, tell: int) -> NoReturn:
    """Between fork and exec. Whatever goes wrong is told through the pipe, which closes by itself if all goes well."""
    doing = "be set up"
    try:
        os.setsid()
        trees.become_subreaper()
        signal.set_wakeup_fd(-1)
        for number in _CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        _be_first_to_go()
        resource.setrlimit(resource.RLIMIT_NOFILE, _FILES)
        if program.memory_bytes_max:
            resource.setrlimit(resource.RLIMIT_AS, (program.memory_bytes_max, program.memory_bytes_max))
        nothing = os.open(os.devnull, os.O_RDWR)
        # First out of the way of the numbers they are to get.
        held = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL_TARGETS) for file in (nothing, *files)]
        for target, file in enumerate(held):
            os.dup2(file, target, inheritable=True)
        if program.uid >= 0:
            doing = f"become user {program.uid}"
            confinement.become(program.uid, program.gid)
        confinement.confine()
        # After the change of user, which would undo it.
        trees.die_with_parent(parent)
        if program.cwd:
            doing = f"enter the folder {program.cwd!r}"
            os.chdir(program.cwd)
        doing = f"run {program.argv[0]!r}"
        os.execvpe(program.argv[0], program.argv, program.env)  # noqa: S606 - running what was asked for is the job
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(tell, f"could not {doing}: {error}".encode())
    os._exit(127)


def _be_first_to_go() -> None:
    try:
        _offer_to_the_kernel()
    except PermissionError:
        # What is hidden belongs to root until it runs another program, also to itself.
        confinement.hide_process(is_hidden=False)
        with contextlib.suppress(OSError):
            _offer_to_the_kernel()
        confinement.hide_process()
    except OSError:
        pass


def _offer_to_the_kernel() -> None:
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - pathlib costs a third of the start
        file.write(str(OOM_SCORE))
