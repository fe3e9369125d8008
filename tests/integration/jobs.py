"""Functions that tests run as tasks. Each leaves a line in a file, so that it can be counted how often it ran."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rota
from tests.integration.deadlines import until_there


def note(folder: str, what: str) -> None:
    """Leave a line. One write of a few bytes is whole, whoever else writes."""
    fd = os.open(f"{folder}/effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{what}\n".encode())
    finally:
        os.close(fd)


def effects(folder: Path) -> dict[str, int]:
    """How often each line was left."""
    counts: dict[str, int] = {}
    path = folder / "effects"
    for line in path.read_text().splitlines() if path.exists() else ():
        counts[line] = counts.get(line, 0) + 1
    return counts


@dataclass
class Point:
    """A value that only a pickle can carry."""

    x: int


@rota.task
def step(folder: str, name: str, *before: Any) -> str:
    """Leave a line and pass its name on."""
    note(folder, name)
    return name


@rota.task
def held(folder: str, name: str, *before: Any) -> str:
    """Leave a line, then go on only when the test says so."""
    note(folder, f"{name} began")
    until_there(Path(folder) / f"{name}.go")
    note(folder, name)
    return name


@rota.task(retries=3, retry_delay=600)
def shaky(folder: str, name: str, *before: Any) -> str:
    """Fail at first. The next attempt is far away."""
    note(folder, f"{name} {rota.context().attempt}")
    if rota.context().attempt == 1:
        raise ConnectionError("not yet")
    return name


@rota.task
def add(*numbers: int) -> int:
    return sum(numbers)


@rota.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@rota.task
def identity(value: Any) -> Any:
    return value


@rota.task
def nothing() -> None:
    return None


@rota.task
def point(x: int) -> Point:
    return Point(x)


@rota.task
def fail(text: str) -> None:
    raise ValueError(text)


@rota.task
def hang(folder: str) -> None:
    """Start a child of its own, say both process ids, and never come back."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path(f"{folder}/pids.part").write_text(f"{os.getpid()} {child.pid}")
    Path(f"{folder}/pids.part").rename(f"{folder}/pids")
    threading.Event().wait()


@rota.task
def block() -> None:
    """Never come back, without anything to clean up."""
    threading.Event().wait()


@rota.task
def leave(code: int) -> None:
    os._exit(code)


@rota.task
def ask_to_leave(code: int) -> None:
    sys.exit(code)


@rota.task
def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@rota.task
def fault() -> int:
    """Read from address zero."""
    return ctypes.string_at(0)[0]


@rota.task
def devour() -> int:
    """Ask for more memory than this process may have."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
    return len(bytearray(4 << 30))


@rota.task
def chatter(megabytes: int) -> str:
    line = b"x" * 1023 + b"\n"
    for _ in range(megabytes * 1024):
        os.write(1, line)
    return "done"


@rota.task
def lock() -> Any:
    return threading.Lock()


@rota.task
def generate() -> Any:
    return (number for number in range(3))


@rota.task
def blob(megabytes: int) -> bytes:
    return os.urandom(1 << 20) * megabytes


@rota.task
def size_of(value: bytes) -> int:
    return len(value)


@rota.task(retries=1)
def talk() -> str:
    attempt = rota.context().attempt
    print(f"attempt {attempt} speaks")  # noqa: T201 - what a task prints is its log
    if attempt == 1:
        raise RuntimeError("once more")
    return "said"


@rota.task
def skip() -> None:
    raise rota.Skip("nothing to do")


@rota.task
def give_up() -> None:
    raise rota.Fail("for good")


@rota.task
async def soon(value: int) -> int:
    return value
