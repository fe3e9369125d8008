"""What a queue decides beside who fits: the cases that build clusters are tried with, and each field of its policy.

The numbers are those of the list of cases that other schedulers are tested with; where ours differs the name says how.
"""

import re

import pytest

from rota.core import commands as cm
from rota.core.bounds import INTERRUPTIONS_MAX, NO_ROOM_MS
from rota.core.invariants import validate
from rota.core.ladder import NO_FIT
from rota.core.model import Allocation, FailureClass, PropertyRule, RetryPolicy, TaskSpec, Unservable
from rota.core.states import FAILED, NEEDS_ATTENTION, QUEUED, UP_FOR_RETRY, RunState
from rota.core.why import explain
from tests.unit.core.world import TENANT, World, graph, task

F = FailureClass
RULES = (
    ("cpu_count", PropertyRule.MINIMUM),
    ("memory_kb", PropertyRule.MINIMUM),
    ("cpu_arch", PropertyRule.EXACT),
    ("OSFamily", PropertyRule.EXACT),
    ("container-image", PropertyRule.PRIORITY),
    ("build-id", PropertyRule.IGNORE),
)
BIG = (("cpu_count", "16"), ("memory_kb", "64000"), ("cpu_arch", "x86_64"), ("OSFamily", "Linux"))


def builds(**fields: object) -> World:
    world = World()
    world.queue("builds", properties=RULES, unservable=Unservable.FAIL, **fields)
    return world


def action(name: str = "x", *requires: tuple[str, str], **fields: object) -> TaskSpec:
    return task(name, queue="builds", requires=requires, **fields)


# Cases 1 to 8 and 11: one action, one worker.

CASES = [
    ("1 equal values fit", (("cpu_arch", "x86_64"),), BIG, True),
    ("1 other values do not", (("cpu_arch", "aarch64"),), BIG, False),
    ("1 values are compared letter by letter", (("cpu_arch", "X86_64"),), BIG, False),
    ("1 a worker without the property does not fit", (("cpu_arch", "x86_64"),), (("cpu_count", "1"),), False),
    ("2 as much as is needed is enough", (("cpu_count", "16"),), BIG, True),
    ("2 less is not", (("cpu_count", "17"),), BIG, False),
    ("2 nothing needed still needs the property", (("cpu_count", "0"),), (("cpu_arch", "x86_64"),), False),
    ("2 numbers are numbers", (("cpu_count", "9"),), (("cpu_count", "16"),), True),
    ("3 both have to hold", (("cpu_arch", "x86_64"), ("cpu_count", "4")), BIG, True),
    ("3 one is not enough", (("cpu_arch", "x86_64"), ("cpu_count", "40")), BIG, False),
    ("4 no requirements fit everybody", (), (), True),
    ("5 a preference that is met", (("container-image", "a"),), (("container-image", "a"),), True),
    ("5 a preference that is not met never restricts", (("container-image", "a"),), (("container-image", "b"),), True),
    ("5 nor one that the worker does not know", (("container-image", "a"),), (), True),
    ("6 what is ignored is not compared", (("build-id", "7"),), (("build-id", "8"),), True),
    ("6 and need not be there", (("build-id", "7"),), (), True),
    ("7 undeclared: equal where the worker has it", (("gpu", "a100"),), (("gpu", "a100"),), True),
    ("7 undeclared: not another value", (("gpu", "a100"),), (("gpu", "h100"),), False),
    ("8 undeclared: whoever does not have it is not restricted", (("gpu", "a100"),), (), True),
    ("11 any property may be asked for", (("never", "heard of"),), BIG, True),
    (
        "21 of several values one has to be it",
        (("cpu_arch", "avx2"),),
        (("cpu_arch", "sse"), ("cpu_arch", "avx2")),
        True,
    ),
    ("21 who names two needs both", (("cpu_arch", "avx2"), ("cpu_arch", "sse")), (("cpu_arch", "avx2"),), False),
]


