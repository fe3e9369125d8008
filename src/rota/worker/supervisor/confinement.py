"""Walls between user code and the worker: what code may not do, as whom it runs, and what it cannot look into.

A process that is not *dumpable* keeps others of its user out of its memory, environment and open files; only who may
trace any process gets past that, so user code is not allowed to, even if it runs as root.
docs/guides/running-code.md says what each of these walls holds off, and what none of them does.
"""

import contextlib
import ctypes
import os

from rota.worker.supervisor import trees

_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522

# What user code may not do although it is root, by the kernel's numbers. Each is a way to the memory, the environment,
# the open files or the traffic of another process, or to the kernel, from where everything is reachable.
FORBIDDEN = {
    "CAP_DAC_READ_SEARCH": 2,  # opens files by handle, past every folder's permissions
    "CAP_NET_ADMIN": 12,  # turns the network around, such as the worker's connection
    "CAP_NET_RAW": 13,  # listens to it
    "CAP_IPC_OWNER": 15,  # other users' shared memory
    "CAP_SYS_MODULE": 16,  # loads code into the kernel
    "CAP_SYS_RAWIO": 17,  # physical memory
    "CAP_SYS_PTRACE": 19,  # every process
    "CAP_SYS_ADMIN": 21,  # mounts, namespaces, and whatever has no name of its own
    "CAP_SYS_BOOT": 22,  # another kernel
    "CAP_MKNOD": 27,  # devices: disks, memory
    "CAP_MAC_OVERRIDE": 32,
    "CAP_MAC_ADMIN": 33,
    "CAP_SYSLOG": 34,  # addresses in the kernel
    "CAP_PERFMON": 38,  # watches other processes
    "CAP_BPF": 39,  # code in the kernel
    "CAP_CHECKPOINT_RESTORE": 40,  # files that other processes have mapped
}
_MASK = sum(1 << number for number in FORBIDDEN.values())

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Capabilities(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def hide_process(*, is_hidden: bool = True) -> None:
    """Keep others of the same user out of this process: its memory, its environment, its open files.

    Holds for processes forked from here, and ends with exec.
    """
    trees.prctl(_PR_SET_DUMPABLE, 0 if is_hidden else 1)


def become(uid: int, gid: int) -> None:
    """Be another user from now on, without any other group; only root can."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def confine() -> None:
    """Give up, for this process and all that it starts, what is forbidden; no program gives any of it back."""
    trees.prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for number in FORBIDDEN.values():
        # Who is not root has no say in this, and with no new privileges nothing to gain from it. An older kernel does
        # not know all of them.
        with contextlib.suppress(OSError):
            trees.prctl(_PR_CAPBSET_DROP, number)
    with contextlib.suppress(OSError):
        trees.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = _Header(_CAPABILITY_VERSION, 0)
    held = (_Capabilities * 2)()
    _check(_libc.capget(ctypes.byref(header), held), "capget")
    for part, mask in zip(held, (_MASK & 0xFFFFFFFF, _MASK >> 32), strict=True):
        part.effective &= ~mask
        part.permitted &= ~mask
        part.inheritable &= ~mask
    _check(_libc.capset(ctypes.byref(header), held), "capset")


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
