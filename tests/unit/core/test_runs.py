"""Runs from submission to end: retries, clearing, pausing, cancelling, growing, parking, schedules, the ladder."""

import pytest

from rota.core import commands as cm
from rota.core.bounds import CHANGES_PER_COMMIT_MAX, TASKS_PER_SLICE, TimeLimits
from rota.core.calendar import ScheduleSpec
from rota.core.changes import LeaseGranted, PendingSet, TasksScheduled, TasksSettled
from rota.core.errors import Refused
from rota.core.ladder import PARKED_UNSERVED
from rota.core.model import FailureClass, PriorityClass, RetryPolicy, Unservable
from rota.core.retry import may_retry, retries_allowed, retry_delay_ms
from rota.core.states import (
    CANCELLED,
    FAILED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    SKIPPED,
    SUCCESS,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
)
from rota.core.trigger import TriggerRule
from tests.unit.core.world import TENANT, World, graph, task

F = FailureClass


def busy(slots: int = 10, *, limits: TimeLimits | None = None) -> World:
    world = World(limits=limits)
    world.worker("w", slots=slots)
    return world


def finish_all(world: World) -> None:
    """Everything that can run succeeds."""
    while granted := world.turn():
        for one in granted:
            world.succeed(one)
    world.follow_up()


# Retries.


@pytest.mark.parametrize(
    ("policy", "failure", "allowed"),
    [
        (RetryPolicy(retries=2), F.USER, 2),
        (RetryPolicy(retries=2), F.FATAL, 0),
        (RetryPolicy(retries=2), F.TIMEOUT, 2),
        (RetryPolicy(retries=2, timeout_retries=0), F.TIMEOUT, 0),
        (RetryPolicy(retries=0, memory_retries=4), F.OUT_OF_MEMORY, 4),
        (RetryPolicy(retries=0, memory_retries=4), F.USER, 0),
        (RetryPolicy(retries=9), F.INTERNAL, 3),
        (RetryPolicy(retries=-1), F.USER, 3),
        (RetryPolicy(retries=-1), F.FATAL, 0),
    ],
)
def test_each_class_of_failure_has_its_own_budget(policy: RetryPolicy, failure: FailureClass, allowed: int):
    assert retries_allowed(policy, failure) == allowed
    assert [may_retry(policy, failure, tries) for tries in range(1, allowed + 2)] == [True] * allowed + [False]
    world = busy()
    world.submit(task("x", retry=policy))
    for tries in range(1, allowed + 2):
        (granted,) = world.turn()
        assert granted.attempt == tries
        world.fail(granted, failure=failure)
        # What is not the task's fault waits, also if its author did not ask for that.
        world.advance(10_000 if failure is F.INTERNAL else 0)
    assert (world.task("x").state, world.task("x").failure) == (FAILED, failure)


def test_a_task_that_leaves_its_retries_to_the_service_gets_what_the_service_has_set():
    world = busy()
    world.state.task_retries = 1
    world.submit(task("x", retry=RetryPolicy(retries=-1)))
    for _ in range(2):
        (granted,) = world.turn()
        world.fail(granted)
        world.advance(0)
    assert world.task("x").state is FAILED
    with pytest.raises(Refused, match="retries"):
        world.submit(task("y", retry=RetryPolicy(retries=-2)), run="other")


def test_a_delay_grows_up_to_its_cap_and_jitter_adds_at_most_a_tenth():
    policy = RetryPolicy(retries=9, delay_ms=1_000, multiplier=3, delay_ms_max=20_000, jitter=False)
    assert [retry_delay_ms(policy, F.USER, tries, 0) for tries in range(1, 6)] == [1_000, 3_000, 9_000, 20_000, 20_000]
    shaken = RetryPolicy(retries=9, delay_ms=1_000, multiplier=3, delay_ms_max=20_000)
    drawn = [retry_delay_ms(shaken, F.USER, 2, draw) for draw in range(2_000)]
    assert (min(drawn), max(drawn)) == (3_000, 3_300)
    assert max(retry_delay_ms(shaken, F.USER, 5, draw) for draw in range(3_000)) <= 20_000


