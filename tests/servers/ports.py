"""Ports of this machine for whatever a test starts."""

import socket
from random import Random

# Below those that the system gives to whoever dials: a port that a dead server has left must still be free later.
_PORTS = range(15_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens, and which nobody is given by chance."""
    held: list[socket.socket] = []
    chance = Random()
    try:
        while len(held) < count:
            one = socket.socket()
            held.append(one)
            try:
                one.bind(("127.0.0.1", chance.choice(_PORTS)))
            except OSError:
                held.pop().close()
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
