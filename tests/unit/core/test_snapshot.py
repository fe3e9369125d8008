"""Planning a run from a snapshot: retries, rules to a fixed point, results, teardowns, deadlocks."""

import random
from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.snapshot import (
    PlannedTransition,
    RunSnapshot,
    SnapshotTask,
    deadlocked_tasks,
    effective_rule,
    finalize_run,
    plan_run,
    relevant_setups,
    with_transitions,
)
from rota.core.states import TASK_MOVES, TASK_RESETS, TERMINAL, RunState, TaskState
from rota.core.trigger import TriggerRule

S = TaskState
RUNNING = (None, False)
SUCCEEDED = (RunState.SUCCESS, True)
FAILED = (RunState.FAILED, True)


def task(id: str, *upstream: str, rule: str = "all_success") -> SnapshotTask:
    return SnapshotTask(id=id, upstream=upstream, trigger_rule=TriggerRule(rule))


def setup(id: str, *upstream: str) -> SnapshotTask:
    return SnapshotTask(id=id, upstream=upstream, is_setup=True)


def teardown(id: str, *upstream: str, fails_run: bool = False) -> SnapshotTask:
    return SnapshotTask(id=id, upstream=upstream, is_teardown=True, on_failure_fail_run=fails_run)


def snapshot(*tasks: SnapshotTask, state: RunState = RunState.RUNNING, **states: TaskState) -> RunSnapshot:
    return RunSnapshot(run_id="r", graph_id="g", tenant="t", tasks=tasks, state=state, states=states)


def plan(*tasks: SnapshotTask, **states: TaskState) -> list[tuple[str, str]]:
    return [(move.task_id, move.to.value) for move in plan_run(snapshot(*tasks, **states))]


def started(id: str) -> list[tuple[str, str]]:
    return [(id, "scheduled"), (id, "queued")]


# Rules and propagation.


def test_a_root_is_scheduled_and_queued_in_one_call_while_its_downstream_waits():
    assert plan(task("a"), task("b", "a")) == started("a")


def test_a_scheduled_task_is_queued():
    assert plan(task("a"), a=S.SCHEDULED) == [("a", "queued")]


def test_a_success_starts_the_downstream():
    assert plan(task("a"), task("b", "a"), a=S.SUCCESS) == started("b")


def test_a_failure_is_passed_on():
    assert plan(task("a"), task("b", "a"), a=S.FAILED) == [("b", "upstream_failed")]


def test_an_all_done_task_runs_after_a_failure():
    assert plan(task("a"), task("b", "a", rule="all_done"), a=S.FAILED) == started("b")


def test_a_failure_settles_a_chain_of_ten_in_one_call():
    chain = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 10))]
    run = snapshot(*chain, t0=S.FAILED)
    moves = plan_run(run)
    assert moves == [PlannedTransition(f"t{n}", S.UPSTREAM_FAILED) for n in range(1, 10)]
    assert finalize_run(with_transitions(run, moves)) == FAILED


def test_a_chain_listed_backwards_settles_in_one_call_too():
    chain = [*(task(f"t{n}", f"t{n - 1}") for n in range(9, 0, -1)), task("t0")]
    assert plan(*chain, t0=S.SKIPPED) == [(f"t{n}", "skipped") for n in range(1, 10)]


def test_a_decision_feeds_the_clean_up_behind_it():
    moves = plan(task("a"), task("b", "a"), task("c", "b", rule="all_done"), a=S.FAILED)
    assert moves == [("b", "upstream_failed"), *started("c")]


@pytest.mark.parametrize("order", list(permutations("bcd")), ids="".join)
def test_a_task_sees_all_its_upstreams_settled_before_it_is_judged(order: tuple[str, ...]):
    # d would be skipped if it were judged between b and c, both of which are decided in this very call.
    tasks = {"b": task("b", "x"), "c": task("c", "y"), "d": task("d", "b", "c")}
    moves = plan(*(tasks[name] for name in order), task("x"), task("y"), x=S.SKIPPED, y=S.FAILED)
    assert sorted(moves) == [("b", "skipped"), ("c", "upstream_failed"), ("d", "upstream_failed")]


