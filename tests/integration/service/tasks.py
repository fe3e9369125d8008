"""Functions that tests run as tasks, and the lines they leave: which attempt, under which fence, got how far."""

import os
from pathlib import Path
from typing import NamedTuple

import rota
from tests.integration.deadlines import until_there

BEGAN, DONE = "began", "done"


class Line(NamedTuple):
    """What one attempt has left."""

    run: str
    task: str
    fence: int
    phase: str
    pid: int


def note(folder: str, phase: str) -> None:
    """Leave a line. One write of a few bytes is whole, whoever else writes."""
    this = rota.context()
    fd = os.open(f"{folder}/effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{this.run} {this.task} {this.fence} {phase} {os.getpid()}\n".encode())
    finally:
        os.close(fd)


def lines(folder: Path, phase: str = "", task: str = "") -> list[Line]:
    """What was left, in order; only of one phase or one task if they are named."""
    path = folder / "effects"
    found: list[Line] = []
    for text in path.read_text().splitlines() if path.exists() else ():
        run, name, fence, what, pid = text.split()
        if phase in ("", what) and task in ("", name):
            found.append(Line(run, name, int(fence), what, int(pid)))
    return found


@rota.task
def step(folder: str) -> int:
    """Begin and be done."""
    note(folder, BEGAN)
    note(folder, DONE)
    return rota.context().fence


@rota.task
def held(folder: str) -> int:
    """Begin, and be done when the test says so."""
    note(folder, BEGAN)
    until_there(Path(folder) / "go", 120)
    note(folder, DONE)
    return rota.context().fence
