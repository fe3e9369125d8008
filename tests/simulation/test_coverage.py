"""A fault that never happens finds nothing: over a number of seeds, everything a seed may draw has really happened."""

import pytest

from rota.sim.faults import FAULTS, SIZES, SWITCHES, draw_mix
from rota.sim.hunt import run_seeds, seeds_with
from rota.sim.scene import Result
from rota.sim.world import World

FEW, MANY = 60, 300
# What may become of a commit whose asker dies while it is in flight.
TORN = ("commit_lost", "commit_torn", "commit_unheard", "torn_commit_done", "torn_commit_fenced")
# What workers say that nobody can keep.
WORDS = (
    "absurd_loss",
    "absurd_time",
    "absurd_width",
    "agent_told_to_shorten",
    "bad_text",
    "huge_text",
    "largest_result",
    "oversize_result",
    "skipped_with_result",
    "unknown_names",
)
# What becomes of workers that are gone while they hold something.
HELD = ("lease_ran_out", "stuck_with_work")


@pytest.fixture(scope="module")
def few() -> list[Result]:
    return list(run_seeds(0, FEW, 1))


def test_every_fault_can_be_switched_off_when_a_seed_shrinks() -> None:
    assert sorted(name for name, _ in SWITCHES if name not in SIZES) == sorted(FAULTS)


def test_every_kind_of_fault_happens_in_a_few_seeds(few: list[Result]) -> None:
    seen = seeds_with(few)
    assert [kind for kind in FAULTS if kind not in seen] == []


def test_a_torn_restart_strikes_while_a_commit_is_in_flight(few: list[Result]) -> None:
    drawn = [result for result in few if draw_mix(World(result.seed).chance("mix")).torn_restart]
    struck = [result for result in drawn if result.happened.get("torn_restart")]
    assert len(struck) > 0.7 * len(drawn)


@pytest.mark.long
def test_every_kind_of_fault_happens_often_in_many_seeds() -> None:
    seen = seeds_with(list(run_seeds(0, MANY, 2)))
    rare = {kind: seen.get(kind, 0) for kind in FAULTS if seen.get(kind, 0) < MANY // 20}
    assert rare == {}
    assert [kind for kind in (*TORN, *WORDS, *HELD) if kind not in seen] == []