@pytest.mark.parametrize("held", [S.RUNNING, S.ASSIGNED, S.QUEUED, S.NEEDS_ATTENTION, S.UP_FOR_RESCHEDULE])
def test_an_active_task_is_waited_for(held: TaskState):
    run = snapshot(task("a"), task("b", "a"), a=held)
    assert finalize_run(run) == RUNNING
    assert [move.task_id for move in plan_run(run)] == []


def test_a_cancelled_upstream_is_a_failed_one():
    assert plan(task("a"), task("b", "a"), a=S.CANCELLED) == [("b", "upstream_failed")]


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_only_a_running_run_is_planned(state: RunState):
    assert plan_run(snapshot(task("a"), state=state)) == []


# Retries.


def retrying(state: TaskState, tries: int = 1, max_tries: int = 3, **fields: object) -> RunSnapshot:
    run = snapshot(task("a"), task("b", "a"), a=state)
    return msgspec.structs.replace(run, tries={"a": tries}, max_tries={"a": max_tries}, **fields)


def cooling(now: int | None, delay_s: int = 60, ended_at: int | None = 1_000) -> list[PlannedTransition]:
    return plan_run(retrying(S.UP_FOR_RETRY, ended_at={"a": ended_at}, retry_delay_s={"a": delay_s}, now=now))


RETRIED = [PlannedTransition("a", state) for state in (S.NONE, S.SCHEDULED, S.QUEUED)]


def test_a_failure_with_tries_left_is_retried_and_its_downstream_waits():
    assert plan_run(retrying(S.FAILED)) == [PlannedTransition("a", S.UP_FOR_RETRY)]


def test_a_failure_without_tries_left_is_final():
    assert plan_run(retrying(S.FAILED, tries=3)) == [PlannedTransition("b", S.UPSTREAM_FAILED)]


@pytest.mark.parametrize("unknown", ["tries", "max_tries"])
def test_a_task_whose_tries_are_not_known_has_none_left(unknown: str):
    run = msgspec.structs.replace(retrying(S.FAILED), **{unknown: {}})
    assert plan_run(run) == [PlannedTransition("b", S.UPSTREAM_FAILED)]


@pytest.mark.parametrize("end", [S.CANCELLED, S.UPSTREAM_FAILED, S.SKIPPED, S.SUCCESS])
def test_only_a_failure_is_retried(end: TaskState):
    assert "a" not in [move.task_id for move in plan_run(retrying(end))]


def test_a_retry_starts_afresh_and_counts_one_try_more():
    run = retrying(S.UP_FOR_RETRY, tries=2, max_tries=5)
    moves = plan_run(run)
    assert moves == RETRIED
    after = with_transitions(run, moves)
    assert (after.tries["a"], after.states["a"]) == (3, S.QUEUED)


def test_nothing_but_a_retry_counts_a_try():
    cleared = with_transitions(retrying(S.SUCCESS), [PlannedTransition("a", S.NONE)])
    given_up = with_transitions(retrying(S.UP_FOR_RETRY), [PlannedTransition("a", S.CANCELLED)])
    assert cleared.tries == given_up.tries == {"a": 1}


def test_a_retry_goes_through_its_rule_again():
    tasks = task("a"), task("b", "a")
    run = snapshot(*tasks, a=S.RUNNING, b=S.UP_FOR_RETRY)
    assert plan_run(run) == [PlannedTransition("b", S.NONE)]
    run = snapshot(*tasks, a=S.FAILED, b=S.UP_FOR_RETRY)
    assert plan_run(run) == [PlannedTransition("b", S.NONE), PlannedTransition("b", S.UPSTREAM_FAILED)]


def test_a_retry_is_held_during_its_delay():
    assert cooling(now=11_000) == []
    assert cooling(now=60_999) == []


def test_a_retry_is_released_when_its_delay_is_over():
    assert cooling(now=61_000) == RETRIED
    assert cooling(now=62_000) == RETRIED


@pytest.mark.parametrize("delay_s", [0, -5])
def test_a_retry_without_delay_is_released_at_once(delay_s: int):
    assert cooling(now=0, delay_s=delay_s) == RETRIED


def test_a_retry_that_ended_nobody_knows_when_is_released_at_once():
    assert cooling(now=1_000, ended_at=None) == RETRIED
    assert plan_run(retrying(S.UP_FOR_RETRY, retry_delay_s={"a": 60}, now=1_000)) == RETRIED


