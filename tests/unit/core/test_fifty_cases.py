"""Fifty cases that a scheduler of workflows has to pass, and the tests that show that this one does.

They are those of the scheduler that docs/parity.md compares this one with, by their numbers there. Most are proven
where their subject is tested; what was missing is here. A case that cannot arise here names what takes its place.
"""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from rota.core import commands as cm
from rota.core.bounds import INTERRUPTIONS_MAX, RESULT_BYTES_MAX
from rota.core.changes import Change, LeaseGranted, LeaseReturned
from rota.core.decide.leases import Judgement, offer_of
from rota.core.errors import Refused
from rota.core.model import RetryPolicy
from rota.core.states import (
    FAILED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUNNING,
    SUCCESS,
    RunState,
    TaskState,
    can_transition,
    can_transition_run,
)
from rota.core.step import PHASES
from tests.unit.core.world import TENANT, World, graph, image, task

ROOT = Path(__file__).parents[3]
CORE, CONTROL, WORKER = "tests/unit/core", "tests/unit/control", "tests/unit/worker"
HERE = f"{CORE}/test_fifty_cases.py"
AGREES = f"{CORE}/test_incremental_planning.py::test_the_engine_agrees_with_planning_from_scratch_after_every_step"

# The number of a case: the tests that prove it. 5 to 16 are shown on the planner, and the engine agrees with it.
CASES: dict[int, tuple[str, ...]] = {
    # States and rules.
    1: (
        f"{HERE}::test_every_move_of_the_nine_states_is_a_move_here_or_goes_by_way_of_one_state_more",
        f"{CORE}/test_states.py::test_a_task_may_move_exactly_where_the_table_says",
    ),
    2: (
        f"{HERE}::test_runs_move_among_the_four_states_exactly_as_there",
        f"{CORE}/test_states.py::test_a_run_may_move_exactly_where_the_table_says",
    ),
    3: (
        f"{CORE}/test_trigger.py::test_a_root_is_scheduled_whatever_its_rule",
        f"{CORE}/test_trigger.py::test_one_upstream_is_judged_like_two_that_agree",
    ),
    4: (
        f"{CORE}/test_trigger.py::test_two_upstreams_are_judged_as_airflow_judges_them",
        f"{CORE}/test_trigger_rules_in_a_run.py::test_a_task_becomes_what_its_rule_says_as_its_upstreams_end",
    ),
    5: (
        f"{CORE}/test_snapshot.py::test_a_root_is_scheduled_and_queued_in_one_call_while_its_downstream_waits",
        AGREES,
    ),
    6: (f"{CORE}/test_snapshot.py::test_a_scheduled_task_is_queued", AGREES),
    7: (f"{CORE}/test_snapshot.py::test_a_success_starts_the_downstream", AGREES),
    8: (
        f"{CORE}/test_snapshot.py::test_a_failure_is_passed_on",
        f"{CORE}/test_runs.py::test_a_failure_passes_to_what_follows_and_the_run_says_which_task_it_was",
    ),
    9: (f"{CORE}/test_snapshot.py::test_an_all_done_task_runs_after_a_failure", AGREES),
    # Retries.
    10: (
        f"{CORE}/test_snapshot.py::test_a_failure_with_tries_left_is_retried_and_its_downstream_waits",
        f"{CORE}/test_incremental_planning.py::test_a_task_that_waits_for_its_retry_is_not_an_end",
    ),
    11: (
        f"{CORE}/test_snapshot.py::test_a_failure_without_tries_left_is_final",
        f"{CORE}/test_runs.py::test_each_class_of_failure_has_its_own_budget",
    ),
    12: (f"{CORE}/test_snapshot.py::test_a_retry_starts_afresh_and_counts_one_try_more", AGREES),
    13: (
        f"{CORE}/test_snapshot.py::test_a_retry_is_held_during_its_delay",
        f"{CORE}/test_runs.py::test_a_retry_comes_when_it_is_due_and_not_before",
    ),
    14: (
        f"{CORE}/test_snapshot.py::test_a_retry_is_released_when_its_delay_is_over",
        f"{CORE}/test_runs.py::test_a_retry_comes_when_it_is_due_and_not_before",
    ),
    15: (
        f"{CORE}/test_snapshot.py::test_a_retry_without_delay_is_released_at_once",
        f"{CORE}/test_snapshot.py::test_a_retry_that_ended_nobody_knows_when_is_released_at_once",
        f"{CORE}/test_snapshot.py::test_without_a_clock_the_gate_is_open",
    ),
    16: (f"{CORE}/test_snapshot.py::test_a_run_does_not_end_while_a_failure_may_be_retried", AGREES),
    17: (f"{CORE}/test_leases.py::test_an_interruption_does_not_use_up_the_retry_budget",),
    # What the scheduler could not place is parked here for a person, instead of failed.
    18: (f"{CORE}/test_leases.py::test_after_five_interruptions_a_task_is_parked_with_what_happened",),
    19: (
        f"{HERE}::test_a_run_whose_task_was_interrupted_too_often_does_not_hang",
        f"{CORE}/test_watchdogs.py::test_a_parked_task_is_listed_until_a_person_decides",
    ),
    20: (f"{CORE}/test_runs.py::test_a_reschedule_does_not_use_the_budget",),
    # There is no dispatch that could fail: workers come for work. What is not the task's fault waits longer each time.
    21: (
        f"{CORE}/test_runs.py::test_what_is_not_the_tasks_fault_waits_longer_and_longer_for_an_outage_to_end",
        f"{CORE}/test_matching.py::test_a_worker_that_fails_by_itself_five_times_rests_for_a_minute",
    ),
    # The loop.
    22: (
        f"{CORE}/test_step.py::test_a_run_whose_start_was_forgotten_is_started",
        f"{CORE}/test_graph_door.py::test_a_submission_is_refused_with_its_code_and_path_and_nothing_is_stored",
        f"{CORE}/test_loading.py::test_what_was_committed_is_what_is_loaded_after_any_sequence_of_commands",
    ),
    23: (f"{CONTROL}/test_faults.py::test_an_error_about_one_run_is_written_on_that_run_and_touches_no_other",),
    24: (
        f"{CONTROL}/test_faults.py::test_an_error_about_one_run_is_written_on_that_run_and_touches_no_other",
        f"{CONTROL}/test_faults.py::test_a_run_that_cannot_be_started_does_not_stop_other_runs_of_its_graph",
    ),
    25: (
        f"{CONTROL}/test_faults.py::test_an_error_in_matching_is_told_and_does_not_stop_the_loop",
        f"{CONTROL}/test_faults.py::test_an_error_while_a_worker_registers_turns_only_that_worker_away",
    ),
    # A step is cut into slices, so it cannot hang a turn; one that takes too long is not overtaken.
    26: (
        f"{CONTROL}/test_coordinator.py::test_a_step_that_is_not_finished_is_not_begun_a_second_time",
        f"{CONTROL}/test_coordinator.py::test_the_safety_net_has_a_share_of_every_turn_under_full_load",
        f"{CONTROL}/test_standing.py::test_a_leader_is_healthy_while_its_last_turn_is_within_three_intervals_and_a_second",
    ),
    27: (f"{CONTROL}/test_faults.py::test_a_timer_that_meets_an_error_again_and_again_does_not_stop_the_loop",),
    28: (f"{CONTROL}/test_faults.py::test_a_schedule_that_meets_an_error_stops_no_other",),
    29: (f"{CONTROL}/test_leadership.py::test_a_follower_reads_nothing_writes_nothing_and_sends_everybody_away",),
    30: (
        f"{CORE}/test_step.py::test_every_phase_runs_even_if_an_earlier_one_failed_and_the_first_error_is_handed_back",
        f"{CORE}/test_step.py::test_an_error_of_one_phase_keeps_no_other_from_its_rescue",
        f"{CONTROL}/test_faults.py::test_a_phase_of_the_safety_net_that_fails_stops_neither_the_loop_nor_the_other_phases",
    ),
    # Schedules.
    31: (
        f"{CORE}/test_calendar.py::test_catch_up_makes_every_slot_in_order_a_bounded_number_at_a_time",
        f"{CORE}/test_calendar.py::test_a_day_of_missed_minutes_makes_one_run_the_newest",
        f"{CORE}/test_calendar.py::test_a_look_that_decides_nothing_leaves_the_cursor_alone",
        f"{CORE}/test_calendar.py::test_a_start_in_the_past_fires_from_there_only_with_catch_up",
        f"{CORE}/test_calendar.py::test_start_and_end_are_both_inside_the_window",
        f"{CORE}/test_calendar.py::test_an_unsound_schedule_is_refused_with_the_field_at_fault",
    ),
    # A schedule begins when it is put: what was due before it existed does not fire, unless it is to catch up.
    32: (f"{CORE}/test_calendar.py::test_a_new_schedule_begins_at_the_first_look",),
    33: (
        f"{CORE}/test_calendar.py::test_once_without_a_start_fires_at_the_first_look_and_never_again",
        f"{CORE}/test_calendar.py::test_once_with_a_start_fires_then_even_if_nobody_looked_in_time",
    ),
    # It is refused at the door instead of warned about later.
    34: (f"{CORE}/test_calendar.py::test_an_unsound_schedule_is_refused_with_the_field_at_fault",),
    35: (
        f"{CORE}/test_calendar.py::test_a_slot_held_by_the_cap_is_made_later_with_catch_up",
        f"{CORE}/test_runs.py::test_at_the_cap_the_newest_slot_is_held_without_catch_up_and_all_of_them_with_it",
    ),
    36: (
        f"{CORE}/test_calendar.py::test_a_day_of_missed_minutes_makes_one_run_the_newest",
        f"{CORE}/test_calendar_properties.py::test_every_slot_is_decided_exactly_once_whatever_the_looks",
        f"{CORE}/test_calendar_zones.py::test_through_both_changes_every_slot_is_made_once_whenever_somebody_looks",
    ),
    # Reapers.
    37: (
        f"{CORE}/test_reap.py::test_silence_below_the_threshold_is_alive",
        f"{CORE}/test_reap.py::test_silence_at_the_threshold_is_dead",
        f"{CORE}/test_reap.py::test_silence_above_the_threshold_is_dead",
        f"{CORE}/test_reap.py::test_a_stamp_from_the_future_is_alive",
        f"{CORE}/test_reap.py::test_a_run_without_any_sign_of_activity_is_orphaned",
        f"{CORE}/test_reap.py::test_a_task_that_was_never_observed_is_left_alone",
    ),
    38: (f"{HERE}::test_a_run_in_which_anything_is_left_to_happen_is_no_candidate",),
    39: (f"{HERE}::test_a_run_that_has_ended_is_not_reaped_and_none_of_its_tasks_is_touched",),
    40: (
        f"{HERE}::test_a_lease_is_taken_back_once_and_an_outcome_that_came_before_stands",
        f"{CORE}/test_leases.py::test_a_lease_ends_by_silence_at_its_very_end_and_not_a_millisecond_earlier",
    ),
    41: (
        f"{CONTROL}/test_faults.py::test_a_reaper_that_meets_an_error_about_one_worker_goes_on_with_the_others",
        f"{CONTROL}/test_faults.py::test_a_phase_of_the_safety_net_that_fails_stops_neither_the_loop_nor_the_other_phases",
    ),
    42: (f"{HERE}::test_a_task_that_is_cleared_long_after_is_lost_by_none_of_its_old_stamps",),
    # Leading, and being seen to.
    43: (
        f"{CONTROL}/test_leadership.py::test_of_two_coordinators_one_leads_and_the_other_takes_over_in_a_later_epoch",
        "tests/contract/store_reigns.py::of_many_that_stand_at_once_one_is_elected",
        "tests/integration/test_postgres_lock.py::test_one_session_at_a_time_holds_it_and_only_its_holder_says_so",
    ),
    44: (
        "tests/contract/store_reigns.py::holds_is_about_this_very_hold",
        "tests/integration/test_postgres_lock.py::test_a_session_that_was_ended_holds_nothing_and_the_next_one_neither",
    ),
    45: (
        f"{CONTROL}/test_leadership.py::test_a_lost_lock_ends_the_reign_at_once",
        f"{CONTROL}/test_leadership.py::test_single_errors_never_depose_and_never_prove",
        f"{CONTROL}/test_leadership.py::test_errors_for_a_whole_term_end_the_reign",
    ),
    46: (
        f"{CONTROL}/test_standing.py::test_a_follower_is_healthy_and_idle",
        f"{CONTROL}/test_standing.py::test_a_leader_is_healthy_while_its_last_turn_is_within_three_intervals_and_a_second",
        f"{CONTROL}/test_standing.py::test_a_new_reign_does_not_inherit_the_clock_of_the_last_one",
    ),
    47: (
        f"{CONTROL}/test_standing.py::test_only_what_is_cancelled_on_purpose_is_no_error",
        f"{CONTROL}/test_standing.py::test_the_window_opens_with_a_cause_that_is_counted_and_closes_when_told",
    ),
    # Getting work to workers. The buffer is the queue itself, which is durable; a worker's slots are the pressure back.
    48: (
        f"{HERE}::test_what_no_worker_has_room_for_waits_in_the_queue_and_is_given_out_as_room_comes",
        f"{CONTROL}/test_coordinator.py::test_what_does_not_fit_a_commit_is_not_tried_again_until_the_commit_has_ended",
        f"{WORKER}/test_driver.py::test_a_runner_that_raises_is_to_blame_and_not_the_attempt",
        f"{WORKER}/test_driver.py::test_draining_hands_back_what_is_not_finished",
    ),
    49: (
        f"{CORE}/test_runs.py::test_where_the_queue_says_fail_an_unservable_task_fails_after_a_minute",
        f"{CORE}/test_notes_and_causes.py::test_a_task_that_no_worker_fits_says_so_in_its_note",
        "tests/integration/worker/test_http_runner.py::test_at_capacity_a_request_waits_like_everything_else",
    ),
    50: (
        f"{HERE}::test_the_word_of_an_old_try_changes_nothing_and_its_work_is_stopped",
        f"{HERE}::test_an_attempt_is_given_what_its_declared_upstreams_made_and_nothing_else",
        f"{HERE}::test_a_result_of_exactly_the_limit_is_taken_and_one_byte_more_is_not",
        f"{CONTROL}/test_streams.py::test_a_listed_lease_that_is_not_this_workers_is_answered_with_stop",
        f"{CONTROL}/test_streams.py::test_a_report_after_the_lease_has_ended_changes_nothing_and_is_acknowledged",
    ),
}