def test_what_is_not_the_tasks_fault_waits_longer_and_longer_for_an_outage_to_end():
    impatient = RetryPolicy(jitter=False)
    assert retry_delay_ms(impatient, F.USER, 1, 0) == 0
    delays = [retry_delay_ms(impatient, F.INTERNAL, tries, 0) for tries in (1, 2, 3, 6, 7, 50)]
    assert delays == [1_000, 2_000, 4_000, 32_000, 60_000, 60_000]
    patient = RetryPolicy(delay_ms=90_000, jitter=False)
    assert retry_delay_ms(patient, F.INTERNAL, 1, 0) == 90_000, "what its author chose, if that is more"
    hasty = RetryPolicy(delay_ms=10, delay_ms_max=10)
    drawn = [retry_delay_ms(hasty, F.INTERNAL, 2, draw) for draw in range(1_000)]
    assert (min(drawn), max(drawn)) == (2_000, 2_200)


def due_after(salt: int) -> int:
    world = busy()
    world.submit(task("x", retry=RetryPolicy(retries=1, delay_ms=100_000)))
    (granted,) = world.turn()
    world.fail(granted, salt=salt)
    return world.task("x").due_at - world.now


def test_jitter_comes_from_the_salt_and_nothing_else():
    assert due_after(1) == due_after(1)
    assert len({due_after(salt) for salt in range(20)}) > 10
    assert all(100_000 <= due_after(salt) <= 110_000 for salt in range(20))


def test_a_retry_comes_when_it_is_due_and_not_before():
    world = busy()
    world.submit(task("x", retry=RetryPolicy(retries=1, delay_ms=60_000, jitter=False)))
    (granted,) = world.turn()
    world.fail(granted, error="boom")
    row = world.task("x")
    assert (row.state, row.error, row.failure) == (UP_FOR_RETRY, "boom", F.USER)
    world.advance(59_999)
    assert world.turn() == []
    world.advance(1)
    (again,) = world.turn()
    assert (again.attempt, again.fence > granted.fence) == (2, True)


def test_a_reschedule_does_not_use_the_budget():
    world = busy()
    world.submit(task("x", retry=RetryPolicy(retries=1)))
    for _ in range(5):
        (granted,) = world.turn()
        world.report(granted, cm.Outcome.RESCHEDULE, resume_at=world.now + 30_000)
        assert world.task("x").state is UP_FOR_RESCHEDULE
        world.advance(29_999)
        assert world.turn() == []
        world.advance(1)
    (granted,) = world.turn()
    world.fail(granted)
    assert world.task("x").state is UP_FOR_RETRY
    world.advance(0)
    (granted,) = world.turn()
    world.fail(granted)
    assert world.task("x").state is FAILED


def test_a_reschedule_in_the_past_or_the_far_future_is_brought_within_reason():
    world = busy()
    world.submit(task("x"))
    (granted,) = world.turn()
    world.report(granted, cm.Outcome.RESCHEDULE, resume_at=5)
    assert world.task("x").due_at == world.now
    world.advance(0)
    (granted,) = world.turn()
    world.report(granted, cm.Outcome.RESCHEDULE, resume_at=10**18)
    assert world.task("x").due_at < world.now + 40 * 86_400_000


def test_a_failure_passes_to_what_follows_and_the_run_says_which_task_it_was():
    world = busy()
    world.submit(graph(task("a"), task("b", "a")))
    (granted,) = world.turn()
    world.fail(granted)
    assert world.states() == {"a": "failed", "b": "upstream_failed"}
    assert world.result() is RunState.FAILED
    assert "a" in world.run().row.reason


# Clearing.


def test_clearing_runs_a_task_and_what_follows_again_with_a_fresh_budget():
    world = busy()
    world.submit(
        graph(task("a", retry=RetryPolicy(retries=1)), task("b", "a"), task("c", trigger_rule=TriggerRule.ALWAYS))
    )
    first = world.turn()
    for one in first:
        if world.run().graph.task_id(one.task) == "a":
            world.fail(one)
    world.advance(0)
    (again,) = world.turn()
    world.fail(again)
    assert world.states()["a"] == "failed"
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    assert world.states()["b"] == "none"
    (granted,) = world.turn()
    assert granted.attempt == 3
    world.fail(granted)
    assert world.task("a").state is UP_FOR_RETRY


