"""The history checker finds nothing wrong with what is right, and each of its rules can fail."""

import pytest

from rota.core.ids import make_fence
from rota.core.model import FailureClass
from rota.core.records import Audit
from rota.core.states import UP_FOR_RETRY
from tests.rig import rules
from tests.rig.history import judge
from tests.rig.journal import DONE, Disturbance
from tests.unit.rig.scene import (
    F1,
    F2,
    F3,
    F4,
    MS,
    Break,
    Scene,
    ended,
    granted,
    returned,
    submitted,
)


def test_nothing_is_wrong_with_a_history_in_which_nothing_is_wrong():
    report = judge(Scene().build()).must_hold()
    assert (report.runs, report.run_states, report.attempts, report.outcomes) == (2, {"success": 2}, 5, 4)
    assert report.epochs == 2


def test_what_a_failover_cost_is_counted():
    report = judge(Scene().build())
    assert (report.rerun, report.in_vain, report.kept, report.interrupted) == (1, 0, 1, 1)
    assert report.call_errors == {"leader.none": 1}
    assert report.try_errors == {"leader.none": 1}
    assert [(gap.what, gap.ms) for gap in report.gaps] == [("kill server-1", 1_200.0)]
    assert report.gap_ms_max == 1_200.0
    assert "kill server-1: 1200 ms" in str(report)


def test_work_that_was_done_and_did_not_count_is_told():
    scene = Scene()
    scene.retell(3, outcome=DONE)
    assert judge(scene.build()).must_hold().in_vain == 1


def test_a_gap_that_never_closed_has_no_length():
    scene = Scene()
    scene.history.disturbances = [Disturbance(9_000 * MS, "cut server-1")]
    report = judge(scene.build())
    assert report.gap_ms_max is None
    assert "cut server-1: never" in str(report)


def lose_run(scene: Scene) -> None:
    scene.recall(submitted("gone", 1, 2))


BROKEN: list[tuple[str, str, Break]] = [
    ("run-lost", "an acknowledged run is not there", lose_run),
    ("run-unended", "a run never ended", lambda scene: scene.states.update(a="running")),
    ("run-unasked", "a run came from nowhere", lambda scene: setattr(scene.history, "calls", scene.history.calls[:1])),
    ("effect-twice", "a run was made twice", lambda scene: scene.twice.append("b")),
    (
        "effect-twice",
        "a command changed something twice",
        lambda scene: scene.audits.append(Audit("default", 2, "local", "PutPool", '{"slots":2}', "put-1")),
    ),
    (
        "answers-differ",
        "a repetition was answered otherwise",
        lambda scene: scene.recall(submitted("b", 2_000, 2_010, answer="another")),
    ),
    (
        "two-outcomes",
        "an attempt ended twice",
        lambda scene: scene.stories["b"].append(ended("b", 0, F2, 9_001, UP_FOR_RETRY)),
    ),
    (
        "foreign-fence",
        "an old fence ended the task of a new one",
        lambda scene: scene.change("a", 9, fence=F4),
    ),
    ("foreign-fence", "an old fence started it", lambda scene: scene.change("a", 6, fence=F3)),
    ("foreign-fence", "a lease was returned that was none", lambda scene: scene.change("a", 7, fence=F3)),
    ("two-leases", "a task was granted while somebody held it", lambda scene: scene.stories["a"].pop(7)),
    ("attempt-number", "an interruption cost a try", lambda scene: scene.change("a", 8, attempt=2)),
    (
        "fence-fell",
        "a smaller fence was granted later",
        lambda scene: (scene.change("a", 8, fence=F1 - 1), scene.change("a", 9, fence=F1 - 1)),
    ),
    (
        "fence-fell",
        "the order of fences in a reign is not the order of grants",
        lambda scene: scene.change("b", 0, at=1_400),
    ),
    (
        "fence-fell",
        "a later reign granted earlier",
        lambda scene: scene.change("a", 8, at=3_000),
    ),
    (
        "fence-twice",
        "two leases have one fence",
        lambda scene: (
            scene.change("b", 0, fence=F1, at=1_000),
            scene.change("b", 1, fence=F1),
            scene.change("b", 2, fence=F1),
        ),
    ),
    (
        "over-budget",
        "a task was tried more often than it may",
        lambda scene: scene.change("a", 4, state=UP_FOR_RETRY, failure=FailureClass.USER),
    ),
    (
        "state-and-story",
        "a task succeeded by another fence than its story tells",
        lambda scene: scene.tasks["a"].__setitem__(1, Scene().task(1, "load", F4)),
    ),
    ("state-and-story", "a task succeeded without a word", lambda scene: scene.stories["b"].clear()),
    (
        "never-granted",
        "something ran that nobody granted",
        lambda scene: scene.retell(4, fence=make_fence(2, 9)),
    ),
    ("started-twice", "one lease was begun twice", lambda scene: scene.retell(1, starts=2)),
    ("success-without-work", "a success that the work knows nothing of", lambda scene: scene.retell(4, outcome="")),
    ("failure-without-work", "a failure that the work knows nothing of", lambda scene: scene.retell(0, outcome=DONE)),
    ("two-at-once", "a task was done by two at once", lambda scene: scene.retell(3, seen_ns=7_200 * MS)),
    ("pool-exceeded", "more ran than a pool has", lambda scene: setattr(scene.history, "pools", {"narrow": 1})),
]


