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


def name_of(mutant: Mutant) -> str:
    return mutant.name


def test_mutants_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_a_mutant_fits_the_code_exactly_once(mutant: Mutant) -> None:
    for module in dict.fromkeys(edit.module for edit in mutant.edits):
        source = source_path(module).read_text(encoding="utf-8")
        mutated = mutate(mutant, module, source)
        assert mutated != source
        compile(mutated, module, "exec")


def test_a_mutant_that_does_not_fit_is_refused() -> None:
    mutant = MUTANTS[0]
    with pytest.raises(ValueError, match="0 times"):
        mutate(mutant, mutant.edits[0].module, "nothing of the kind\n")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_is_caught_soon(name: str) -> None:
    found = hunt(BY_NAME[name], SAMPLE_SEEDS)
    assert found.seed is not None, f"{name} breaks a rule and {SAMPLE_SEEDS} seeds did not notice"
