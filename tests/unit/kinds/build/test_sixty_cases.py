"""Sixty cases that a scheduler of builds has to pass, and the tests that show that this one does.

They are those of the schedulers that docs/parity.md compares this one with, by their numbers in the list of cases, and
what another of them is tested with besides. Where ours differs, a remark says how.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
CORE, CONTROL, REAPI, WORKER = "tests/unit/core", "tests/unit/control", "tests/unit/api/reapi", "tests/unit/worker"
BUILDS = "tests/integration/builds"
QUEUES, MATCHING, LEASES = f"{CORE}/test_queues.py", f"{CORE}/test_matching.py", f"{CORE}/test_leases.py"
STREAMS, BACKLOG = f"{CONTROL}/test_streams.py", f"{REAPI}/test_backlog.py"
ACTIONS, CONTENT, OUTPUTS = f"{BUILDS}/test_actions.py", f"{BUILDS}/test_content.py", f"{BUILDS}/test_outputs.py"
EXECUTION, APART = f"{BUILDS}/test_execution.py", f"{BUILDS}/test_execution_apart.py"
BYTES = f"{REAPI}/test_bytestream.py"

# The cases 1 to 8, 11 and 21 are rows of one table.
FITS = f"{QUEUES}::test_who_fits"

CASES: dict[int, tuple[str, ...]] = {
    # Matching. 5: a `priority` property never restricts here.
    **dict.fromkeys(range(1, 9), (FITS,)),
    9: (f"{QUEUES}::test_9_a_worker_that_left_is_forgotten_by_matching",),
    10: (
        f"{QUEUES}::test_10_and_20_a_minimum_that_is_no_number_is_refused_when_it_is_submitted",
        f"{MATCHING}::test_a_worker_that_counts_in_words_is_refused_at_the_door",
    ),
    11: (FITS,),
    12: (f"{QUEUES}::test_12_an_action_waits_until_a_fitting_worker_joins",),
    13: (
        f"{QUEUES}::test_13_why_nobody_matches_is_said_with_everything_that_is_wrong_with_the_nearest",
        f"{CONTROL}/test_matchlog.py::test_a_line_says_how_many_wait_the_oldest_five_and_the_reason_that_why_gives",
    ),
    14: (f"{QUEUES}::test_14_what_an_action_takes_is_not_there_for_the_next_until_it_has_ended",),
    15: (f"{QUEUES}::test_15_a_worker_has_no_more_actions_than_slots",),
    16: (f"{QUEUES}::test_16_and_18_actions_run_in_the_order_in_which_they_were_queued",),
    # A lower number is sooner, as the API says.
    17: (
        f"{QUEUES}::test_17_of_one_share_the_higher_priority_goes_first",
        "tests/unit/kinds/build/test_scheduling.py::test_lower_numbers_are_sooner",
    ),
    18: (f"{QUEUES}::test_16_and_18_actions_run_in_the_order_in_which_they_were_queued",),
    19: (f"{QUEUES}::test_19_the_strategy_prefers_idle_or_active_workers",),
    20: (
        f"{QUEUES}::test_10_and_20_a_minimum_that_is_no_number_is_refused_when_it_is_submitted",
        f"{EXECUTION}::test_a_property_that_cannot_be_read_is_refused_at_once",
    ),
    21: (FITS,),
    # From asking to the end.
    22: (
        f"{BUILDS}/test_together.py::test_a_run_of_one_action_goes_through_a_coordinator",
        f"{EXECUTION}::test_who_did_it_and_when_is_in_the_result",
    ),
    23: (f"{EXECUTION}::test_a_client_that_comes_back_finds_its_operation",),
    24: (f"{EXECUTION}::test_clients_that_ask_for_the_same_share_one_run_under_names_of_their_own",),
    25: (f"{APART}::test_those_who_share_an_action_are_all_told_although_its_worker_died",),
    26: (
        f"{BACKLOG}::test_what_was_ended_for_others_is_replaced_for_whoever_waits",
        f"{EXECUTION}::test_what_its_last_client_cancels_is_killed",
    ),
    27: (
        f"{LEASES}::test_a_lease_ends_by_silence_at_its_very_end_and_not_a_millisecond_earlier",
        f"{APART}::test_an_action_of_a_silent_worker_is_given_to_another",
    ),
    28: (f"{EXECUTION}::test_asking_about_it_keeps_an_action_alive_and_silence_does_not",),
    29: (f"{EXECUTION}::test_what_was_given_up_can_be_asked_for_again",),
    # A time limit is the worker's to keep, and covers the execution only; the coordinator watches over it.
    30: (
        f"{QUEUES}::test_30_an_attempt_of_which_nothing_is_said_for_too_long_is_tried_again_though_its_worker_is_well",
        f"{CORE}/test_time_limits.py"
        "::test_an_attempt_that_its_worker_does_not_end_fails_as_a_timeout_after_its_limit_and_the_grace",
    ),
    31: (
        f"{QUEUES}::test_31_internal_failures_are_tried_again_as_often_as_the_queue_says_unless_the_task_does",
        f"{APART}::test_trouble_that_is_not_the_action_s_result_is_tried_again_as_often_as_the_queue_says",
    ),
    # A lost worker costs no retry here, and is bounded by itself.
    32: (
        f"{QUEUES}::test_32_an_action_that_kills_its_workers_fails_with_what_happened",
        f"{APART}::test_an_action_that_ends_every_worker_is_given_up",
    ),
    33: (f"{LEASES}::test_a_forgotten_workers_leases_are_returned",),
    34: (f"{APART}::test_an_action_of_a_silent_worker_is_given_to_another",),
    35: (f"{MATCHING}::test_a_worker_whose_stream_is_gone_gets_nothing_until_it_is_back",),
    36: (
        f"{MATCHING}::test_a_draining_worker_finishes_its_work_and_gets_no_more_until_it_is_let_back",
        "tests/integration/service/test_operating.py::test_an_operator_drains_a_worker_and_gives_it_work_again",
    ),
    37: (f"{LEASES}::test_a_report_by_somebody_else_than_the_holder",),
    38: (
        f"{STREAMS}::test_work_that_finished_while_nobody_could_hear_of_it_counts_because_reports_are_judged_before_the_list",
    ),
    # One coordinator matches, and a commit that is refused undoes what it has matched.
    39: (f"{CONTROL}/test_coordinator.py::test_a_fence_that_was_granted_in_a_refused_batch_is_not_granted_again",),
    40: (f"{MATCHING}::test_an_interrupted_attempt_gives_back_what_it_took",),
    41: (
        f"{STREAMS}::test_a_lease_that_is_taken_back_is_stopped_where_it_runs",
        f"{STREAMS}::test_a_report_after_the_lease_has_ended_changes_nothing_and_is_acknowledged",
    ),
    # Nobody is evicted for it: what a worker still holds is found by its count, and its word does not count any more.
    42: (
        f"{STREAMS}::test_a_listed_lease_that_is_not_this_workers_is_answered_with_stop",
        f"{STREAMS}::test_a_count_that_disagrees_asks_for_a_complete_list_and_ends_nothing",
        f"{WORKER}/test_sync.py::test_what_cannot_be_killed_silences_a_worker_for_a_beat_and_no_longer",
    ),
    43: (f"{CORE}/test_step.py::test_matching_looks_at_everything_once_more",),
    # Busy or idle, a worker without room rests for a while.
    44: (
        f"{QUEUES}::test_44_a_worker_without_room_hands_an_action_back_at_no_cost_and_is_left_alone_while_it_is_busy",
        f"{QUEUES}::test_44_an_idle_worker_without_room_is_backed_off_from_and_an_action_for_which_nobody_has_room_fails",
        f"{QUEUES}::test_44_another_worker_is_asked_first",
        f"{CONTENT}::test_44_a_worker_whose_disk_is_full_hands_the_action_back_and_says_why",
    ),
    45: (f"{EXECUTION}::test_what_is_not_to_be_cached_is_neither_shared_nor_kept",),
    # What is kept, and by whom. There is one coordinator that writes, and front ends that remember nothing that counts.
    46: (f"{BACKLOG}::test_a_run_that_nobody_knows_any_more_has_failed",),
    47: (
        f"{BACKLOG}::test_whoever_catches_up_reads_everything_and_takes_on_what_belongs_here",
        f"{LEASES}::test_after_an_election_no_lease_ends_before_a_full_lease_time",
    ),
    48: (
        f"{QUEUES}::test_30_an_attempt_of_which_nothing_is_said_for_too_long_is_tried_again_though_its_worker_is_well",
        f"{QUEUES}::test_without_such_a_limit_an_attempt_may_run_for_ever",
    ),
    49: (
        f"{APART}::test_what_nobody_comes_back_for_is_given_up_by_a_front_end_that_was_restarted",
        f"{CORE}/test_step.py::test_a_run_that_nothing_moves_is_failed_in_the_end_and_says_why",
    ),
    50: (
        f"{CONTROL}/test_coordinator.py::test_a_deposed_leader_writes_nothing_and_the_next_one_loads_what_is_on_disk",
    ),
    51: (
        f"{CORE}/test_merging.py::test_a_second_submission_of_a_key_is_answered_with_the_first_run",
        f"{BACKLOG}::test_who_is_given_another_run_reads_how_that_one_stands",
        f"{REAPI}/test_driver.py::test_an_action_that_is_not_to_be_kept_is_shared_with_nobody",
    ),
    52: (
        f"{EXECUTION}::test_an_operation_that_never_was_is_not_found",
        f"{QUEUES}::test_ended_runs_stay_for_as_long_as_their_queue_says",
    ),
    # Workers and services.
    53: (
        f"{ACTIONS}::test_inputs_of_every_kind_are_there",
        f"{CONTENT}::test_a_blob_with_both_modes_is_fetched_once",
        f"{CONTENT}::test_an_action_that_writes_to_its_inputs_is_not_believed_and_spoils_nothing",
    ),
    54: (f"{OUTPUTS}::test_parents_of_outputs_are_made",),
    # A link that leads out is refused; another digest function, too.
    55: (
        f"{OUTPUTS}::test_folders_come_back_as_they_were",
        f"{OUTPUTS}::test_links_are_listed_as_each_client_reads_them",
        f"{OUTPUTS}::test_what_leads_out_of_the_folder_is_refused",
        f"{REAPI}/test_content.py::test_another_digest_function_is_refused",
    ),
    # There is no entrypoint: nothing stands between an action and its program but the sandbox.
    56: (
        f"{ACTIONS}::test_the_environment_is_exactly_what_was_sent",
        f"{ACTIONS}::test_a_program_is_found_from_where_it_runs",
        f"{BUILDS}/test_walls.py::test_a_sandboxed_action_is_an_action",
    ),
    # Failures are in the history of runs, with their logs, and need no place of their own.
    57: (
        f"{EXECUTION}::test_a_result_is_found_unless_the_client_does_not_want_it",
        f"{EXECUTION}::test_an_action_that_fails_is_answered_and_not_kept",
        f"{REAPI}/test_action_cache.py::test_the_later_fence_stays",
    ),
    58: (
        f"{ACTIONS}::test_a_time_limit_keeps_what_there_is",
        f"{ACTIONS}::test_a_time_limit_reaches_a_child_in_another_session",
        f"{ACTIONS}::test_cancelling_kills_and_cleans_up",
        f"{ACTIONS}::test_leftovers_of_a_killed_worker_are_swept",
        f"{WORKER}/test_builds.py::test_a_time_limit_is_at_least_a_millisecond_and_never_negative",
    ),
    59: (
        f"{EXECUTION}::test_all_that_is_missing_is_named",
        f"{CONTENT}::test_missing_inputs_are_named",
    ),
    60: (
        f"{BYTES}::test_a_broken_upload_is_resumed_where_it_stopped",
        f"{BYTES}::test_an_upload_may_begin_again_from_the_start",
        f"{BYTES}::test_pieces_that_do_not_follow_each_other_are_refused",
        f"{BYTES}::test_content_that_is_not_what_it_says_is_not_kept",
        f"{BYTES}::test_a_part_is_read_from_an_offset_up_to_a_limit",
        f"{REAPI}/test_content.py::test_a_tree_comes_in_pages_and_from_any_of_them_on",
        f"{REAPI}/test_content.py::test_a_batch_is_kept_and_read_again_blob_by_blob",
    ),
}

# What another scheduler is tested with besides. Stickiness, size classes and background runs are not here yet.
BESIDES: dict[str, tuple[str, ...]] = {
    "InvocationFairness": (
        f"{CORE}/test_fair_share.py::test_a_thousand_runs_of_one_share_get_the_share_of_one_run",
        "tests/unit/kinds/build/test_scheduling.py"
        "::test_what_the_client_says_of_itself_becomes_labels_and_whose_turn_it_is",
    ),
    "CrashLoopingWorker": (
        f"{MATCHING}::test_a_worker_that_fails_by_itself_five_times_rests_for_a_minute",
        f"{MATCHING}::test_an_interrupted_task_tries_another_worker_first",
    ),
    "UnknownPlatformSoft": (f"{MATCHING}::test_impossible_absent_and_busy_are_three_answers",),
    "UnknownPlatformHard": (
        f"{QUEUES}::test_what_nobody_could_run_fails_after_the_queues_grace_and_names_the_nearest",
        f"{BUILDS}/clients/test_bazel.py::test_a_property_that_no_worker_has_is_named_quickly",
    ),
    "InFlightDeduplicationAbandonQueued": (
        f"{APART}::test_what_waits_for_a_worker_goes_on_for_whoever_still_wants_it",
        f"{APART}::test_what_nobody_wants_any_more_is_never_begun",
    ),
    "InFlightDeduplicationAbandonExecuting": (
        f"{EXECUTION}::test_one_client_that_gives_up_does_not_end_it_for_another",
        f"{APART}::test_what_another_client_has_cancelled_is_made_again_also_by_a_front_end_that_knows_neither",
    ),
    "PreferBeingIdle": (f"{WORKER}/test_sync.py::test_a_draining_worker_says_so_and_lets_its_attempts_finish",),
    "KillOperations": (f"{EXECUTION}::test_what_a_person_cancels_is_told_to_its_clients",),
    "DrainedWorker": (f"{STREAMS}::test_a_drained_worker_gets_no_new_work_and_finishes_what_it_has",),
}

# What may be wrong with what clients send, and where it is shown that they are told so and nothing of it is kept.
BAD_INPUT: dict[str, tuple[str, ...]] = {
    "wrong digest, wrong size": (
        f"{BYTES}::test_content_that_is_not_what_it_says_is_not_kept",
        f"{REAPI}/test_on_disk.py::test_an_upload_is_resumed_and_a_wrong_one_leaves_nothing",
        f"{REAPI}/test_content.py::test_a_digest_that_is_none_is_refused",
    ),
    "truncated stream": (
        f"{BYTES}::test_a_broken_upload_is_resumed_where_it_stopped",
        f"{BYTES}::test_a_stream_without_a_word_is_refused",
    ),
    "paths that lead elsewhere": (
        f"{REAPI}/test_trees.py::test_a_name_that_leads_elsewhere_is_refused",
        f"{REAPI}/test_action_cache.py::test_a_result_that_leads_elsewhere_or_lies_is_refused",
        f"{OUTPUTS}::test_a_tree_with_impossible_names_is_refused",
    ),
    "links that lead elsewhere": (
        f"{REAPI}/test_trees.py::test_a_link_out_of_the_root_is_refused",
        f"{OUTPUTS}::test_a_link_among_the_inputs_must_stay_inside",
    ),
    "cyclic trees": (
        f"{REAPI}/test_trees.py::test_a_directory_that_contains_itself_is_refused",
        f"{REAPI}/test_action_cache.py::test_a_tree_that_cannot_be_is_refused",
    ),
    "huge arguments": (f"{ACTIONS}::test_what_was_asked_for_in_vain_fails_for_good",),
    "unknown instance": (f"{REAPI}/test_admission.py::test_an_unknown_instance_is_an_argument_that_is_wrong",),
    "unparsable minimum": (f"{EXECUTION}::test_a_property_that_cannot_be_read_is_refused_at_once",),
    "upload beyond the limit": (
        f"{BYTES}::test_what_is_larger_than_the_limit_is_refused_before_it_is_sent",
        f"{BYTES}::test_a_full_store_says_so",
    ),
    "any bytes and messages": (
        f"{REAPI}/test_fuzz.py::test_any_message_is_answered",
        f"{REAPI}/test_fuzz_execution.py::test_any_action_is_carried_out_or_refused",
        f"{REAPI}/test_admission.py::test_bytes_that_are_not_grpc_disturb_nobody",
    ),
}

ALL: dict[str, tuple[str, ...]] = {**{str(number): tests for number, tests in CASES.items()}, **BESIDES, **BAD_INPUT}


def test_every_case_has_a_test_and_no_number_is_left_out() -> None:
    assert list(CASES) == list(range(1, 61))
    assert all(ALL.values())


@pytest.mark.parametrize("case", ALL)
def test_the_tests_of_a_case_exist(case: str) -> None:
    for test_id in ALL[case]:
        name, _, function = test_id.partition("::")
        code = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {function}\(", code, re.MULTILINE), test_id