def test_clearing_opens_a_run_that_has_ended():
    world = busy()
    world.submit(graph(task("a"), task("b", "a")))
    (granted,) = world.turn()
    world.fail(granted)
    assert world.result() is RunState.FAILED
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    assert world.result() is RunState.QUEUED
    finish_all(world)
    assert world.result() is RunState.SUCCESS
    assert set(world.states().values()) == {"success"}


def test_clearing_without_what_follows_leaves_it_as_it_is():
    world = busy()
    world.submit(graph(task("a"), task("b", "a")))
    finish_all(world)
    world.client(cm.ClearTasks, run="r", tasks=("a",), downstream=False)
    world.follow_up()
    assert world.states() == {"a": "queued", "b": "success"}


def test_a_run_that_was_opened_again_waits_for_its_graphs_cap_like_a_new_one():
    world = busy()
    capped = graph(task("a"), task("b"), max_active_runs=1)
    world.submit(capped, run="one")
    finish_all(world)
    world.submit(capped, run="two")
    held = world.turn()
    for name in ("a", "b"):
        world.client(cm.ClearTasks, run="one", tasks=(name,))
    assert world.turn() == []
    assert world.result("one") is RunState.QUEUED
    for one in held:
        world.succeed(one)
    assert {granted.run for granted in world.turn()} == {"one"}
    assert len(world.run("one").tasks) == 2


def test_what_is_added_to_a_run_that_waits_to_go_on_is_run_when_it_does():
    world = busy()
    capped = graph(task("a"), max_active_runs=1)
    world.submit(capped, run="one")
    finish_all(world)
    world.submit(capped, run="two")
    (held,) = world.turn()
    world.client(cm.ClearTasks, run="one", tasks=("a",))
    world.client(cm.GrowRun, run="one", specs=(task("late"),))
    world.succeed(held)
    finish_all(world)
    assert world.states("one") == {"a": "success", "late": "success"}
    assert world.result("one") is RunState.SUCCESS


def test_a_cancelled_run_can_be_cleared_and_finished():
    world = busy(slots=1)
    world.submit(graph(task("a", width=3)))
    (granted,) = world.turn()
    world.succeed(granted)
    world.client(cm.CancelRun, run="r")
    world.follow_up()
    assert world.result() is RunState.CANCELLED
    world.client(cm.ClearTasks, run="r", tasks=("a[1]", "a[2]"))
    finish_all(world)
    assert world.result() is RunState.SUCCESS


def test_clearing_what_is_at_work_or_unknown_is_refused():
    world = busy()
    world.submit(graph(task("a"), task("b", "a", width=2)))
    world.turn()
    assert world.refusal(world.command(cm.ClearTasks, run="r", tasks=("a",))).code == "run.at_work"
    assert world.refusal(world.command(cm.ClearTasks, run="r", tasks=("z",))).code == "task.unknown"
    assert world.refusal(world.command(cm.ClearTasks, run="none", tasks=("a",))).code == "run.unknown"


@pytest.mark.parametrize("name", ["b[", "b[]", "b[x]", "b[-1]", "b[2]", "b[1", "b[1]x", "b[²]", "[0]"])
def test_a_task_name_that_cannot_be_read_is_refused(name: str):
    world = busy()
    world.submit(graph(task("a"), task("b", width=2)))
    finish_all(world)
    refused = world.refusal(world.command(cm.ClearTasks, run="r", tasks=(name,)))
    assert (refused.code, refused.path) == ("task.unknown", "task")


def test_a_group_is_not_mistaken_for_its_first_task():
    """Clearing `b` clears all of it, or is refused; never one task in silence."""
    world = busy()
    world.submit(graph(task("b", width=3)))
    finish_all(world)
    try:
        world.client(cm.ClearTasks, run="r", tasks=("b",))
    except Refused as refused:
        assert refused.code == "task.unknown"
    else:
        world.follow_up()
        assert set(world.states().values()) == {"queued"}