def test_without_a_clock_the_gate_is_open():
    assert cooling(now=None) == RETRIED


def test_retries_come_before_everything_else():
    tasks = task("a"), task("b"), task("c")
    run = msgspec.structs.replace(snapshot(*tasks, b=S.UP_FOR_RETRY, c=S.FAILED), tries={"c": 1}, max_tries={"c": 2})
    assert [(move.task_id, move.to) for move in plan_run(run)] == [
        ("b", S.NONE),
        ("c", S.UP_FOR_RETRY),
        *started("a"),
        *started("b"),
    ]


def test_a_run_does_not_end_while_a_failure_may_be_retried():
    alone = snapshot(task("a"), a=S.FAILED)
    assert finalize_run(alone) == FAILED
    assert finalize_run(msgspec.structs.replace(alone, tries={"a": 1}, max_tries={"a": 2})) == RUNNING
    assert finalize_run(msgspec.structs.replace(alone, states={"a": S.UP_FOR_RETRY}, now=0)) == RUNNING


# Results.


def test_a_run_ends_when_all_its_tasks_have_succeeded():
    tasks = task("a"), task("b", "a")
    assert finalize_run(snapshot(*tasks)) == RUNNING
    assert finalize_run(snapshot(*tasks, a=S.SUCCESS)) == RUNNING
    assert finalize_run(snapshot(*tasks, a=S.SUCCESS, b=S.RUNNING)) == RUNNING
    assert finalize_run(snapshot(*tasks, a=S.SUCCESS, b=S.SUCCESS)) == SUCCEEDED


def test_a_run_in_which_everything_was_skipped_succeeded():
    assert finalize_run(snapshot(task("a"), task("b", "a"), a=S.SKIPPED, b=S.SKIPPED)) == SUCCEEDED


@pytest.mark.parametrize("end", [S.FAILED, S.UPSTREAM_FAILED, S.CANCELLED])
def test_a_run_with_a_bad_leaf_failed(end: TaskState):
    assert finalize_run(snapshot(task("a"), task("b"), a=S.SUCCESS, b=end)) == FAILED


def test_a_clean_up_leaf_that_succeeded_makes_the_run_a_success():
    tasks = task("work"), task("clean", "work", rule="all_done")
    assert finalize_run(snapshot(*tasks, work=S.FAILED)) == RUNNING
    assert finalize_run(snapshot(*tasks, work=S.FAILED, clean=S.SUCCESS)) == SUCCEEDED
    assert finalize_run(snapshot(*tasks, work=S.SUCCESS, clean=S.FAILED)) == FAILED


def test_a_run_is_not_done_while_the_plan_still_owes_a_move():
    run = snapshot(task("a"), task("b", "a"), a=S.FAILED)
    assert finalize_run(run) == RUNNING
    assert finalize_run(with_transitions(run, plan_run(run))) == FAILED


@pytest.mark.parametrize("state", [RunState.SUCCESS, RunState.FAILED, RunState.CANCELLED])
def test_an_ended_run_stays_as_it_ended(state: RunState):
    run = snapshot(task("a"), state=state)
    assert finalize_run(run) == (state, True)
    assert deadlocked_tasks(run) == ()


def test_a_queued_run_has_not_been_admitted_and_does_not_end():
    run = snapshot(task("a", "nowhere"), state=RunState.QUEUED, a=S.SUCCESS)
    assert finalize_run(run) == RUNNING
    assert deadlocked_tasks(run) == ()


# Setups and teardowns.

CLUSTER = (setup("make"), task("use", "make"), teardown("drop", "make", "use"))


def test_a_teardown_runs_although_the_work_failed_and_the_run_still_fails():
    run = snapshot(*CLUSTER, make=S.SUCCESS, use=S.FAILED)
    assert plan_run(run) == [PlannedTransition("drop", S.SCHEDULED), PlannedTransition("drop", S.QUEUED)]
    assert finalize_run(run) == RUNNING
    for end in (S.SUCCESS, S.FAILED):
        assert finalize_run(snapshot(*CLUSTER, make=S.SUCCESS, use=S.FAILED, drop=end)) == FAILED


def test_a_teardowns_rule_is_its_own_whatever_the_task_says():
    assert [effective_rule(one) for one in CLUSTER] == ["all_success", "all_success", "all_done_setup_success"]
    assert ("drop", "scheduled") in plan(*CLUSTER, make=S.SUCCESS, use=S.SKIPPED)


