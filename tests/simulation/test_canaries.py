"""The simulator can fail: every deliberate mistake fits the code, and a sample is caught soon; `rota sim --mutants all`
in `make test-long` catches every one.
"""

import pytest

from rota.sim.hunt import hunt
from rota.sim.mutants import BY_NAME, MUTANTS, Mutant, mutate, source_path

# One for each part of the design, all of them noticed by the first few seeds.
SAMPLE = (
    "early_reply",
    "early_start",
    "receipt_not_stored",
    "skipped_countdown",
    "lost_wake",
    "fence_check_dropped",
    "fence_issued_twice",
    "slots_overrun",
    "version_reused",
    "past_ignored",
    "branch_forgotten",
    "held_slots_forgotten",
    "parts_not_awaited",
    "revived_and_kept_in_history",
    "key_forgotten_by_loading",
    "share_closed_too_early",
)
SAMPLE_SEEDS = 60


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


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_is_caught_soon(name: str) -> None:
    found = hunt(BY_NAME[name], SAMPLE_SEEDS)
    assert found.seed is not None, f"{name} breaks a rule and {SAMPLE_SEEDS} seeds did not notice"
