"""Ports for what tests start: nobody else is given one that is ours."""

import subprocess
import sys
from collections.abc import Sequence

from tests.servers.ports import free_ports

_ANOTHER = "import sys; from tests.servers.ports import free_ports; print(*free_ports(1, [*map(int, sys.argv[1:])]))"


def test_no_port_is_given_twice():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert not set(ports) & set(free_ports(50))


def test_another_process_is_not_given_what_is_ours():
    ours = free_ports(2)
    free = _of_another(range(30_001, 32_000))
    # Who chose blindly would choose one of ours.
    assert _of_another([*ours * 50, free]) == free


def _of_another(among: Sequence[int]) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _ANOTHER, *map(str, among)], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)