@pytest.mark.parametrize("active", [S.QUEUED, S.ASSIGNED, S.RUNNING, S.UP_FOR_RETRY, S.NEEDS_ATTENTION])
def test_a_run_is_not_done_until_its_teardown_has_ended(active: TaskState):
    assert finalize_run(snapshot(*CLUSTER, make=S.SUCCESS, use=S.SUCCESS, drop=active)) == RUNNING


def test_a_failed_teardown_does_not_fail_the_run_unless_it_says_so():
    ends = {"make": S.SUCCESS, "use": S.SUCCESS, "drop": S.FAILED}
    assert finalize_run(snapshot(*CLUSTER, **ends)) == SUCCEEDED
    strict = (*CLUSTER[:2], teardown("drop", "make", "use", fails_run=True))
    assert finalize_run(snapshot(*strict, **ends)) == FAILED


def test_a_teardown_that_counts_for_the_run_is_its_leaf_and_hides_the_work_above_it_as_in_airflow():
    strict = (*CLUSTER[:2], teardown("drop", "make", "use", fails_run=True))
    assert finalize_run(snapshot(*strict, make=S.SUCCESS, use=S.FAILED, drop=S.SUCCESS)) == SUCCEEDED


def test_after_a_failed_setup_neither_work_nor_teardown_run():
    run = snapshot(*CLUSTER, make=S.FAILED)
    moves = plan_run(run)
    assert moves == [PlannedTransition("use", S.UPSTREAM_FAILED), PlannedTransition("drop", S.UPSTREAM_FAILED)]
    assert finalize_run(with_transitions(run, moves)) == FAILED


def test_after_a_skipped_setup_work_and_teardown_are_skipped():
    run = snapshot(*CLUSTER, make=S.SKIPPED)
    moves = plan_run(run)
    assert moves == [PlannedTransition("use", S.SKIPPED), PlannedTransition("drop", S.SKIPPED)]
    assert finalize_run(with_transitions(run, moves)) == SUCCEEDED


def test_what_follows_a_teardown_does_not_make_the_work_above_it_an_inner_task():
    tasks = (*CLUSTER, task("report", "drop", rule="all_done"))
    ends = {"make": S.SUCCESS, "use": S.FAILED, "drop": S.SUCCESS, "report": S.SUCCESS}
    assert finalize_run(snapshot(*tasks, **ends)) == FAILED


def test_in_a_graph_of_nothing_but_teardowns_the_last_one_counts():
    tasks = teardown("a"), teardown("b", "a")
    assert finalize_run(snapshot(*tasks, a=S.FAILED, b=S.SUCCESS)) == SUCCEEDED
    assert finalize_run(snapshot(*tasks, a=S.SUCCESS, b=S.FAILED)) == FAILED


def test_an_all_done_task_deep_inside_a_scope_does_not_run_without_its_resource():
    tasks = setup("make"), task("a", "make"), task("b", "a", rule="all_done"), teardown("drop", "make", "b")
    assert plan(*tasks, make=S.FAILED) == [(name, "upstream_failed") for name in ("a", "b", "drop")]
    assert plan(*tasks, make=S.SKIPPED) == [(name, "skipped") for name in ("a", "b", "drop")]


def test_an_all_done_task_after_the_teardown_runs_without_the_resource():
    tasks = (*CLUSTER, task("report", "drop", rule="all_done"))
    assert plan(*tasks, make=S.FAILED)[-2:] == started("report")


def test_a_retriable_setup_holds_back_what_needs_it():
    tasks = (
        setup("make"),
        task("a"),
        task("b", "make", "a"),
        task("c", "b", rule="always"),
        task("d", "b", rule="all_done"),
    )
    run = snapshot(*tasks, make=S.FAILED, a=S.SUCCESS)
    run = msgspec.structs.replace(run, tries={"make": 1}, max_tries={"make": 2})
    assert [move.task_id for move in plan_run(run)] == ["make", "c", "c"]