@pytest.mark.parametrize(("rule", "what", "apply"), BROKEN, ids=[what for _, what, _ in BROKEN])
def test_what_is_wrong_is_found(rule: str, what: str, apply: Break):
    scene = Scene()
    apply(scene)
    report = judge(scene.build())
    assert rule in {violation.rule for violation in report.violations}, str(report)
    with pytest.raises(AssertionError, match=rule):
        report.must_hold()


def test_every_rule_has_been_seen_to_fail():
    assert set(rules.NAMES) == {rule for rule, _, _ in BROKEN}


def test_a_violation_comes_with_the_story_of_the_task_it_is_about():
    scene = Scene()
    scene.change("a", 8, attempt=2)
    (violation,) = judge(scene.build()).violations
    assert "a/load" in violation.text
    assert [line.split()[2] for line in violation.story] == [
        "LeaseGranted",
        "AttemptStarted",
        "LeaseReturned",
        "LeaseGranted",
        "AttemptEnded",
    ]
    assert "extract" not in str(violation)


def test_what_a_frozen_worker_ran_beside_its_successor_is_excused_if_it_is_known_to_have_stood_still():
    scene = Scene()
    scene.retell(3, seen_ns=7_200 * MS)
    scene.history.frozen = frozenset({"w1"})
    judge(scene.build()).must_hold()


def test_a_start_that_was_never_heard_of_may_have_happened():
    scene = Scene()
    scene.retell(3, seen_ns=7_200 * MS)
    scene.change("a", 7, cause=rules.UNHEARD)
    judge(scene.build()).must_hold()


def test_reigns_are_not_compared_by_clocks_that_were_set():
    scene = Scene()
    scene.change("a", 8, at=3_000)
    scene.history.clocks_agree = False
    judge(scene.build()).must_hold()


def test_an_attempt_that_ends_as_another_begins_takes_no_more_of_a_pool():
    scene = Scene()
    scene.retell(1, began_ns=1_390 * MS, seen_ns=4_002 * MS)
    scene.history.pools = {"narrow": 1}
    judge(scene.build()).must_hold()
    scene.retell(1, began_ns=1_389 * MS)
    assert [violation.rule for violation in judge(scene.build()).violations] == ["pool-exceeded"]


def test_a_lease_that_never_began_is_no_work_that_was_done_again():
    scene = Scene()
    scene.stories["a"][5:5] = [granted("a", 1, F3 + 1, 1_500), returned("a", 1, F3 + 1, 1_600)]
    for number in (7, 8, 9):
        scene.change("a", number, fence=F4 + 1)
    scene.retell(3, fence=F4 + 1)
    assert judge(scene.build()).must_hold().rerun == 1
