"""A program that runs one graph embedded, and is killed in the middle of it by a test.

`python -m tests.integration.embedded_program FOLDER SHAPE`: data in FOLDER/data, what tasks did in FOLDER/effects,
what is durable in FOLDER/told.
"""

import sys
from pathlib import Path

import rota
from tests.integration.jobs import held, shaky, step

WIDTH = 12


@rota.workflow
def chain(folder: str):
    """Three steps; the second is under way."""
    step(folder, "c", held(folder, "b", step(folder, "a")))


@rota.workflow
def diamond(folder: str):
    """One side has ended, the other is under way."""
    top = step(folder, "top")
    step(folder, "bottom", step(folder, "left", top), held(folder, "right", top))


@rota.workflow
def fan(folder: str):
    """All but one of many have ended."""
    first = step(folder, "first")
    middle = [step(folder, f"m{number}", first) for number in range(WIDTH)]
    step(folder, "last", *middle, held(folder, "slow", first))


@rota.workflow
def cooldown(folder: str):
    """One task waits for its next attempt, another is under way."""
    step(folder, "last", shaky.override(retry_delay=2)(folder, "shaky"), held(folder, "slow"))


@rota.workflow
def resources(folder: str):
    """Between setup and teardown."""
    made = step.override(setup=True)(folder, "setup")
    work = held(folder, "work", made)
    work >> step.override(teardown=True)(folder, "teardown", made)


SHAPES = {"chain": chain, "diamond": diamond, "fan": fan, "cooldown": cooldown, "resources": resources}


def main() -> None:
    """Submit, and tell in FOLDER/told what has become durable, for ever."""
    folder, shape = Path(sys.argv[1]), sys.argv[2]
    one = rota.Rota.embedded(folder / "data", slots=2)
    run = one.submit(SHAPES[shape], {"folder": str(folder)}, run=shape)
    with (folder / "told").open("w", buffering=1) as told:
        for event in run.events():
            told.write(f"{event.task} {event.state}\n")


if __name__ == "__main__":
    main()