def test_clearing_a_failed_producer_lets_what_is_mapped_over_it_have_its_width():
    world = busy()
    world.submit(graph(task("a"), task("m", "a", width=0)))
    (granted,) = world.turn()
    world.fail(granted)
    assert world.result() is RunState.FAILED
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    (granted,) = world.turn()
    world.succeed(granted, expands=(("m", 4),))
    assert len(world.turn()) == 4


def test_clearing_a_producer_of_nothing_does_not_run_what_is_mapped_over_it():
    world = busy()
    world.submit(graph(task("a"), task("m", "a", width=0)))
    (granted,) = world.turn()
    world.succeed(granted, expands=(("m", 0),))
    world.client(cm.ClearTasks, run="r", tasks=("a",))
    (granted,) = world.turn()
    world.succeed(granted, expands=(("m", 0),))
    assert world.turn() == []
    assert world.result() is RunState.SUCCESS


# Pausing.


def test_a_paused_run_finishes_what_runs_and_starts_nothing():
    world = busy(slots=1)
    world.submit(graph(task("a", width=2), task("b", "a")))
    (granted,) = world.turn()
    world.client(cm.PauseRun, run="r")
    assert world.client(cm.PauseRun, run="r").changes == []
    world.succeed(granted)
    assert world.turn() == []
    world.client(cm.PauseRun, run="r", paused=False)
    assert len(world.turn()) == 1
    assert world.state.index.queued == 0


# Cancelling and time limits.


def test_five_thousand_tasks_are_cancelled_in_slices():
    world = busy(slots=3)
    world.submit(graph(task("a", width=5_000), task("b", "a", width=500)))
    held = world.turn()
    before = len(world.changes)
    world.client(cm.CancelRun, run="r", reason="enough")
    slices = 0
    while world.state.continues:
        decision = world.do(cm.ContinueRun(tenant=TENANT, run="r"))
        moved = sum(len(change.tasks) for change in decision.changes if isinstance(change, TasksSettled))
        assert moved <= TASKS_PER_SLICE
        assert len(decision.changes) < CHANGES_PER_COMMIT_MAX
        slices += 1
    assert slices == 6
    assert world.result() is RunState.CANCELLED
    assert world.run().row.reason == "enough"
    assert set(world.states().values()) == {"cancelled"}
    assert not world.state.leases
    assert world.succeed(held[0]) == "already_ended"
    assert len(world.changes) - before < 100


def test_cancelling_twice_or_after_the_end_changes_nothing():
    world = busy()
    world.submit(task("x"))
    world.turn()
    world.client(cm.CancelRun, run="r")
    assert world.client(cm.CancelRun, run="r").changes == []
    world.follow_up()
    assert world.client(cm.CancelRun, run="r").changes == []
    assert world.result() is RunState.CANCELLED


def test_a_report_between_cancel_and_its_slices_is_still_taken():
    world = busy()
    world.submit(graph(task("a"), task("b", "a")))
    (granted,) = world.turn()
    world.client(cm.CancelRun, run="r")
    assert world.succeed(granted) == "accepted"
    world.follow_up()
    assert world.states() == {"a": "success", "b": "cancelled"}
    assert world.result() is RunState.CANCELLED


def test_a_run_out_of_time_fails_and_takes_its_tasks_with_it():
    world = busy()
    world.submit(graph(task("a"), task("b", "a"), run_timeout_ms=60_000))
    (granted,) = world.turn()
    world.start(granted)
    world.advance(59_999)
    assert world.result() is RunState.RUNNING
    world.advance(1)
    assert world.result() is RunState.FAILED
    assert "time limit" in world.run().row.reason
    assert world.states() == {"a": "cancelled", "b": "cancelled"}


def test_an_ended_run_is_archived_after_a_minute_and_its_graph_after_another():
    world = busy()
    world.submit(task("x"))
    finish_all(world)
    world.advance(world.state.limits.retain_ended_ms - 1)
    assert world.state.runs
    world.advance(1)
    assert not world.state.runs
    assert world.state.graphs
    world.advance(world.state.limits.retain_ended_ms)
    assert not world.state.graphs


