"""Nothing breaks: not in the first seeds, and not in any seed that once found a mistake."""

from pathlib import Path

import pytest

from rota.sim.hunt import run_seed

FIXED = range(60)
ONCE_BROKEN = [
    int(number)
    for line in (Path(__file__).parent / "seeds.txt").read_text(encoding="utf-8").splitlines()
    if (number := line.partition("#")[0].strip())
]


def test_there_are_seeds_that_once_failed() -> None:
    assert ONCE_BROKEN


@pytest.mark.parametrize("seed", sorted({*FIXED, *ONCE_BROKEN}))
def test_nothing_breaks_in_the_world_of(seed: int) -> None:
    result = run_seed(seed)
    assert not result.broken, f"{result.broken}; again: rota sim --seed {seed}"
    assert result.runs, "a world in which nobody runs anything proves nothing"
