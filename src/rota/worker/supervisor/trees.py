"""Process trees: keeping them together, and killing them to the last.

Every attempt's first process is a *subreaper*: whoever below it loses its parent becomes its child, however often it
forked and whatever session it moved to. When that process dies, all of them become children of the supervisor, which is
a subreaper too. So a child that the supervisor did not start belongs to a tree whose root is dead, and may be killed;
and when the supervisor has no such child left, none of those trees is left.
"""

import contextlib
import ctypes
import os
import select
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    """Ask the kernel for something about this process."""
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def become_subreaper() -> None:
    """From now on orphans among our descendants become our children. Kept across exec, not given to children."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Be killed when the process that started this one dies. Kept across exec, not given to children."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def children() -> list[int]:
    """The processes whose parent this one is, ended ones included.

    The kernel's list is complete here: only a reaped child leaves it, and nobody but the caller reaps.
    """
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:  # noqa: PTH123 - pathlib costs a third of the start
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return [pid for pid in processes() if parent_of(pid) == me]


def processes() -> list[int]:
    """Every process there is."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib costs a third of the start


def parent_of(pid: int) -> int:
    """Whose child a process is; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs a third of the start
            # The name in parentheses may itself hold spaces and parentheses.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def strike(pid: int) -> None:
    """Kill a process and, if it leads one, its group."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            # Of another user, through setuid: it cannot be killed from here, and is waited for.
            pass


def end_all_children(reaped: Callable[[int, int], None] | None = None) -> None:
    """Kill every child, then every child that their deaths bring, until none is left."""
    while True:
        for pid in children():
            strike(pid)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if reaped is not None:
            reaped(pid, status)


def marked(mark: str) -> list[int]:
    """Processes that were started with `mark` in their environment, whoever their parent is now."""
    found: list[int] = []
    wanted = mark.encode()
    for pid in processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - pathlib costs a third of the start
                if wanted in file.read().split(b"\0") and pid != os.getpid():
                    found.append(pid)
        except OSError:
            continue
    return found


def end_marked(mark: str) -> int:
    """Kill every process that carries `mark`, and wait until none is left; how many that were.

    The last resort, for when nobody is left whose children they are. One that emptied its environment is not found.
    """
    ended = 0
    while found := marked(mark):
        deaths = select.poll()
        waiting: list[int] = []
        for pid in found:
            with contextlib.suppress(OSError):
                waiting.append(os.pidfd_open(pid))
                deaths.register(waiting[-1], select.POLLIN)
            strike(pid)
        while waiting:
            for fd, _ in deaths.poll():
                deaths.unregister(fd)
                waiting.remove(fd)
                os.close(fd)
        ended += len(found)
    return ended


def out_of_memory_kills() -> int:
    """How often the kernel has killed for lack of memory: in our own control group if it counts, else anywhere here."""
    for path, key in _counters:
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs a third of the start
                for line in file:
                    name, _, count = line.partition(b" ")
                    if name == key:
                        return int(count)
        except OSError:
            continue
    return 0


def _find_counters() -> list[tuple[str, bytes]]:
    """Files that count kills, the nearest first: version 2 of control groups, version 1, the whole machine."""
    found: list[tuple[str, bytes]] = []
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs a third of the start
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                if not controllers:
                    found.insert(0, (f"/sys/fs/cgroup{path}/memory.events", b"oom_kill"))
                elif "memory" in controllers.split(","):
                    found.append((f"/sys/fs/cgroup/memory{path}/memory.oom_control", b"oom_kill"))
    except (OSError, ValueError):
        pass
    return [*found, ("/proc/vmstat", b"oom_kill")]


_counters = _find_counters()
