"""The simulator can fail: every deliberate mistake fits the code, and its pinned seed catches it.

A seed counts only if it passes without the mistake. `make test` runs one mutant in three, `make test-full` the others,
and `rota sim --mutants all` in `make test-long` hunts every one.
"""

from pathlib import Path

import pytest

from rota.sim.hunt import hunt
from rota.sim.mutants import BY_NAME, MUTANTS, Mutant, mutate, source_path

PINNED = {
    name: int(seed)
    for line in (Path(__file__).parent / "catching_seeds.txt").read_text(encoding="utf-8").splitlines()
    if (about := line.partition("#")[0].split())
    for name, seed in [about]
}
# How many mutants there are for each that `make test` runs.
PART = 3


def test_mutants_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(MUTANTS)


def test_every_mutant_fits_the_code_exactly_once() -> None:
    unfit = {mutant.name: complaint for mutant in MUTANTS if (complaint := why_unfit(mutant))}
    assert unfit == {}


def why_unfit(mutant: Mutant) -> str:
    for module in dict.fromkeys(edit.module for edit in mutant.edits):
        source = source_path(module).read_text(encoding="utf-8")
        try:
            mutated = mutate(mutant, module, source)
            compile(mutated, module, "exec")
        except (SyntaxError, ValueError) as error:
            return f"{module}: {error}"
        if mutated == source:
            return f"{module} stays as it is"
    return ""


def test_a_mutant_that_does_not_fit_is_refused() -> None:
    mutant = MUTANTS[0]
    with pytest.raises(ValueError, match="0 times"):
        mutate(mutant, mutant.edits[0].module, "nothing of the kind\n")


def test_every_mutant_has_a_pinned_seed_and_no_other_has() -> None:
    assert sorted(PINNED) == sorted(BY_NAME)


def check_caught(name: str) -> None:
    """The pinned seed fails with the mutant and passes without it."""
    found = hunt(BY_NAME[name], 1, first=PINNED[name])
    assert not found.false_alarms, f"seed {PINNED[name]} fails without {name}, too"
    assert found.seed is not None, (
        f"seed {PINNED[name]} does not notice {name}; rota sim --mutants {name} looks for one"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(BY_NAME)[::PART])
def test_a_pinned_seed_catches_its_mutant(name: str) -> None:
    check_caught(name)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for place, name in enumerate(sorted(BY_NAME)) if place % PART])
def test_a_pinned_seed_catches_its_mutant_in_full(name: str) -> None:
    check_caught(name)