@pytest.mark.parametrize(
    ("requires", "properties", "fits"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_who_fits(requires: tuple[tuple[str, str], ...], properties: tuple[tuple[str, str], ...], fits: bool):
    world = builds()
    world.worker(properties=properties)
    world.submit(action("x", *requires))
    assert len(world.turn()) == fits
    (why,) = explain(world.state, world.run(), 0, world.now)[-1:]
    assert (why.code == "worker.none_match") != fits


def test_9_a_worker_that_left_is_forgotten_by_matching():
    world = builds()
    world.worker(properties=BIG)
    world.client(cm.ForgetWorker, worker="w")
    world.submit(action("x", ("cpu_arch", "x86_64")))
    assert world.turn() == []
    assert world.state.index.shapes == {}
    assert explain(world.state, world.run(), 0, world.now)[-1].code.startswith("worker.none_")


@pytest.mark.parametrize("value", ["", "-1", "1.5", "4g", "0x10", "9" * 30])
def test_10_and_20_a_minimum_that_is_no_number_is_refused_when_it_is_submitted(value: str):
    world = builds()
    whole = graph(action("x", ("cpu_count", value)))
    refused = world.refusal(cm.SubmitRun(tenant=TENANT, command_id="c", run="r", graph=whole))
    assert (refused.code, "cpu_count" in refused.path) == ("requirement.value", True)


def test_12_an_action_waits_until_a_fitting_worker_joins():
    world = builds()
    world.worker("small", properties=(("cpu_count", "2"),))
    world.submit(action("x", ("cpu_count", "4")))
    assert world.turn() == []
    world.worker("large", properties=(("cpu_count", "4"),))
    assert [granted.worker for granted in world.turn()] == ["large"]


def test_13_why_nobody_matches_is_said_with_everything_that_is_wrong_with_the_nearest():
    world = builds()
    world.worker("far", properties=(("cpu_arch", "aarch64"), ("cpu_count", "2"), ("OSFamily", "Linux")))
    world.worker("near", properties=BIG)
    world.worker("elsewhere", properties=BIG, queues=("other",))
    world.submit(action("x", ("cpu_count", "64"), ("cpu_arch", "x86_64"), ("memory_kb", "99000")))
    world.turn()
    (why,) = explain(world.state, world.run(), 0, world.now)
    assert re.search(r"\bnear\b.*\bcpu_count\b.*\b16\b.*\b64\b.*\bmemory_kb\b.*\b64000\b.*\b99000\b", why.text)
    assert (why.code, "cpu_arch" in why.text, "far" in why.text) == ("worker.none_match", False, False)
    assert dict(why.about)["worker"] == "near" and dict(why.about)["property"] == "cpu_count"


def test_of_two_that_lack_the_same_the_larger_is_nearer():
    world = builds()
    for name, cpus in (("four", "4"), ("thirty", "30"), ("eight", "8")):
        world.worker(name, properties=(("cpu_count", cpus),))
    world.submit(action("x", ("cpu_count", "32")))
    world.turn()
    assert "nearest is thirty" in explain(world.state, world.run(), 0, world.now)[0].text


def test_a_busy_or_absent_worker_may_be_the_nearest():
    world = builds()
    world.worker("away", properties=(("cpu_arch", "x86_64"), ("cpu_count", "4")))
    world.disconnect("away")
    world.worker("here", properties=(("cpu_arch", "aarch64"), ("cpu_count", "2")))
    world.submit(action("x", ("cpu_arch", "x86_64"), ("cpu_count", "8")))
    world.turn()
    why = explain(world.state, world.run(), 0, world.now)[0]
    assert (why.code, dict(why.about)["worker"]) == ("worker.none_match", "away")
    assert re.search(r"\baway: .*\bcpu_count\b.*\b4\b.*\b8\b", why.text)


def test_14_what_an_action_takes_is_not_there_for_the_next_until_it_has_ended():
    world = builds()
    world.worker(slots=9, properties=BIG)
    world.submit(graph(action("x", ("cpu_count", "10"), width=2)))
    (first,) = world.turn()
    assert explain(world.state, world.run(), 1, world.now)[-1].code == "worker.busy"
    world.succeed(first)
    assert len(world.turn()) == 1


def test_15_a_worker_has_no_more_actions_than_slots():
    world = builds()
    world.worker(slots=2, properties=BIG)
    world.submit(graph(action("x", width=5)))
    assert len(world.turn()) == 2


def test_16_and_18_actions_run_in_the_order_in_which_they_were_queued():
    world = builds()
    world.worker()
    for number in range(4):
        world.submit(action(), run=f"r{number}", share="one")
        world.now += number % 2
    order: list[str] = []
    for _ in range(4):
        (granted,) = world.turn()
        order.append(granted.run)
        world.succeed(granted)
    assert order == ["r0", "r1", "r2", "r3"]


def test_17_of_one_share_the_higher_priority_goes_first():
    world = builds()
    for run, priority in (("low", -5), ("first", 7), ("usual", 0)):
        world.submit(action(priority=priority), run=run, share="one")
    world.worker()
    order: list[str] = []
    for _ in range(3):
        (granted,) = world.turn()
        order.append(granted.run)
        world.succeed(granted)
    assert order == ["first", "usual", "low"]


@pytest.mark.parametrize(
    ("allocation", "expected"),
    [(Allocation.LEAST_RECENTLY_USED, "idle"), (Allocation.MOST_RECENTLY_USED, "busy")],
)
def test_19_the_strategy_prefers_idle_or_active_workers(allocation: Allocation, expected: str):
    world = builds(allocation=allocation)
    world.worker("busy", slots=9)
    world.submit(action(), run="one")
    world.turn()
    world.worker("idle", slots=9)
    world.submit(action(), run="two")
    assert [granted.worker for granted in world.turn()] == [expected]


# Policy.


def test_what_nobody_could_run_fails_after_the_queues_grace_and_names_the_nearest():
    world = builds(unservable_ms=20_000)
    world.worker("near", properties=BIG)
    world.submit(graph(action("x", ("cpu_count", "64")), task("after", "x")))
    world.turn()
    world.advance(19_999)
    world.sweep()
    assert world.task("x").state is QUEUED
    assert world.task("x").note.startswith(NO_FIT) and "nearest is near" in world.task("x").note
    world.advance(1)
    world.sweep()
    row = world.task("x")
    assert (row.state, row.failure, world.result()) == (FAILED, F.FATAL, RunState.FAILED)
    assert re.match(r"worker\.none_match: .*\bnear: .*\bcpu_count\b.*\b16\b", row.error)


def test_the_note_goes_with_the_grant():
    world = builds()
    world.submit(action())
    world.turn()
    world.sweep()
    (reason,) = explain(world.state, world.run(), 0, world.now)
    assert (reason.code, world.task("x").note) == ("worker.none_registered", f"{NO_FIT}{reason.text}")
    world.worker()
    world.turn()
    assert world.task("x").note == ""


def test_what_somebody_noted_is_left_alone():
    world = builds()
    world.submit(action())
    world.turn()
    world.client(cm.NoteTask, run="r", task="x", note="mine")
    world.sweep()
    assert world.task("x").note == "mine"


def test_ended_runs_stay_for_as_long_as_their_queue_says():
    world = builds(retain_completed_for_ms=300_000)
    world.worker(slots=2)
    world.submit(action(), run="build")
    world.submit(task("y"), run="other")
    for granted in world.turn():
        world.succeed(granted)
    world.advance(world.state.limits.retain_ended_ms)
    assert list(world.state.runs) == [(TENANT, "build")]
    world.advance(300_000 - world.state.limits.retain_ended_ms - 1)
    assert list(world.state.runs) == [(TENANT, "build")]
    world.advance(1)
    assert world.state.runs == {}


def test_a_queue_may_keep_them_for_less_than_others_do():
    world = builds(retain_completed_for_ms=1_000)
    world.worker()
    world.submit(action())
    (granted,) = world.turn()
    world.succeed(granted)
    world.advance(999)
    assert len(world.state.runs) == 1
    assert len(world.restarted().state.runs) == 1
    world.advance(1)
    assert world.state.runs == {}


def test_a_run_of_two_queues_is_kept_for_as_long_as_the_more_patient_one_says():
    world = builds(retain_completed_for_ms=1_000)
    world.worker(slots=2)
    world.submit(graph(action(), task("y")))
    for granted in world.turn():
        world.succeed(granted)
    world.advance(world.state.limits.retain_ended_ms - 1)
    assert len(world.state.runs) == 1
    world.advance(1)
    assert world.state.runs == {}


@pytest.mark.parametrize("unservable_ms", [1_000, 20_000, 60_000])
def test_what_nobody_could_run_fails_within_a_second_of_its_queues_patience(unservable_ms: int):
    for is_restarted in (False, True):
        world = builds(unservable_ms=unservable_ms)
        world.worker(properties=(("cpu_arch", "x86_64"),))
        world.advance(1_234)
        world.submit(action("x", ("cpu_arch", "m68k")))
        world.turn()
        if is_restarted:
            world = world.restarted()
        world.advance(unservable_ms - 1)
        assert world.task("x").state is QUEUED
        world.advance(1_000)
        assert world.task("x").state is FAILED


@pytest.mark.parametrize(
    ("of_queue", "of_task", "tries"), [(3, None, 4), (0, None, 1), (1, None, 2), (0, 2, 3), (9, 0, 1)]
)
def test_31_internal_failures_are_tried_again_as_often_as_the_queue_says_unless_the_task_does(
    of_queue: int, of_task: int | None, tries: int
):
    world = builds(max_job_retries=of_queue, retain_completed_for_ms=24 * 3_600_000)
    world.worker()
    world.submit(action(retry=RetryPolicy(retries=50, internal_retries=of_task)))
    for attempt in range(1, 20):
        granted = world.turn()
        if not granted:
            break
        world.fail(granted[0], failure=F.INTERNAL, error=f"try {attempt}")
        world.advance(120_000)
    row = world.task("x")
    assert (row.state, row.attempt, row.error) == (FAILED, tries, f"try {tries}")


def test_32_an_action_that_kills_its_workers_fails_with_what_happened():
    world = builds()
    world.worker()
    world.submit(graph(action(), task("after", "x")))
    for _ in range(INTERRUPTIONS_MAX):
        (granted,) = world.turn()
        world.start(granted)
        world.interrupt(granted, "its worker was lost")
    assert world.task("x").state is NEEDS_ATTENTION
    assert validate(world.restarted().state, world.now) == []
    world.fire_due()
    row = world.task("x")
    assert (row.state, row.failure, world.result()) == (FAILED, F.INTERNAL, RunState.FAILED)
    assert re.search(rf"\b{INTERRUPTIONS_MAX}\b.*\bw$", row.error)


def test_44_a_worker_without_room_hands_an_action_back_at_no_cost_and_is_left_alone_while_it_is_busy():
    world = builds()
    world.worker("w", slots=2)
    world.submit(graph(action("first")), run="first")
    (first,) = world.turn()
    world.start(first)
    world.submit(graph(action("second")), run="second")
    (second,) = world.turn()
    world.start(second)
    assert world.report(second, cm.Outcome.RELEASED, error="disk full") == "accepted"
    assert world.report(second, cm.Outcome.RELEASED, error="disk full") == "duplicate"
    waiting = world.task("second", run="second")
    assert (waiting.state, waiting.attempt, waiting.interruptions) == (QUEUED, 0, 1), "no retry is spent"
    assert world.turn() == []
    world.succeed(first)
    assert world.turn() == [], "it rests, whatever ends meanwhile"
    world.advance(NO_ROOM_MS)
    (again,) = world.turn()
    assert again.attempt == 1
    world.succeed(again)
    assert validate(world.state, world.now) == []


def test_44_an_idle_worker_without_room_is_backed_off_from_and_an_action_for_which_nobody_has_room_fails():
    world = builds()
    world.worker("w")
    world.submit(graph(action("x")), run="r")
    for _ in range(INTERRUPTIONS_MAX):
        (granted,) = world.turn()
        world.start(granted)
        world.report(granted, cm.Outcome.RELEASED, error="disk full")
        assert world.turn() == []
        world.advance(NO_ROOM_MS)
    world.fire_due()
    row = world.task("x")
    assert row.state is FAILED
    assert "disk full" in row.error
    assert validate(world.state, world.now) == []


def test_44_another_worker_is_asked_first():
    world = builds()
    world.worker("small")
    world.submit(graph(action("x")), run="r")
    (granted,) = world.turn()
    world.start(granted)
    world.worker("large")
    world.report(granted, cm.Outcome.RELEASED, error="disk full")
    (again,) = world.turn()
    assert again.worker == "large"


def test_a_parked_task_of_another_queue_waits_for_a_person():
    world = World()
    world.worker()
    world.submit(task("x"))
    for _ in range(INTERRUPTIONS_MAX):
        (granted,) = world.turn()
        world.start(granted)
        world.interrupt(granted)
    world.advance(3_600_000)
    assert world.task("x").state is NEEDS_ATTENTION


def test_an_action_that_was_parked_when_the_coordinator_died_fails_under_the_next():
    world = builds()
    world.worker()
    world.submit(action())
    for _ in range(INTERRUPTIONS_MAX):
        (granted,) = world.turn()
        world.start(granted)
        world.interrupt(granted)
    after = world.restarted()
    after.fire_due()
    assert after.task("x").state is FAILED


# An attempt of which nothing is said.


def stuck(**fields: object) -> World:
    world = builds(max_action_executing_timeout_ms=600_000, **fields)
    world.worker()
    world.submit(action())
    world.start(*world.turn())
    return world


def test_30_an_attempt_of_which_nothing_is_said_for_too_long_is_tried_again_though_its_worker_is_well():
    world = stuck()
    world.advance(599_999)
    assert world.task("x").state == "running"
    world.advance(1)
    row = world.task("x")
    assert (row.state, row.failure) == (UP_FOR_RETRY, F.INTERNAL)
    assert re.search(r"\b600000 ms\b.*\bw\b", row.error)
    assert world.state.workers[(TENANT, "w")].leases == {}


def test_it_is_tried_again_as_often_as_internal_failures_are():
    world = stuck(max_job_retries=1)
    world.advance(600_000 + 2_000)
    world.start(*world.turn())
    world.advance(600_000)
    assert (world.task("x").state, world.result()) == (FAILED, RunState.FAILED)


def test_an_attempt_that_is_assigned_and_not_begun_is_not_counted():
    world = builds(max_action_executing_timeout_ms=1_000)
    world.worker()
    world.submit(action())
    world.turn()
    world.advance(5_000)
    assert world.task("x").state == "assigned"


def test_without_such_a_limit_an_attempt_may_run_for_ever():
    world = builds()
    world.worker()
    world.submit(action())
    world.start(*world.turn())
    world.advance(7 * 24 * 3_600_000)
    assert world.task("x").state == "running"


def test_the_tasks_own_limit_decides_where_both_have_passed():
    world = builds(max_action_executing_timeout_ms=60_000)
    world.worker()
    world.submit(action(timeout_ms=10_000))
    world.start(*world.turn())
    world.advance(10_000 + world.state.limits.overrun_ms)
    assert (world.task("x").state, world.task("x").failure) == (FAILED, F.TIMEOUT)


def test_time_during_which_the_coordinator_did_not_run_is_no_silence():
    world = stuck()
    world.state.stalled_ms += 50_000
    world.advance(600_000)
    assert world.task("x").state == "running"
    world.advance(50_000)
    assert world.task("x").state is UP_FOR_RETRY


def test_after_an_election_it_is_given_some_time_to_be_heard_of():
    world = stuck()
    world.advance(599_000)
    after = world.restarted()
    after.advance(after.state.limits.overrun_ms - 1)
    assert after.task("x").state == "running"
    after.advance(1)
    assert after.task("x").state is UP_FOR_RETRY


def test_each_renewal_of_a_pull_worker_is_a_word_about_its_attempt():
    world = World()
    world.queue("agents", pull=True, max_action_executing_timeout_ms=60_000)
    world.worker(pull=True, queues=("agents",))
    world.submit(task("x", queue="agents"))
    world.follow_up()
    decision = world.client(cm.ClaimTask, worker="w", incarnation="i1", lease_ms=3_600_000)
    granted = next(change for change in decision.changes if type(change).__name__ == "LeaseGranted")
    for _ in range(3):
        world.advance(50_000)
        world.renew(granted, 3_600_000)
    assert world.task("x").state == "running"
    world.advance(60_000)
    assert world.task("x").state is UP_FOR_RETRY


def test_a_worker_on_which_attempts_go_unheard_again_and_again_rests():
    world = builds(max_action_executing_timeout_ms=60_000, max_job_retries=50)
    worker = world.worker()
    world.submit(action())
    for strikes in range(1, 6):
        world.start(*world.turn())
        world.advance(60_000)
        assert (worker.row.quarantined_until > world.now) == (strikes == 5)
        world.advance(61_000)


def test_a_service_that_does_not_answer_is_tried_again_and_never_charged_to_the_worker():
    world = builds(max_job_retries=50)
    worker = world.worker()
    world.submit(action())
    for failure, strikes in (
        *((FailureClass.UNAVAILABLE, 0) for _ in range(8)),
        *((FailureClass.INTERNAL, number) for number in range(1, 5)),
        # It says nothing about the worker, neither bad nor good.
        *((FailureClass.UNAVAILABLE, 4) for _ in range(8)),
    ):
        (granted,) = world.turn()
        world.fail(granted, failure=failure)
        assert world.task("x").state is UP_FOR_RETRY
        assert (worker.strikes, worker.row.quarantined_until) == (strikes, 0)
        world.advance(70_000)
    (granted,) = world.turn()
    world.fail(granted, failure=FailureClass.INTERNAL)
    assert worker.row.quarantined_until > world.now, "the fifth of the worker's own"


# Beats.


def test_workers_are_told_to_speak_three_times_within_the_patience_of_the_least_patient_queue():
    world = World()
    assert world.state.beat_ms == world.state.limits.beat_ms == 5_000
    world.queue("builds", worker_timeout_ms=5_000)
    assert world.state.beat_ms == 5_000 // 3
    world.queue("builds", worker_timeout_ms=1)
    assert world.state.beat_ms == 100
    world.queue("builds", worker_timeout_ms=0)
    assert world.state.beat_ms == 5_000


# What cannot be.


@pytest.mark.parametrize(
    "fields",
    [
        {"max_job_retries": -1},
        {"max_job_retries": 101},
        {"unservable_ms": -1},
        {"retain_completed_for_ms": 1 << 50},
        {"client_action_timeout_ms": -1},
        {"max_action_executing_timeout_ms": -1},
        {"worker_match_logging_interval_ms": 0},
        {"worker_match_logging_interval_ms": -2},
        {"worker_match_logging_interval_ms": 999},
    ],
)
def test_a_policy_that_cannot_be_is_refused(fields: dict[str, int]):
    world = World()
    queue = world.command(cm.PutQueue, queue=cm.Queue(tenant=TENANT, name="q", **fields))
    assert world.refusal(queue).path == f"queue.{next(iter(fields))}"