def test_a_run_that_cannot_move_fails_and_names_what_never_started():
    world = busy()
    world.submit(graph(task("a"), task("m", "a", width=0), task("z", "m")))
    (granted,) = world.turn()
    world.succeed(granted)
    assert world.result() is RunState.FAILED
    assert "deadlock" in world.run().row.reason
    assert "m" in world.run().row.reason
    assert "z" in world.run().row.reason


# Growing.


def test_a_task_mapped_over_a_result_has_as_many_tasks_as_it_says():
    world = busy()
    world.submit(graph(task("a"), task("m", "a", width=0), task("z", "m")))
    (granted,) = world.turn()
    world.succeed(granted, expands=(("m", 3),))
    made = world.turn()
    assert len(made) == 3
    assert {world.run().graph.task_id(one.task) for one in made} == {"m[0]", "m[1]", "m[2]"}
    finish_all_from(world, made)
    assert world.states() == {"a": "success", "m[0]": "success", "m[1]": "success", "m[2]": "success", "z": "success"}


def finish_all_from(world: World, held: list[LeaseGranted]) -> None:
    for one in held:
        world.succeed(one)
    finish_all(world)


def test_a_task_mapped_over_nothing_is_one_skipped_task():
    world = busy()
    world.submit(
        graph(task("a"), task("m", "a", width=0), task("z", "m"), task("n", "m", trigger_rule=TriggerRule.ALL_DONE))
    )
    (granted,) = world.turn()
    world.succeed(granted, expands=(("m", 0),))
    assert world.task("m[0]").state is SKIPPED
    assert world.task("z").state is SKIPPED
    finish_all(world)
    assert world.task("n").state is SUCCESS
    assert world.result() is RunState.SUCCESS


def test_tasks_added_to_a_living_run_run_after_what_they_wait_for():
    world = busy()
    world.submit(graph(task("a"), task("b", "a")))
    (granted,) = world.turn()
    world.client(cm.GrowRun, run="r", specs=(task("c", "a", "d"), task("d")))
    assert {world.run().graph.task_id(one.task) for one in world.turn()} == {"d"}
    world.succeed(granted)
    finish_all(world)
    for lease in list(world.state.leases.values()):
        world.report(
            granted, cm.Outcome.SUCCESS, task=lease.task.idx, fence=lease.fence, incarnation=lease.task.incarnation
        )
    finish_all(world)
    assert set(world.states().values()) == {"success"}
    assert world.result() is RunState.SUCCESS


def test_a_task_added_after_its_upstream_ended_is_judged_at_once():
    world = busy()
    world.submit(graph(task("a"), task("b")))
    by_name = {world.run().graph.task_id(one.task): one for one in world.turn()}
    world.fail(by_name["a"])
    world.client(cm.GrowRun, run="r", specs=(task("c", "a"), task("d", "a", trigger_rule=TriggerRule.ALL_FAILED)))
    assert world.states() == {"a": "failed", "b": "assigned", "c": "upstream_failed", "d": "queued"}


def test_an_ended_run_does_not_grow():
    world = busy()
    world.submit(task("x"))
    finish_all(world)
    assert world.refusal(world.command(cm.GrowRun, run="r", specs=(task("y"),))).code == "run.ended"


def test_a_thousand_tasks_that_feed_a_thousand_cost_one_countdown():
    world = busy(slots=1_000)
    world.submit(graph(task("a", width=1_000), task("b", "a", width=1_000)))
    held = world.turn()
    assert len(world.run().graph.ups[1]) == 1
    before = len(world.changes)
    for one in held:
        world.succeed(one)
    made = world.changes[before:]
    assert len(made) <= 1_000 + 5
    scheduled = [change for change in made if isinstance(change, TasksScheduled)]
    assert [len(change.tasks) for change in scheduled] == [1_000]
    assert world.run().success is not None
    assert list(world.run().success or ()) == [0, 1_000]


