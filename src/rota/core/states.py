"""States of tasks and runs, and the two tables that say which moves exist.

Everything that changes a state consults these tables; a move that is not listed cannot be produced. A state has no
hidden halves: what is uncertain about a worker lives in its lease, never in the task's state.
"""

from enum import StrEnum


class TaskState(StrEnum):
    """Where one task of a run stands."""

    NONE = "none"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    ASSIGNED = "assigned"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"
    UPSTREAM_FAILED = "upstream_failed"
    UP_FOR_RETRY = "up_for_retry"
    UP_FOR_RESCHEDULE = "up_for_reschedule"
    CANCELLED = "cancelled"
    NEEDS_ATTENTION = "needs_attention"


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Phase(StrEnum):
    """A task's life in six words, for whoever needs no more: each state belongs to one of them."""

    PENDING = "pending"
    ASSIGNED = "assigned"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


NONE = TaskState.NONE
SCHEDULED = TaskState.SCHEDULED
QUEUED = TaskState.QUEUED
ASSIGNED = TaskState.ASSIGNED
RUNNING = TaskState.RUNNING
SUCCESS = TaskState.SUCCESS
FAILED = TaskState.FAILED
SKIPPED = TaskState.SKIPPED
UPSTREAM_FAILED = TaskState.UPSTREAM_FAILED
UP_FOR_RETRY = TaskState.UP_FOR_RETRY
UP_FOR_RESCHEDULE = TaskState.UP_FOR_RESCHEDULE
CANCELLED = TaskState.CANCELLED
NEEDS_ATTENTION = TaskState.NEEDS_ATTENTION

TERMINAL = frozenset({SUCCESS, FAILED, SKIPPED, UPSTREAM_FAILED, CANCELLED})
LEASED = frozenset({ASSIGNED, RUNNING})
# Judged, and not at work: for want of a worker, of time, or of a person.
WAITING = frozenset({SCHEDULED, QUEUED, UP_FOR_RETRY, UP_FOR_RESCHEDULE, NEEDS_ATTENTION})
# Ends that make a run fail when they happen to one of its last tasks.
BAD = frozenset({FAILED, UPSTREAM_FAILED, CANCELLED})
# In which of the four counts of ended tasks an end belongs: success, failed, skipped, upstream_failed.
COLUMN: dict[TaskState, int] = {SUCCESS: 0, FAILED: 1, CANCELLED: 1, SKIPPED: 2, UPSTREAM_FAILED: 3}
RUN_TERMINAL = frozenset({RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED})

PHASES: dict[TaskState, Phase] = {
    NONE: Phase.PENDING,
    SCHEDULED: Phase.PENDING,
    QUEUED: Phase.PENDING,
    UP_FOR_RETRY: Phase.PENDING,
    UP_FOR_RESCHEDULE: Phase.PENDING,
    NEEDS_ATTENTION: Phase.PENDING,
    ASSIGNED: Phase.ASSIGNED,
    RUNNING: Phase.RUNNING,
    SUCCESS: Phase.COMPLETED,
    SKIPPED: Phase.COMPLETED,
    FAILED: Phase.FAILED,
    UPSTREAM_FAILED: Phase.FAILED,
    CANCELLED: Phase.CANCELLED,
}

# Moves of ordinary progress. `assigned` may end without `running`: a fast attempt's result can overtake its start.
_PROGRESS: dict[TaskState, tuple[TaskState, ...]] = {
    NONE: (SCHEDULED, SKIPPED, UPSTREAM_FAILED, CANCELLED),
    SCHEDULED: (QUEUED, CANCELLED),
    QUEUED: (ASSIGNED, FAILED, CANCELLED, NEEDS_ATTENTION),
    ASSIGNED: (RUNNING, SUCCESS, FAILED, SKIPPED, UP_FOR_RETRY, UP_FOR_RESCHEDULE, QUEUED, CANCELLED, NEEDS_ATTENTION),
    RUNNING: (SUCCESS, FAILED, SKIPPED, UP_FOR_RETRY, UP_FOR_RESCHEDULE, QUEUED, CANCELLED, NEEDS_ATTENTION),
    UP_FOR_RETRY: (SCHEDULED, FAILED, CANCELLED),
    UP_FOR_RESCHEDULE: (SCHEDULED, FAILED, CANCELLED),
    NEEDS_ATTENTION: (SCHEDULED, FAILED, CANCELLED),
    SUCCESS: (),
    FAILED: (),
    SKIPPED: (),
    UPSTREAM_FAILED: (),
    CANCELLED: (),
}

# Moves that only a person makes: the result of a task that did not run. A task that has been judged goes back to `none`
# first, so these and the resets are all that marking needs.
TASK_MARKS: frozenset[tuple[TaskState, TaskState]] = frozenset({(NONE, SUCCESS), (NONE, FAILED), (NONE, SKIPPED)})

# Moves back to `none`: clearing (a command) resets what has ended; a lost output also withdraws what waited for it,
# and an attempt that found its input gone (`assigned`, `running`) goes back to wait for the producer.
_RESETS = frozenset({*TERMINAL, SCHEDULED, QUEUED, ASSIGNED, RUNNING, UP_FOR_RETRY, UP_FOR_RESCHEDULE, NEEDS_ATTENTION})

TASK_MOVES: frozenset[tuple[TaskState, TaskState]] = frozenset(
    (here, there) for here, nexts in _PROGRESS.items() for there in nexts
)
TASK_RESETS: frozenset[tuple[TaskState, TaskState]] = frozenset((here, NONE) for here in _RESETS)

_ALL_MOVES = TASK_MOVES | TASK_RESETS | TASK_MARKS
# Every move there is, in the order of the states.
MOVES: tuple[tuple[TaskState, TaskState], ...] = tuple(
    (here, there) for here in TaskState for there in TaskState if (here, there) in _ALL_MOVES
)

RUN_MOVES: frozenset[tuple[RunState, RunState]] = frozenset(
    {
        (RunState.QUEUED, RunState.RUNNING),
        (RunState.QUEUED, RunState.FAILED),
        (RunState.QUEUED, RunState.CANCELLED),
        (RunState.RUNNING, RunState.SUCCESS),
        (RunState.RUNNING, RunState.FAILED),
        (RunState.RUNNING, RunState.CANCELLED),
        # Clearing tasks of an ended run, or losing an output it still owes, opens it again.
        (RunState.SUCCESS, RunState.QUEUED),
        (RunState.FAILED, RunState.QUEUED),
        (RunState.CANCELLED, RunState.QUEUED),
    }
)


def can_transition(here: TaskState, there: TaskState) -> bool:
    """Whether a task may move from `here` to `there`: by progress, by a reset, or because a person marks it."""
    return (here, there) in _ALL_MOVES


def can_transition_run(here: RunState, there: RunState) -> bool:
    """Whether a run may move from `here` to `there`."""
    return (here, there) in RUN_MOVES
