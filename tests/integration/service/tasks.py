"""Functions that tests run as tasks, and the lines they leave: which attempt, under which fence, got how far."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import rota
from tests.integration.deadlines import until, until_there

BEGAN, TICK, DONE = "began", "tick", "done"
# How long an attempt waits for the test; a test that forgets it must not leave a process behind.
GATE_S = 120


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


def until_let_go(folder: str, look_every: Callable[[], None] = lambda: None) -> None:
    """Until the test lets this attempt go, or every attempt."""
    here = Path(folder)
    mine = here / f"go.{rota.context().fence}"

    def look() -> bool:
        look_every()
        return (here / "go").exists() or mine.exists()

    until(look, "the test to let this go on", GATE_S)


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
    until_let_go(folder)
    note(folder, DONE)
    return rota.context().fence


@rota.task
def gated(folder: str, gate: str) -> int:
    """Begin, and be done when there is a file of that name."""
    note(folder, BEGAN)
    until_there(Path(folder) / gate, GATE_S)
    note(folder, DONE)
    return rota.context().fence


@rota.task
def ticking(folder: str) -> int:
    """The same, with a line at every look, so that the lines tell until when it lived."""
    note(folder, BEGAN)
    until_let_go(folder, lambda: note(folder, TICK))
    note(folder, DONE)
    return rota.context().fence