def test_a_wide_stage_is_scheduled_in_slices():
    world = busy(slots=1)
    world.submit(graph(task("a", width=2_500)))
    world.follow_up()
    scheduled = [len(change.tasks) for change in world.changes if isinstance(change, TasksScheduled)]
    assert scheduled == [1_000, 1_000, 500]
    assert sum(isinstance(change, PendingSet) for change in world.changes) == 3


def test_clearing_a_wide_stage_moves_no_more_than_a_slice_at_a_time():
    world = busy(slots=3_000)
    world.submit(graph(task("a", width=2_500), task("b", trigger_rule=TriggerRule.ALWAYS)))
    held = [one for one in world.turn() if one.task != 2_500]
    for one in held:
        world.succeed(one)
    decision = world.client(cm.ClearTasks, run="r", tasks=tuple(f"a[{number}]" for number in range(2_500)))
    scheduled = [change for change in decision.changes if isinstance(change, TasksScheduled)]
    assert all(len(change.tasks) <= TASKS_PER_SLICE for change in scheduled)


def test_a_success_that_decides_nothing_else_changes_nothing_else():
    world = busy()
    world.submit(graph(task("a"), task("b"), task("c", "a", "b")))
    first, second = world.turn()
    before = len(world.changes)
    world.succeed(first)
    assert len(world.changes) == before + 1
    world.succeed(second)
    assert len(world.changes) == before + 3


# Parked tasks.


def parked() -> World:
    world = busy(slots=1)
    world.submit(graph(task("x", retry=RetryPolicy(retries=1)), task("y", "x")))
    for _ in range(5):
        (granted,) = world.turn()
        world.start(granted)
        world.interrupt(granted)
    assert world.task("x").state is NEEDS_ATTENTION
    return world


def test_a_parked_task_may_be_requeued_at_no_cost():
    world = parked()
    world.client(cm.ResolveTask, run="r", task="x")
    row = world.task("x")
    assert (row.state, row.attempt, row.interruptions, row.avoid) == (QUEUED, 0, 0, "")
    finish_all(world)
    assert world.result() is RunState.SUCCESS


def test_a_parked_task_may_be_given_other_requirements():
    world = parked()
    world.worker("big", properties=(("cpu_count", "8"),))
    world.client(cm.ResolveTask, run="r", task="x", requires=(("cpu_count", "8"),))
    (granted,) = world.turn()
    assert granted.worker == "big"
    refused = None
    with pytest.raises(Refused) as caught:
        world.client(cm.ResolveTask, run="r", task="x")
    refused = caught.value
    assert (refused.code, refused.path) == ("task.not_parked", "task")


def test_a_parked_task_may_be_failed_or_cancelled():
    world = parked()
    world.client(cm.ResolveTask, run="r", task="x", exit=cm.Exit.FAIL)
    assert world.states() == {"x": "failed", "y": "upstream_failed"}
    assert world.result() is RunState.FAILED
    world = parked()
    world.client(cm.ResolveTask, run="r", task="x", exit=cm.Exit.CANCEL)
    assert world.task("x").state is CANCELLED
    assert world.states()["y"] == "upstream_failed"


def test_unreadable_requirements_for_a_parked_task_are_refused():
    world = parked()
    command = world.command(cm.ResolveTask, run="r", task="x", requires=(("cpu_count", "many"),))
    assert world.refusal(command).code == "requirement.value"


# Commands that come twice.


def test_a_command_that_comes_twice_is_answered_and_not_repeated():
    world = busy()
    submit = cm.SubmitRun(tenant=TENANT, command_id="c", run="r", graph=graph(task("x")))
    world.do(submit)
    again = world.do(submit)
    assert (again.answer, again.changes, again.is_repeat) == ("r", [], True)
    finish_all(world)
    world.advance(world.state.limits.retain_ended_ms)
    assert not world.state.runs
    again = world.do(submit)
    assert (again.answer, again.changes, again.is_repeat) == ("r", [], True)


