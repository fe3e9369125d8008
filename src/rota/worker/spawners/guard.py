"""A program that becomes another one, which is asked to end when the process that started it is gone.

It is run by its path and imports nothing of ours: it is on its way to be something else. What it says about itself can
only be said from inside the new process, and the event loop of a service cannot be made to run code there.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_STARTED = 127


def become(parent: int, words: list[str]) -> None:
    """Never returns, unless the program cannot be run."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(NOT_STARTED)
    os.execvp(words[0], words)  # noqa: S606 - the operator's own command, without a shell


if __name__ == "__main__":
    try:
        become(int(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]} cannot be run: {error.strerror}\n")
        sys.exit(NOT_STARTED)