def test_a_setup_is_relevant_between_itself_and_its_teardown():
    tasks = (
        setup("make"),
        task("first", "make"),
        task("second", "first"),
        task("aside", "first"),
        teardown("drop", "make", "second"),
        task("after", "drop"),
    )
    found = relevant_setups(tasks)
    assert found["second"] == ("make",)
    assert found["first"] == (), "the rule sees a direct upstream itself"
    assert found["aside"] == (), "no clean-up waits for it"
    assert found["after"] == (), "the resource is gone"
    assert found["drop"] == (), "a teardown judges its setups itself"
    assert found["make"] == ()


def test_a_setup_without_teardown_is_relevant_to_everything_below_it():
    found = relevant_setups([setup("make"), task("a", "make"), task("b", "a"), task("c", "b"), task("other")])
    assert found == {"make": (), "a": (), "b": ("make",), "c": ("make",), "other": ()}


def test_setups_in_a_row_are_relevant_to_each_other_and_to_the_work():
    tasks = (
        setup("net"),
        task("check", "net"),
        setup("disk", "check"),
        task("prepare", "disk"),
        task("use", "prepare"),
        teardown("drop_disk", "disk", "use"),
        teardown("drop_net", "net", "drop_disk"),
    )
    found = relevant_setups(tasks)
    assert found["disk"] == ("net",)
    assert found["prepare"] == ("net",)
    assert found["use"] == ("net", "disk")
    assert found["drop_disk"] == found["drop_net"] == ()


def test_a_task_may_come_before_any_of_several_teardowns():
    tasks = (
        setup("make"),
        task("a", "make"),
        task("b", "a"),
        task("c", "a"),
        teardown("drop_b", "make", "b"),
        teardown("drop_c", "make", "c"),
    )
    found = relevant_setups(tasks)
    assert (found["b"], found["c"]) == (("make",), ("make",))


# Deadlocks.


def test_tasks_in_a_circle_are_named_and_the_run_fails():
    tasks = task("a"), task("b", "a", "d"), task("c", "b"), task("d", "c")
    run = snapshot(*tasks, a=S.SUCCESS)
    assert plan_run(run) == []
    assert deadlocked_tasks(run) == ("b", "c", "d")
    assert finalize_run(run) == FAILED


def test_a_task_behind_one_that_does_not_exist_is_named():
    run = snapshot(task("a"), task("b", "a", "ghost"), task("c", "b"), a=S.SUCCESS)
    assert deadlocked_tasks(run) == ("b", "c")
    assert finalize_run(run) == FAILED


def test_a_task_behind_one_that_does_not_exist_may_still_be_decided_by_the_others():
    assert plan(task("a"), task("b", "a", "ghost"), a=S.FAILED) == [("b", "upstream_failed")]
    assert plan(task("a"), task("b", "a", "ghost", rule="one_success"), a=S.SUCCESS) == started("b")


def test_a_circle_that_one_member_can_leave_is_no_deadlock():
    tasks = task("c", "b"), task("b", "a", "c", rule="one_success"), task("a")
    run = snapshot(*tasks, a=S.SUCCESS)
    assert plan_run(run) == [PlannedTransition("b", S.SCHEDULED), PlannedTransition("b", S.QUEUED)]
    failed = snapshot(task("c", "b"), task("b", "a", "c"), task("a"), a=S.FAILED)
    assert plan_run(failed) == [PlannedTransition("b", S.UPSTREAM_FAILED), PlannedTransition("c", S.UPSTREAM_FAILED)]


def test_nothing_is_deadlocked_while_anything_is_active():
    tasks = task("a"), task("b", "ghost")
    for active in (S.RUNNING, S.NEEDS_ATTENTION, S.UP_FOR_RETRY):
        run = msgspec.structs.replace(snapshot(*tasks, a=active), ended_at={"a": 5}, retry_delay_s={"a": 9}, now=6)
        assert deadlocked_tasks(run) == ()
        assert finalize_run(run) == RUNNING


def test_nothing_is_deadlocked_while_the_plan_still_owes_a_move():
    run = snapshot(task("a"), task("b", "ghost"))
    assert deadlocked_tasks(run) == ()
    assert finalize_run(run) == RUNNING


# Any graph.


