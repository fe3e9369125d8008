"""Ports of this machine for whatever a test starts."""

import fcntl
import os
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from tempfile import gettempdir

# Below those that the system gives to whoever dials: a port that a dead server has left must still be free later.
_PORTS = range(15_000, 30_000)

_taken: set[int] = set()


def free_ports(count: int, among: Sequence[int] = _PORTS) -> list[int]:
    """Ports on which nobody listens. No other test is given them while this process lives, nor this one again."""
    chance = Random()
    found: list[int] = []
    while len(found) < count:
        port = chance.choice(among)
        if _take(port) and _is_free(port):
            found.append(port)
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def _take(port: int) -> bool:
    """Whether it is ours now: between the choice and the server that listens, nobody else may choose it."""
    if port in _taken:
        return False
    try:
        fcntl.lockf(_register(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _taken.add(port)
    return True


@cache
def _register() -> int:
    """A file of this machine: every test process locks one byte for each of its ports, until it ends."""
    path = Path(gettempdir()).resolve() / f"rota-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