def test_a_retry_is_known_by_its_content_and_not_by_its_salt():
    world = busy()
    world.submit(task("x"))
    world.do(cm.PauseRun(tenant=TENANT, command_id="p", run="r", salt=1))
    assert world.do(cm.PauseRun(tenant=TENANT, command_id="p", run="r", salt=2)).is_repeat


def test_a_command_id_used_for_something_else_is_refused():
    world = busy()
    world.submit(task("x"), command_id="c")
    world.do(cm.PauseRun(tenant=TENANT, command_id="p", run="r"))
    for reused in (
        cm.PauseRun(tenant=TENANT, command_id="p", run="r", paused=False),
        cm.CancelRun(tenant=TENANT, command_id="p", run="r"),
        cm.CancelRun(tenant=TENANT, command_id="c", run="r"),
        cm.SubmitRun(tenant=TENANT, command_id="c", run="s", graph=graph(task("x"))),
    ):
        refused = world.refusal(reused)
        assert (refused.code, refused.path) == ("command.id_reused", "command_id")


def test_a_submission_with_other_content_under_a_used_id_is_refused():
    world = busy()
    world.do(cm.SubmitRun(tenant=TENANT, command_id="c", run="r", graph=graph(task("x"))))
    other = cm.SubmitRun(
        tenant=TENANT, command_id="c", run="r", graph=graph(task("something else")), priority=PriorityClass.URGENT
    )
    assert world.refusal(other).code == "command.id_reused"


def test_an_answer_is_kept_for_an_hour():
    world = busy()
    world.submit(task("x", width=2))
    world.turn()
    world.do(cm.PauseRun(tenant=TENANT, command_id="p", run="r"))
    world.advance(3_600_000 - 1)
    assert (TENANT, "p") in world.state.receipts
    world.advance(1)
    assert (TENANT, "p") not in world.state.receipts


# Schedules.

MINUTE = 60_000


def scheduled(world: World, **fields: object) -> None:
    spec = ScheduleSpec(every_ms=MINUTE, **fields)
    world.client(cm.PutSchedule, schedule="s", graph=graph(task("x"), name="s"), spec=spec)
    world.fire_due()


def made_by(world: World) -> list[int]:
    return [run.row.slot_at for run in world.state.runs.values() if run.row.schedule == "s"]


LONG = TimeLimits(retain_ended_ms=10**9)


def test_a_slot_fires_once_across_repeated_looks_and_restarts():
    world = busy(limits=LONG)
    scheduled(world)
    world.advance(3 * MINUTE)
    before = made_by(world)
    assert len(before) == len(set(before)) == 3
    for _ in range(3):
        world.fire("schedule", (TENANT, "s"))
    assert made_by(world) == before
    after = world.restarted()
    after.fire_due()
    assert sorted(made_by(after)) == before
    after.advance(MINUTE)
    assert len(made_by(after)) == 4


def test_at_the_cap_the_newest_slot_is_held_without_catch_up_and_all_of_them_with_it():
    world = busy(limits=LONG)
    scheduled(world, max_active_runs=1)
    world.advance(3 * MINUTE)
    assert len(made_by(world)) == 1
    assert world.state.schedules[(TENANT, "s")].missed == 1
    (granted,) = world.turn()
    world.succeed(granted)
    world.fire_due()
    assert len(made_by(world)) == 2
    world = busy(limits=LONG)
    scheduled(world, max_active_runs=1, catch_up=True, start_at=world.now)
    world.advance(3 * MINUTE)
    assert len(made_by(world)) == 1
    assert world.state.schedules[(TENANT, "s")].missed == 0
    for number in range(2, 4):
        (granted,) = world.turn()
        world.succeed(granted)
        world.fire_due()
        assert len(made_by(world)) == number


def test_a_manual_run_moves_no_cursor_and_a_dropped_schedule_fires_no_more():
    world = busy(limits=LONG)
    scheduled(world)
    world.advance(MINUTE)
    cursor = world.state.schedules[(TENANT, "s")].cursor
    world.submit(graph(task("x"), name="s"), run="by hand")
    world.follow_up()
    assert world.state.schedules[(TENANT, "s")].cursor == cursor
    world.client(cm.DropSchedule, schedule="s")
    world.advance(10 * MINUTE)
    assert len(made_by(world)) == 1


