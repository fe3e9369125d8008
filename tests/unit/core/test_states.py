"""The two state tables, all pairs, against tables written out by hand."""

from itertools import pairwise, product

import pytest

from rota.core.commands import Mark
from rota.core.states import (
    LEASED,
    MOVES,
    PHASES,
    RUN_MOVES,
    RUN_TERMINAL,
    TASK_MARKS,
    TASK_MOVES,
    TASK_RESETS,
    TERMINAL,
    Phase,
    RunState,
    TaskState,
    can_transition,
    can_transition_run,
)

# Rows are where a task is, columns where it goes: m a move of progress, r a reset, p a person's mark, · nothing.
TASK_TABLE = """
                   none  sched queue assig runni succe faile skipp upstr retry resch cance atten
none                ·     m     ·     ·     ·     p     p     m     m     ·     ·     m     ·
scheduled           r     ·     m     ·     ·     ·     ·     ·     ·     ·     ·     m     ·
queued              r     ·     ·     m     ·     ·     m     ·     ·     ·     ·     m     m
assigned            r     ·     m     ·     m     m     m     m     ·     m     m     m     m
running             r     ·     m     ·     ·     m     m     m     ·     m     m     m     m
success             r     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·
failed              r     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·
skipped             r     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·
upstream_failed     r     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·
up_for_retry        r     m     ·     ·     ·     ·     m     ·     ·     ·     ·     m     ·
up_for_reschedule   r     m     ·     ·     ·     ·     m     ·     ·     ·     ·     m     ·
cancelled           r     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·     ·
needs_attention     r     m     ·     ·     ·     ·     m     ·     ·     ·     ·     m     ·
"""

TASK_COLUMNS = {
    "none": "none",
    "sched": "scheduled",
    "queue": "queued",
    "assig": "assigned",
    "runni": "running",
    "succe": "success",
    "faile": "failed",
    "skipp": "skipped",
    "upstr": "upstream_failed",
    "retry": "up_for_retry",
    "resch": "up_for_reschedule",
    "cance": "cancelled",
    "atten": "needs_attention",
}

# Only clearing, or a lost output, opens an ended run again, and it queues like a new one.
RUN_TABLE = """
           queued running success failed cancelled
queued       ·      m       ·       m       m
running      ·      ·       m       m       m
success      m      ·       ·       ·       ·
failed       m      ·       ·       ·       ·
cancelled    m      ·       ·       ·       ·
"""


def read(table: str) -> dict[tuple[str, str], str]:
    head, *rows = table.strip().splitlines()
    columns = head.split()
    return {
        (row.split()[0], column): mark for row in rows for column, mark in zip(columns, row.split()[1:], strict=True)
    }


TASK_PAIRS = {(here, TASK_COLUMNS[column]): mark for (here, column), mark in read(TASK_TABLE).items()}
RUN_PAIRS = read(RUN_TABLE)


def test_the_hand_written_tables_name_every_pair_of_states():
    assert set(TASK_PAIRS) == {(here.value, there.value) for here in TaskState for there in TaskState}
    assert set(RUN_PAIRS) == {(here.value, there.value) for here in RunState for there in RunState}
    assert (len(TASK_PAIRS), len(RUN_PAIRS)) == (169, 25)


@pytest.mark.parametrize(("here", "there"), TASK_PAIRS)
def test_a_task_may_move_exactly_where_the_table_says(here: str, there: str):
    pair = TaskState(here), TaskState(there)
    mark = TASK_PAIRS[here, there]
    assert can_transition(*pair) == (mark in "mrp")
    assert (pair in TASK_MOVES) == (mark == "m")
    assert (pair in TASK_RESETS) == (mark == "r")
    assert (pair in TASK_MARKS - TASK_MOVES) == (mark == "p")


@pytest.mark.parametrize(("here", "there"), RUN_PAIRS)
def test_a_run_may_move_exactly_where_the_table_says(here: str, there: str):
    pair = RunState(here), RunState(there)
    assert can_transition_run(*pair) == (RUN_PAIRS[here, there] == "m")
    assert (pair in RUN_MOVES) == can_transition_run(*pair)


def test_nothing_moves_to_where_it_is():
    assert not any(can_transition(state, state) for state in TaskState)
    assert not any(can_transition_run(state, state) for state in RunState)


def test_what_a_person_may_mark_is_in_the_table_from_every_state():
    for here, mark in product(TaskState, Mark):
        there = TaskState(mark.value)
        # Work in progress is cancelled first, and what was judged goes back to `none`.
        steps = [here, TaskState.CANCELLED, TaskState.NONE] if here in LEASED else [here, TaskState.NONE]
        steps = [TaskState.NONE] if here is TaskState.NONE else steps
        assert here is there or all(can_transition(*pair) for pair in pairwise([*steps, there])), (here, there)
    assert {(TaskState.NONE, TaskState(mark.value)) for mark in Mark} == TASK_MARKS
    assert set(MOVES) == {pair for pair in product(TaskState, repeat=2) if can_transition(*pair)}


def test_progress_and_resets_are_separate():
    assert TASK_MOVES.isdisjoint(TASK_RESETS)
    assert all(there is TaskState.NONE for _, there in TASK_RESETS)
    assert all(there is not TaskState.NONE for _, there in TASK_MOVES)


def test_everything_but_none_can_be_reset():
    assert {here for here, _ in TASK_RESETS} == set(TaskState) - {TaskState.NONE}


def test_terminal_task_states_are_those_that_progress_cannot_leave():
    assert set(TERMINAL) == set(TaskState) - {here for here, _ in TASK_MOVES}


def test_an_ended_run_can_only_be_queued_again():
    assert {there for here, there in RUN_MOVES if here in RUN_TERMINAL} == {RunState.QUEUED}


def test_an_end_is_in_reach_of_every_task_state():
    for start in TaskState:
        reached = {start}
        while more := {there for here, there in TASK_MOVES if here in reached} - reached:
            reached |= more
        assert reached & TERMINAL, f"{start} leads nowhere"


def test_every_task_that_has_not_ended_can_be_cancelled():
    assert {here for here, there in TASK_MOVES if there is TaskState.CANCELLED} == set(TaskState) - TERMINAL


def test_only_a_queued_task_is_assigned_and_only_an_assigned_one_starts():
    assert {here for here, there in TASK_MOVES if there is TaskState.ASSIGNED} == {TaskState.QUEUED}
    assert {here for here, there in TASK_MOVES if there is TaskState.RUNNING} == {TaskState.ASSIGNED}


def test_a_task_succeeds_or_waits_for_another_try_only_from_a_lease():
    for there in (TaskState.SUCCESS, TaskState.UP_FOR_RETRY, TaskState.UP_FOR_RESCHEDULE):
        assert {here for here, to in TASK_MOVES if to is there} == LEASED


def test_every_state_belongs_to_a_phase_and_an_end_to_a_phase_that_ends():
    assert set(PHASES) == set(TaskState)
    assert set(PHASES.values()) == set(Phase)
    ends = {Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED}
    assert {state for state, phase in PHASES.items() if phase in ends} == TERMINAL
    assert {state for state, phase in PHASES.items() if phase in (Phase.ASSIGNED, Phase.RUNNING)} == LEASED
