"""`python -m tests.rig.skewed FILE …`: the `rota` command in a process whose day can be set while it runs.

FILE holds by how many milliseconds the day is wrong; whoever writes another number there sets the clock. Only the time
of day is bent. The steady clock is not, as on a machine whose day is set.
"""

import os
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

# One write of so many bytes: whoever reads finds the old number or the new one, never a part.
NUMBER_BYTES = 24


def set_day(file: Path, ms: int) -> None:
    """Have whoever reads this file be wrong by so much."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(fd, b"%*d" % (NUMBER_BYTES, ms), 0)
    finally:
        os.close(fd)


def bend(file: str) -> None:
    """Have this process believe in another day."""
    fd = os.open(file, os.O_RDONLY)
    real_ns = time.time_ns

    def bent_ns() -> int:
        return real_ns() + int(os.pread(fd, NUMBER_BYTES, 0)) * 1_000_000

    # gRPC adds a call's deadline to the day it reads here, and its core reads the day itself. On a machine whose day
    # is set both are wrong alike; here only one would be.
    deadlines = import_module("grpc.aio._utils")
    vars(deadlines)["time"] = SimpleNamespace(time=time.time)
    time.time_ns = bent_ns
    time.time = lambda: bent_ns() / 1e9


if __name__ == "__main__":
    bend(sys.argv.pop(1))
    from rota.cli import main

    sys.exit(main())
