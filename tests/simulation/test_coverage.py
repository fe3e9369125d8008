"""A fault that never happens finds nothing: over a number of seeds, everything a seed may draw has really happened."""

import pytest

from rota.core.changes import OfRun
from rota.core.commands import ClientCommand
from rota.sim.faults import FAULTS, SIZES, SWITCHES, draw_mix
from rota.sim.hunt import run_seeds, seeds_with
from rota.sim.scene import Result
from rota.sim.world import World

# The seeds are run once, for all of these tests.
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("coverage")]

FEW, MANY = 60, 300
# What may become of a commit whose asker dies while it is in flight.
TORN = ("commit_lost", "commit_torn", "commit_unheard", "torn_commit_done", "torn_commit_fenced")
# What workers say that nobody can keep.
WORDS = (
    "absurd_growth",
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
# What is asked for: work made for awkward questions, and commands.
WORK = (
    "endless_killed",
    "one_done_past_parked",
    "one_failed_past_parked",
    "one_success_past_parked",
    "parked",
    "reused_id",
    "said_timeout",
    "said_reschedule",
    "said_skipped",
    "said_success",
    "two_versions",
)
# What becomes of workflows, and of runs that people look after.
OF_WORKFLOWS = ("backfill_over", "branched", "moved", "past_looked_at", "revived")
# What becomes of tasks that go on as others.
OF_GROWTH = ("mapped_run_ended", "planned_anew", "put_together", "said_grew", "went_on")
# What becomes of runs that are the same.
OF_BUILDS = ("joined", "key_given_up", "key_used_again", "revoked")
# What becomes of work that is claimed.
OF_ITEMS = ("approved", "lying_agents", "rejected", "unblocked", "woken")
# And what rarely does.
RARE_OF_ITEMS = ("redelivered_later", "token_void")
# Not told: an error of the scheduler itself, which no seed may have.
NOT_TOLD = ("RunFaulted",)
# Not drawn: a dropped pool leaves its tasks waiting until somebody defines it again, and a claim is a worker's.
NOT_DRAWN = ("ClaimTask", "DropPool")


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


def test_every_command_of_a_client_is_asked_for(few: list[Result]) -> None:
    commands = [kind.__name__ for kind in ClientCommand.__subclasses__() if kind.__name__ not in NOT_DRAWN]
    seen = seeds_with(few)
    assert [name for name in commands if name not in seen] == []


def test_every_change_of_a_run_is_told(few: list[Result]) -> None:
    changes = [kind.__name__ for kind in OfRun.__subclasses__() if kind.__name__ not in NOT_TOLD]
    seen = seeds_with(few)
    assert [name for name in changes if name not in seen] == []


def test_workflows_are_deployed_backfilled_moved_and_brought_back(few: list[Result]) -> None:
    seen = seeds_with(few)
    assert [kind for kind in OF_WORKFLOWS if kind not in seen] == []


def test_tasks_go_on_as_others_are_put_together_and_planned_anew(few: list[Result]) -> None:
    seen = seeds_with(few)
    assert [kind for kind in OF_GROWTH if kind not in seen] == []


def test_runs_are_joined_and_their_keys_used_again(few: list[Result]) -> None:
    seen = seeds_with(few)
    assert [kind for kind in OF_BUILDS if kind not in seen] == []


def test_items_are_approved_unblocked_redelivered_and_lied_about(few: list[Result]) -> None:
    seen = seeds_with(few)
    assert [kind for kind in OF_ITEMS if kind not in seen] == []


@pytest.mark.long
def test_every_kind_of_fault_happens_often_in_many_seeds() -> None:
    seen = seeds_with(list(run_seeds(0, MANY, 2)))
    rare = {kind: seen.get(kind, 0) for kind in FAULTS if seen.get(kind, 0) < MANY // 20}
    assert rare == {}
    assert [kind for kind in (*TORN, *WORDS, *HELD, *WORK, *RARE_OF_ITEMS) if kind not in seen] == []
