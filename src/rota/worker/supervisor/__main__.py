"""`python -m rota.worker.supervisor`: started by the worker, with its end of the link, and more to keep open.

Two processes watch each other. The outer one only waits: if the inner one, which does the work, is killed, all attempts
become the outer one's children, and it kills them. If the outer one is killed, the inner one notices and does the same.
"""

import contextlib
import os
import signal
import socket
import sys

from rota.worker.supervisor import confinement, trees
from rota.worker.supervisor.server import Server
from rota.worker.supervisor.spawn import allow_many_files


def main() -> int:
    """Supervise until the worker is gone."""
    confinement.hide_process()
    link_fd, worker_pid = int(sys.argv[1]), int(sys.argv[2])
    # They were handed down to us; they must not go further, to user code.
    for fd in (link_fd, *map(int, sys.argv[3:])):
        os.set_inheritable(fd, False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The worker decides when to stop: it closes the link, or dies.
        signal.signal(number, signal.SIG_IGN)
    allow_many_files()
    trees.become_subreaper()
    outer = os.getpid()
    inner = os.fork()
    if inner == 0:
        os.setsid()
        trees.become_subreaper()
        return _serve(socket.socket(fileno=link_fd), [worker_pid, outer])
    os.close(link_fd)
    status: list[int] = []

    def reaped(pid: int, how: int) -> None:
        if pid == inner:
            status.append(how)

    while not status:
        reaped(*os.waitpid(-1, 0))
    trees.end_all_children(reaped)
    return os.waitstatus_to_exitcode(status[0]) & 0xFF


def _serve(link: socket.socket, watched: list[int]) -> int:
    pidfds: list[int] = []
    for pid in watched:
        # Where the kernel has no such thing, the end of the link has to do.
        with contextlib.suppress(OSError):
            pidfds.append(os.pidfd_open(pid))
    server = Server(link, pidfds)
    try:
        server.serve()
    finally:
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