def test_every_case_has_a_test_and_no_number_is_left_out() -> None:
    assert list(CASES) == list(range(1, 51))
    assert all(CASES.values())


@pytest.mark.parametrize("number", CASES)
def test_the_tests_of_a_case_exist(number: int) -> None:
    for test_id in CASES[number]:
        name, _, function = test_id.partition("::")
        code = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {function}\(", code, re.MULTILINE), test_id


# --- 1 and 2: moves --------------------------------------------------------------------------------------------------

# The table there: nine states, and to which each may move.
NINE = {
    "none": "scheduled skipped upstream_failed",
    "scheduled": "queued",
    "queued": "running failed up_for_retry",
    "running": "success failed up_for_retry",
    "up_for_retry": "scheduled queued none",
    "success": "none",
    "failed": "none",
    "skipped": "none",
    "upstream_failed": "none",
}
# What may happen here among the same states and may not there, and why.
MORE = {
    # Output or input was lost: whoever has not ended goes back to wait for its producer.
    **{(here, "none"): "withdrawn" for here in ("scheduled", "queued", "running")},
    ("running", "queued"): "its lease was returned unspent",
    ("running", "skipped"): "its code said so",
    ("up_for_retry", "failed"): "its run was stopped, or a person said so",
    **{("none", there): "a person said so" for there in ("success", "failed")},
}
# What may happen there in one move and takes two here: work is given to a worker before it runs there, a failure is
# one of an attempt, and a retry is scheduled like anything else.
BY_WAY_OF = {
    ("queued", "running"): "assigned",
    ("queued", "up_for_retry"): "assigned",
    ("up_for_retry", "queued"): "scheduled",
}


def test_every_move_of_the_nine_states_is_a_move_here_or_goes_by_way_of_one_state_more() -> None:
    for here, there in product(NINE, repeat=2):
        pair = TaskState(here), TaskState(there)
        if (here, there) in BY_WAY_OF:
            between = TaskState(BY_WAY_OF[here, there])
            assert not can_transition(*pair)
            assert can_transition(pair[0], between) and can_transition(between, pair[1])
        else:
            assert can_transition(*pair) == (there in NINE[here].split() or (here, there) in MORE), (here, there)


def test_runs_move_among_the_four_states_exactly_as_there() -> None:
    there = {
        ("queued", "running"),
        ("queued", "failed"),
        ("running", "success"),
        ("running", "failed"),
        ("success", "queued"),
        ("failed", "queued"),
    }
    four = ("queued", "running", "success", "failed")
    assert {pair for pair in product(four, repeat=2) if can_transition_run(*map(RunState, pair))} == there


# --- 19: what could not be placed ------------------------------------------------------------------------------------


def parked(**fields: object) -> World:
    """A run with a task that was interrupted too often, and one behind it."""
    world = World()
    world.worker()
    world.submit(graph(task("x", retry=RetryPolicy(retries=3)), task("y", "x"), **fields))
    for _ in range(INTERRUPTIONS_MAX):
        (granted,) = world.turn()
        world.start(granted)
        world.interrupt(granted)
    assert world.task("x").state is NEEDS_ATTENTION
    return world


def test_a_run_whose_task_was_interrupted_too_often_does_not_hang() -> None:
    world = parked()
    world.advance(3_600_000)
    assert (world.result(), world.states()["y"]) == (RunState.RUNNING, "none"), "what follows waits for a person"
    world.client(cm.ResolveTask, run="r", task="x", exit=cm.Exit.FAIL)
    assert (world.result(), world.states()["y"]) == (RunState.FAILED, "upstream_failed")
    world = parked(run_timeout_ms=600_000)
    world.advance(600_000)
    assert world.result() is RunState.FAILED, "a run with a time limit needs nobody"


# --- 38 to 42: reapers -----------------------------------------------------------------------------------------------


def reaped(world: World) -> list[Change]:
    """What the reapers do about everything there is."""
    before = len(world.changes)
    for command in list(PHASES[-1](world.state, world.now)):
        world.do(command)
    return world.changes[before:]


def waiting_for_a_worker() -> World:
    world = World()
    world.submit(task("x"))
    world.turn()
    return world


def begun() -> tuple[World, LeaseGranted]:
    world = World()
    world.worker()
    world.submit(task("x"))
    (granted,) = world.turn()
    world.start(granted)
    return world, granted


def at_work() -> World:
    return begun()[0]


def cooling_down() -> World:
    world = World()
    world.worker()
    world.submit(task("x", retry=RetryPolicy(retries=1, delay_ms=86_400_000)))
    (granted,) = world.turn()
    world.fail(granted)
    return world


def paused() -> World:
    world = waiting_for_a_worker()
    world.client(cm.PauseRun, run="r")
    return world


@pytest.mark.parametrize("make", [waiting_for_a_worker, at_work, cooling_down, paused, parked])
def test_a_run_in_which_anything_is_left_to_happen_is_no_candidate(make: Callable[[], World]) -> None:
    world = make()
    world.now += world.state.limits.orphan_ms * 10
    for name in list(world.state.workers):
        world.hear(name[1])
    world.do(cm.Tick(tenant=TENANT, kind="orphan", key=(TENANT, "r")))
    assert reaped(world) == []
    assert world.result() is RunState.RUNNING


def test_a_run_that_has_ended_is_not_reaped_and_none_of_its_tasks_is_touched() -> None:
    world, granted = begun()
    world.succeed(granted)
    before = image(world.state)
    world.now += world.state.limits.orphan_ms * 10
    for kind in ("orphan", "replan"):
        assert world.do(cm.Tick(tenant=TENANT, kind=kind, key=(TENANT, "r"))).changes == []
    assert (image(world.state), world.result(), world.task("x").state) == (before, RunState.SUCCESS, SUCCESS)


def test_a_lease_is_taken_back_once_and_an_outcome_that_came_before_stands() -> None:
    world = World()
    world.worker(slots=2)
    world.submit(task("x"), run="done")
    world.submit(task("x"), run="lost")
    done, lost = world.turn()
    for granted in (done, lost):
        world.start(granted)
    world.silence()
    world.succeed(done)
    world.now += world.state.limits.lease_ms
    (taken,) = reaped(world)
    assert isinstance(taken, LeaseReturned)
    assert (taken.run, taken.state) == ("lost", QUEUED)
    assert reaped(world) == [], "what was taken back is not taken back again"
    assert world.task("x", "done").state is SUCCESS
    assert world.succeed(lost) == Judgement.OLD_FENCE, "and a word that comes later does not count"
    assert world.task("x", "lost").state is QUEUED


def test_a_task_that_is_cleared_long_after_is_lost_by_none_of_its_old_stamps() -> None:
    world, granted = begun()
    world.advance(world.state.limits.lease_ms * 2)
    world.fail(granted)
    world.advance(30_000)
    world.client(cm.ClearTasks, run="r", tasks=("x",))
    row = world.task("x")
    assert row.state is NONE
    assert (row.started_at, row.ended_at, row.due_at, row.first_started_at, row.fence) == (0, 0, 0, 0, 0)
    world.advance(world.state.limits.orphan_ms)
    (granted,) = world.turn()
    assert (row.assigned_at, row.attempt) == (world.now, 2)
    assert reaped(world) == [], "neither silence nor the dispatch counts from before"
    world.advance(world.state.limits.dispatch_ms - 1)
    world.start(granted)
    world.advance(world.state.limits.lease_ms * 3)
    assert row.state is RUNNING


# --- 48 and 50: work on its way, and words that come back ------------------------------------------------------------


def test_what_no_worker_has_room_for_waits_in_the_queue_and_is_given_out_as_room_comes() -> None:
    world = World()
    world.submit(graph(*(task(f"t{number}") for number in range(5))))
    assert world.turn() == [], "without a worker everything waits"
    assert {*world.states().values()} == {"queued"}
    world.worker(slots=2)
    first = world.turn()
    assert len(first) == 2
    world.advance(world.state.limits.dispatch_ms - 1)
    assert list(world.states().values()).count("queued") == 3, "and is neither lost nor tried again meanwhile"
    world.succeed(first[0])
    assert len(world.turn()) == 1
    world = world.restarted()
    assert list(world.states().values()).count("queued") == 2, "the queue is durable"


def test_the_word_of_an_old_try_changes_nothing_and_its_work_is_stopped() -> None:
    world = World()
    world.worker()
    world.submit(task("x", retry=RetryPolicy(retries=1)))
    (old,) = world.turn()
    world.start(old)
    world.fail(old)
    world.advance(1)
    (new,) = world.turn()
    world.start(new)
    before = image(world.state)
    for outcome in (cm.Outcome.SUCCESS, cm.Outcome.FAILED, cm.Outcome.STARTED):
        assert world.report(old, outcome) == Judgement.DUPLICATE
    assert image(world.state) == before
    world.fail(new)
    assert world.task("x").state is FAILED
    assert world.report(old, cm.Outcome.SUCCESS) == Judgement.ALREADY_ENDED
    assert world.task("x").state is FAILED


def test_an_attempt_is_given_what_its_declared_upstreams_made_and_nothing_else() -> None:
    world = World()
    world.worker(slots=2)
    world.submit(graph(task("a"), task("b"), task("c", "a", "b", inputs=("a",))))
    for granted in world.turn():
        world.succeed(granted, result=b"made")
    (granted,) = world.turn()
    offer = offer_of(world.state.leases[granted.fence])
    assert [each.task for each in offer.inputs] == ["a"]
    refusal = world.refusal(
        cm.SubmitRun(
            tenant=TENANT, command_id="c", run="s", graph=graph(task("a"), task("b"), task("c", "b", inputs=("a",)))
        )
    )
    assert refusal.path == "graph.tasks[2].inputs"


def test_a_result_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    world = World()
    world.worker()
    world.submit(task("x"))
    (granted,) = world.turn()
    with pytest.raises(Refused) as caught:
        world.succeed(granted, result=b"x" * (RESULT_BYTES_MAX + 1))
    assert (caught.value.code, caught.value.path) == ("field.size", "result")
    assert world.succeed(granted, result=b"x" * RESULT_BYTES_MAX) == Judgement.ACCEPTED
    assert world.task("x").state is SUCCESS