def test_a_schedule_that_is_put_again_fires_each_slot_once():
    world = busy(limits=LONG)
    scheduled(world)
    for _ in range(3):
        scheduled(world)
        world.advance(MINUTE)
    assert len(made_by(world)) == 3


def test_a_schedules_timers_do_not_multiply():
    world = busy()
    for _ in range(20):
        scheduled(world)
    for _ in range(20):
        world.fire("schedule", (TENANT, "s"))
    world.advance(10 * MINUTE)
    assert sum(kind == "schedule" for _, _, kind, _ in world.state.timers) <= 2


# The ladder.


def climbed(world: World, sweeps: int) -> list[tuple[int, int]]:
    """Cycles and tier of task x after each sweep."""
    found: list[tuple[int, int]] = []
    for _ in range(sweeps):
        world.sweep()
        found.append((world.task("x").cycles, world.task("x").tier))
        world.advance(world.state.limits.sweep_ms)
    return found


def test_a_task_behind_busy_workers_never_climbs():
    world = busy(slots=1)
    world.submit(task("x", width=1), run="running")
    world.submit(task("x"), run="r")
    world.turn()
    world.advance(3_600_000)
    assert climbed(world, 20) == [(0, 0)] * 20


def test_a_task_whose_only_worker_is_away_never_climbs():
    world = busy(slots=1)
    world.disconnect("w")
    world.submit(task("x"))
    world.turn()
    world.advance(600_000)
    assert climbed(world, 12) == [(0, 0)] * 12


def test_a_task_nobody_can_serve_climbs_after_two_minutes_and_is_parked_on_the_tenth_cycle():
    world = busy()
    world.submit(task("x", kind="rare"))
    world.worker("other", kinds=("command",))
    world.worker("w", kinds=("command",))
    world.turn()
    world.advance(119_999)
    world.sweep()
    assert world.task("x").cycles == 0
    world.advance(1)
    tiers = [tier for _, tier in climbed(world, 10)]
    assert tiers == [0, 1, 1, 2, 2, 3, 3, 3, 3, 4]
    row = world.task("x")
    assert row.state is NEEDS_ATTENTION
    assert PARKED_UNSERVED in row.error
    assert climbed(world, 2)[-1][0] == 10
    world.client(cm.ResolveTask, run="r", task="x")
    assert (row.state, row.cycles, row.tier) == (QUEUED, 0, 0)


def test_the_ladder_goes_on_where_it_was_after_a_restart():
    world = World()
    world.submit(task("x"))
    world.turn()
    world.advance(120_000)
    climbed(world, 5)
    after = world.restarted()
    assert [cycles for cycles, _ in climbed(after, 2)] == [6, 7]


def test_a_task_that_becomes_servable_stops_climbing():
    world = World()
    world.submit(task("x"))
    world.turn()
    world.advance(120_000)
    climbed(world, 3)
    world.worker("w")
    world.disconnect("w")
    assert climbed(world, 5)[-1][0] == 3


def test_where_the_queue_says_fail_an_unservable_task_fails_after_a_minute():
    world = World()
    world.queue("builds", unservable=Unservable.FAIL)
    world.submit(graph(task("x", queue="builds"), task("y", "x")))
    world.turn()
    world.advance(59_999)
    world.sweep()
    assert world.task("x").state is QUEUED
    world.advance(1)
    world.sweep()
    row = world.task("x")
    assert (row.state, row.failure) == (FAILED, F.FATAL)
    assert "worker.none_match" in row.error
    assert world.states()["y"] == "upstream_failed"
    assert world.result() is RunState.FAILED


def test_every_unservable_task_gets_its_turn_on_the_ladder_though_there_are_thousands():
    world = World()
    world.submit(graph(task("x", width=500)))
    world.turn()
    world.advance(120_000)
    for _ in range(40):
        world.sweep()
    assert {row.state for row in world.run().tasks.values()} == {NEEDS_ATTENTION}
    assert NONE not in world.states().values()
