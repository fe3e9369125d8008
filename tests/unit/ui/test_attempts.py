"""Attempts that a task had before, from what happened to its run."""

from rota.core.changes import AttemptEnded, AttemptStarted, LeaseGranted, LeaseReturned, RunMoved
from rota.core.model import FailureClass
from rota.core.states import SUCCESS, UP_FOR_RETRY, TaskState
from rota.core.story import RunChange
from rota.core.sums import TaskSum
from rota.ui.attempts import Past, attempts_in
from rota.ui.timeline import Scale, lane_of
from tests.unit.ui.views import run_view

OF = ("t", "r")


def granted(fence: int, attempt: int, at: int, task: int = 0) -> LeaseGranted:
    return LeaseGranted(*OF, task, fence, "t", "w", "i", attempt, at, 30_000)


def ended(fence: int, state: TaskState, at: int, failure: FailureClass | None = None, task: int = 0) -> AttemptEnded:
    return AttemptEnded(*OF, task, fence, state, at, None, failure, "", 0)


RETRIED: list[RunChange] = [
    granted(1, 1, 1_000),
    AttemptStarted(*OF, 0, 1, 2_000),
    granted(9, 1, 2_100, task=5),
    ended(1, UP_FOR_RETRY, 4_000, FailureClass.USER),
    granted(2, 2, 5_000),
    LeaseReturned(*OF, 0, 2, TaskState.QUEUED, 6_000, "its worker was lost", True),
    granted(3, 2, 7_000),
    AttemptStarted(*OF, 0, 3, 7_500),
    ended(3, SUCCESS, 9_000),
]


def test_every_attempt_is_told_with_how_it_ended():
    assert attempts_in(RETRIED, {0: "a"}) == {
        "a": [Past(1, 2_000, 4_000, "failed"), Past(2, 5_000, 6_000, "interrupted"), Past(2, 7_500, 9_000, "success")]
    }


def test_what_was_before_a_move_to_another_version_is_not_taken_for_the_same_task():
    assert attempts_in([*RETRIED, RunMoved(*OF, "d", 2, (), (), 9_500)], {0: "a"}) == {}


def test_a_row_shows_earlier_attempts_before_the_last_one():
    scale = Scale(run_view(created_at=0), 10_000, [])
    told = TaskSum({"success": 1}, 6_000, 7_000, 7_500, 9_000, 2)
    lane = lane_of("a", told, scale, past=attempts_in(RETRIED, {0: "a"})["a"])
    assert [(part.sort, part.x, part.state) for part in lane.parts] == [
        ("run", 20, "failed"),
        ("run", 50, "interrupted"),
        ("queue", 60, ""),
        ("start", 70, ""),
        ("run", 75, "success"),
    ]


def test_between_two_attempts_nothing_runs():
    scale = Scale(run_view(created_at=0), 10_000, [])
    told = TaskSum({"up_for_retry": 1}, 500, 1_000, 2_000, 0, 1)
    lane = lane_of("a", told, scale, past=[Past(1, 2_000, 4_000, "failed")])
    assert [(part.sort, part.x, part.width) for part in lane.parts] == [("run", 20, 20)]