@st.composite
def graphs(draw: st.DrawFn) -> tuple[SnapshotTask, ...]:
    size = draw(st.integers(1, 9))
    tasks: list[SnapshotTask] = []
    for n in range(size):
        kind = draw(st.sampled_from(["task"] * 5 + ["setup", "teardown", "strict"]))
        tasks.append(
            SnapshotTask(
                id=f"t{n}",
                upstream=tuple(f"t{above}" for above in range(n) if draw(st.booleans())),
                trigger_rule=draw(st.sampled_from(TriggerRule)),
                is_setup=kind == "setup",
                is_teardown=kind in ("teardown", "strict"),
                on_failure_fail_run=kind == "strict",
            )
        )
    return tuple(tasks)


@st.composite
def runs(draw: st.DrawFn) -> RunSnapshot:
    tasks = draw(graphs())
    ids = [one.id for one in tasks]
    some = st.sampled_from(ids)
    return RunSnapshot(
        run_id="r",
        graph_id="g",
        tenant="t",
        tasks=tasks,
        states=draw(st.dictionaries(some, st.sampled_from(TaskState))),
        tries=draw(st.dictionaries(some, st.integers(0, 3))),
        max_tries=draw(st.dictionaries(some, st.integers(0, 3))),
        ended_at=draw(st.dictionaries(some, st.none() | st.integers(0, 9_000))),
        retry_delay_s=draw(st.dictionaries(some, st.integers(-1, 9))),
        now=draw(st.none() | st.integers(0, 9_000)),
    )


def shuffled(mapping: dict[str, object], by: random.Random) -> dict[str, object]:
    items = list(mapping.items())
    by.shuffle(items)
    return dict(items)


@given(run=runs(), seed=st.integers(0, 1_000))
def test_the_order_of_dictionaries_means_nothing(run: RunSnapshot, seed: int):
    by = random.Random(seed)
    names = ("states", "tries", "max_tries", "ended_at", "retry_delay_s")
    other = msgspec.structs.replace(run, **{name: shuffled(getattr(run, name), by) for name in names})
    assert plan_run(run) == plan_run(run) == plan_run(other)
    assert finalize_run(run) == finalize_run(other)


@given(run=runs(), seed=st.integers(0, 1_000))
def test_the_order_of_tasks_changes_no_decision(run: RunSnapshot, seed: int):
    tasks = list(run.tasks)
    random.Random(seed).shuffle(tasks)
    other = msgspec.structs.replace(run, tasks=tuple(tasks))
    assert sorted(plan_run(run)) == sorted(plan_run(other))
    assert with_transitions(run, plan_run(run)) == with_transitions(run, plan_run(other))
    assert finalize_run(run) == finalize_run(other)


@given(run=runs())
def test_every_planned_move_is_in_the_table_except_the_step_from_failed_to_its_retry(run: RunSnapshot):
    states = dict(run.states)
    for id, to in plan_run(run):
        move = states.get(id, S.NONE), to
        assert move in TASK_MOVES or move in TASK_RESETS or move == (S.FAILED, S.UP_FOR_RETRY)
        states[id] = to


@given(run=runs())
def test_a_plan_leaves_nothing_to_do_but_the_retries_it_recorded(run: RunSnapshot):
    first = plan_run(run)
    recorded = {id for id, to in first if to is S.UP_FOR_RETRY}
    once = with_transitions(run, first)
    second = plan_run(once)
    assert {id for id, _ in second} <= recorded
    assert plan_run(with_transitions(once, second)) == []


@given(tasks=graphs(), outcomes=st.randoms(use_true_random=False))
def test_every_run_of_an_acyclic_graph_comes_to_an_end_without_deadlock(
    tasks: tuple[SnapshotTask, ...], outcomes: random.Random
):
    ids = [one.id for one in tasks]
    run = RunSnapshot(
        run_id="r",
        graph_id="g",
        tenant="t",
        tasks=tasks,
        tries=dict.fromkeys(ids, 1),
        max_tries={id: outcomes.randint(1, 3) for id in ids},
    )
    for _ in range(8 * len(tasks)):
        run = with_transitions(run, plan_run(run))
        assert deadlocked_tasks(run) == ()
        queued = [id for id in ids if run.states.get(id) is S.QUEUED]
        if queued:
            end = outcomes.choice([S.SUCCESS, S.FAILED, S.SKIPPED, S.CANCELLED])
            run = with_transitions(run, [PlannedTransition(outcomes.choice(queued), end)])
    state, is_done = finalize_run(run)
    assert is_done
    assert state in (RunState.SUCCESS, RunState.FAILED)
    assert all(run.states[id] in TERMINAL for id in ids)
