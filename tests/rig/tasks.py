"""What the rig's tasks do: take a while, leave lines, hand a number on, and fail as often as they are told."""

import rota
from tests.rig.journal import take, told


@rota.task
def step(folder: str, ms: int, before: int = 0) -> int:
    """One more than before."""
    with told(folder):
        take(folder, ms)
    return before + 1


@rota.task
def gather(folder: str, ms: int, parts: list[int]) -> int:
    """What all of them came to."""
    with told(folder):
        take(folder, ms)
    return sum(parts)


@rota.task
def flaky(folder: str, ms: int, fails: int, before: int = 0) -> int:
    """Fail the first so many attempts; being interrupted is none of them."""
    with told(folder):
        take(folder, ms)
        if rota.context().attempt <= fails:
            raise RuntimeError(f"attempt {rota.context().attempt} of {fails} that fail")
    return before + 1
