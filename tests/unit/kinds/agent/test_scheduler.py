"""Cycles of the mechanical scheduler: cases 1 to 24 of those a scheduler of this sort has to pass, by number, and more.

Where a case says that a starved run wakes everybody, or climbs though its sessions are busy, ours does better; the test
says so. Cases 25 to 27 are in test_lifecycle.py.
"""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from rota.core.cycle import BACKOFF_MS_MAX
from rota.kinds.agent import (
    Actor,
    ActorKind,
    AgentRun,
    ExpiredLeaseRecovery,
    ExpiredLeaseRecoveryResult,
    Option,
    Owner,
    OwnerKind,
    Priority,
    RunStatus,
    SessionState,
    TaskStatus,
    with_actor,
    with_fan_out_max,
    with_logger,
    with_pause_store,
    with_starvation_age,
    with_starvation_thresholds,
    with_sweep_limit,
    with_sweep_reason,
    with_wake_cooldown,
    with_wake_reason,
)
from tests.unit.kinds.agent.stage import AGE, BEGIN, MINUTE, BatchWaking, Broken, Pauses, Stage, bounded, thresholds

REVIEW = ("review",)


def test_01_only_the_idle_session_that_could_claim_is_woken() -> None:
    stage = Stage()
    stage.run("r", workspace_id="w", required_capabilities=REVIEW)
    fits = {"workspace_id": "w", "capabilities": REVIEW}
    stage.session("bound", **fits)
    stage.session("prompting", prompting=True, **fits)
    stage.session("elsewhere", workspace_id="v", capabilities=REVIEW)
    stage.session("nowhere", capabilities=REVIEW)
    stage.session("unable", workspace_id="w")
    stage.session("stopped", state=SessionState.STOPPED, **fits)
    stage.session("stopping", state=SessionState.STOPPING, **fits)
    stage.session("starting", state=SessionState.STARTING, **fits)
    stage.session(" ", **fits)
    stage.session("idle", created_at=9, **fits)
    stage.tasks.active.append(AgentRun(id="other", task_id="t", status=RunStatus.RUNNING, session_id="bound"))
    result = stage.once()
    assert stage.woken == [("r", "idle")]
    assert (result.pending_runs, result.active_runs, result.sessions_scanned) == (1, 1, 10)
    assert (result.wake_attempts, result.wake_succeeded, result.selected_run_ids) == (1, 1, ["r"])


def test_02_a_run_that_nobody_could_claim_is_counted_and_listed_and_nothing_else_happens() -> None:
    stage = Stage()
    stage.run("r", workspace_id="w")
    stage.session("s", workspace_id="v")
    result = stage.once()
    assert (result.no_match_runs, result.no_match_run_ids, result.wake_attempts) == (1, ["r"], 0)
    assert (stage.woken, stage.keys, stage.tasks.calls.count("get_run_status")) == ([], 0, 0)


def test_03_a_fresh_run_wakes_one_session_of_two() -> None:
    stage = Stage()
    stage.run("r", waited=AGE - 1)
    stage.session("s1")
    stage.session("s2")
    result = stage.once()
    assert (stage.woken, result.starved_runs) == ([("r", "s1")], 0)


@pytest.mark.parametrize(("options", "woken"), [((), 30), ((with_fan_out_max(0),), 30), ((with_fan_out_max(5),), 5)])
def test_04_a_starved_run_wakes_every_session_that_could_claim_it(options: tuple[Option, ...], woken: int) -> None:
    stage = Stage(*options)
    stage.run("r", waited=AGE)
    for number in range(30):
        stage.session(f"s{number:02}")
    stage.session("busy", prompting=True)
    stage.session("elsewhere", workspace_id="w")
    result = stage.once()
    assert stage.woken == [("r", f"s{number:02}") for number in range(woken)]
    assert (result.starved_runs, result.starved_run_ids, result.selected_run_ids) == (1, ["r"], ["r"] * woken)


def test_05_a_starved_run_that_nobody_could_claim_is_in_both_lists() -> None:
    stage = Stage()
    stage.run("r", waited=AGE)
    result = stage.once()
    assert (result.starved_run_ids, result.no_match_run_ids) == (["r"], ["r"])


def test_12_the_age_of_the_thresholds_counts_where_no_other_is_given() -> None:
    for options, starved in (
        ((with_starvation_thresholds(thresholds(age_ms=60 * MINUTE)),), 0),
        ((with_starvation_thresholds(thresholds(age_ms=30 * MINUTE)),), 1),
        ((with_starvation_age(40 * MINUTE), with_starvation_thresholds(thresholds(age_ms=1))), 0),
        ((with_starvation_thresholds(thresholds(age_ms=60 * MINUTE)), with_starvation_age(1)), 1),
        ((with_starvation_age(0),), 0),
        ((with_starvation_age(-1),), 0),
    ):
        stage = Stage(*options)
        stage.run("r", waited=30 * MINUTE)
        assert stage.once().starved_runs == starved


def test_14_a_run_of_a_pool_wakes_only_the_agent_of_that_name_and_one_of_a_session_only_that() -> None:
    stage = Stage()
    stage.run("pooled", owner=Owner(OwnerKind.POOL, "ada"))
    stage.run("mine", owner=Owner(OwnerKind.AGENT_SESSION, "s3"))
    stage.session("s1", agent_name="bob")
    stage.session("s2", agent_name="ada")
    stage.session("s3", agent_name="bob")
    stage.once()
    assert stage.woken == [("mine", "s3"), ("pooled", "s2")]


def test_15_the_sweep_is_left_to_the_tasks_with_reason_limit_time_and_actor() -> None:
    stage = Stage()
    stage.tasks.expired = [ExpiredLeaseRecoveryResult(run_id="b"), ExpiredLeaseRecoveryResult(run_id="a")]
    result = stage.once()
    usual = (ExpiredLeaseRecovery(BEGIN, "scheduler_sweep", 100), Actor(ActorKind.DAEMON, "scheduler"))
    assert stage.tasks.recoveries == [usual]
    assert (result.recovered_leases, result.recovered_run_ids) == (2, ["b", "a"])
    me = Actor(ActorKind.HUMAN, "me")
    other = Stage(with_sweep_reason("mine"), with_sweep_limit(0), with_actor(me))
    other.once()
    assert other.tasks.recoveries == [(ExpiredLeaseRecovery(BEGIN, "mine", 0), me)]
    odd = Stage(with_sweep_reason("  "), with_sweep_limit(-1))
    odd.once()
    assert odd.tasks.recoveries == [usual]


def test_16_while_paused_leases_are_swept_and_snapshots_read_and_nobody_is_woken() -> None:
    pauses = Pauses(paused=True)
    stage = Stage(with_pause_store(pauses))
    stage.tasks.expired = [ExpiredLeaseRecoveryResult(run_id="b")]
    stage.run("r", waited=AGE)
    stage.session("s")
    result = stage.once()
    assert (result.paused, result.recovered_leases, result.pending_runs, result.sessions_scanned) == (True, 1, 1, 1)
    assert (stage.woken, result.starved_runs, stage.scheduler.stats().cycles) == ([], 0, 1)
    pauses.paused = False
    assert (stage.once().paused, stage.woken) == (False, [("r", "s")])


def test_16_while_it_cannot_be_read_whether_all_is_paused_nobody_is_woken() -> None:
    pauses = Pauses()
    pauses.is_broken = True
    stage = Stage(with_pause_store(pauses))
    stage.run("r")
    stage.session("s")
    failed = stage.failing()
    assert (failed.result.paused, stage.woken, [str(error) for error in failed.errors]) == (True, [], ["pause"])
    assert len(stage.tasks.recoveries) == 1, "the sweep goes on"


def test_17_a_paused_task_is_left_out_while_its_neighbour_is_woken_for() -> None:
    stage = Stage()
    stage.run("paused", paused=True)
    stage.run("next")
    stage.session("s1")
    stage.session("s2")
    result = stage.once()
    assert (stage.woken, result.unclaimable_runs, result.no_match_runs) == ([("next", "s1")], 1, 0)


def test_what_sessions_may_not_claim_is_counted_and_never_on_the_ladder() -> None:
    stage = Stage()
    for status in (TaskStatus.DRAFT, TaskStatus.BLOCKED, TaskStatus.CANCELLED):
        work = stage.run(f"r-{status}", waited=AGE)
        stage.tasks.pending[-1] = replace(work, task=replace(work.task, status=status))
    for kind in (OwnerKind.HUMAN, OwnerKind.AUTOMATION, OwnerKind.EXTENSION, OwnerKind.NETWORK_PEER):
        stage.run(f"r-{kind}", owner=Owner(kind, "x"), waited=AGE)
    stage.run("claimed", status=RunStatus.CLAIMED)
    stage.run("  ")
    stage.session("s")
    result = stage.once()
    assert (result.unclaimable_runs, result.no_match_runs, result.starved_runs, stage.woken) == (9, 0, 0, [])


def test_18_errors_of_sweep_and_wake_are_both_raised_and_the_cycle_is_completed() -> None:
    stage = Stage()
    stage.tasks.broken.append("recover_expired_run_leases")
    stage.waker.broken.append("s1")
    stage.run("a")
    stage.run("b")
    stage.session("s1")
    stage.session("s2")
    failed = stage.failing()
    assert [str(error) for error in failed.errors] == ["recover_expired_run_leases", "unreachable s1"]
    assert "recover_expired_run_leases; unreachable s1" in str(failed)
    assert (failed.result.wake_attempts, failed.result.wake_succeeded, failed.result.wake_failed) == (2, 1, 1)
    assert failed.result.selected_run_ids == ["b"]
    stats = stage.scheduler.stats()
    assert (stats.cycles, stats.recovery_errors, stats.wake_failed, stats.last_cycle_at) == (1, 1, 1, BEGIN)
    assert (stats.last_recovery_error, stats.last_wake_error) == ("recover_expired_run_leases", "unreachable s1")
    stage.waker.broken.clear()
    stage.tasks.broken.clear()
    stage.once()
    assert ("a", "s1") in stage.woken, "a wake that failed has no cooldown"


@pytest.mark.parametrize("read", ["pending_runs", "active_runs"])
def test_without_snapshots_a_cycle_is_broken_off_and_not_counted(read: str) -> None:
    stage = Stage()
    stage.tasks.broken += [read, "recover_expired_run_leases"]
    failed = stage.failing()
    assert [str(error) for error in failed.errors] == ["recover_expired_run_leases", read]
    assert stage.scheduler.stats().cycles == 0
    with pytest.raises(Broken):
        asyncio.run(stage.scheduler.rebuild())
    assert stage.scheduler.stats().rebuilds == 0


def test_19_the_cooldown_holds_a_wake_back_and_rebuilding_forgets_it() -> None:
    stage = Stage()
    stage.run("r")
    stage.session("s")
    stage.once()
    result = stage.once()
    assert (result.wake_attempts, result.recently_notified) == (0, 1)
    rebuilt = asyncio.run(stage.scheduler.rebuild())
    assert (rebuilt.pending_runs, rebuilt.active_runs, rebuilt.sessions_scanned) == (1, 0, 1)
    assert (rebuilt.cleared_wake_keys, rebuilt.rebuilt_at) == (1, BEGIN)
    stage.once()
    assert stage.woken == [("r", "s")] * 2
    stats = stage.scheduler.stats()
    assert (stats.rebuilds, stats.last_rebuild_at, stats.recently_notified, stats.cycles) == (1, BEGIN, 1, 3)


def test_20_when_exactly_the_cooldown_has_passed_a_wake_is_repeated() -> None:
    stage = Stage(with_wake_cooldown(-1))
    stage.run("r")
    stage.session("s")
    stage.once()
    stage.clock.pass_by(MINUTE - 1)
    stage.once()
    assert len(stage.woken) == 1
    stage.clock.pass_by(1)
    stage.once()
    assert len(stage.woken) == 2


def test_21_without_cooldown_every_cycle_wakes_and_nothing_is_remembered() -> None:
    stage = Stage(with_wake_cooldown(0))
    stage.run("r")
    stage.session("s")
    stage.once()
    stage.once()
    assert (len(stage.woken), stage.keys) == (2, 0)


def test_22_the_urgent_comes_first_however_late_and_the_oldest_session_with_the_smallest_id() -> None:
    stage = Stage()
    stage.run("low", priority=Priority.LOW, waited=MINUTE)
    stage.run("medium")
    stage.run("high", priority=Priority.HIGH)
    stage.run("urgent", priority=Priority.URGENT)
    for id, created_at in (("s9", 1), ("s2", 2), ("s1", 2), ("s0", 3)):
        stage.session(id, created_at=created_at)
    stage.once()
    assert stage.woken == [("urgent", "s9"), ("high", "s1"), ("medium", "s2"), ("low", "s0")]


def test_23_a_waker_of_batches_has_all_targets_in_one_call() -> None:
    waker = BatchWaking()
    stage = Stage(with_wake_reason("because"), waker=waker)
    stage.run("a")
    stage.run("b")
    stage.session("s1")
    stage.session("s2")
    result = stage.once()
    (batch,) = waker.batches
    assert [(target.work.run.id, target.session.id, target.reason) for target in batch] == [
        ("a", "s1", "because"),
        ("b", "s2", "because"),
    ]
    assert (waker.targets, result.wake_succeeded) == ([], 2)
    stage.tasks.pending.clear()
    stage.once()
    assert waker.batches[1:] == [[]], "also when nobody is to be woken"


def test_23_what_a_batch_answers_counts_target_by_target_or_not_at_all() -> None:
    for answer, failed in (
        ([None, Broken("b")], 1),
        ([None], 2),
        (Broken("all"), 2),
    ):
        waker = BatchWaking()
        waker.answer = answer
        stage = Stage(waker=waker)
        stage.run("a")
        stage.run("b")
        stage.session("s1")
        stage.session("s2")
        met = stage.failing()
        assert (met.result.wake_attempts, met.result.wake_failed, len(met.errors)) == (2, failed, failed)
        assert stage.keys == 2 - failed


def test_24_a_run_of_a_channel_wakes_only_a_session_of_that_channel() -> None:
    for channel, woken in (("ops", [("r", "s")]), ("dev", []), ("", [])):
        stage = Stage()
        stage.run("r", channel="ops")
        stage.session("s", channel=channel)
        result = stage.once()
        assert (stage.woken, result.no_match_runs) == (woken, 1 - len(woken))
    stage = Stage()
    stage.run("r")
    stage.session("s", channel="ops")
    stage.once()
    assert stage.woken == [("r", "s")], "what is bound to no channel is for everybody"


def test_an_unreadable_run_or_session_is_reported_and_the_others_are_served() -> None:
    stage = Stage()
    stage.run("bad", required_capabilities=("two words",))
    stage.tasks.pending.append(None)
    stage.tasks.active.append(None)
    stage.run("good")
    stage.session("bad", capabilities=("a,b",))
    stage.sessions.live.append(None)
    stage.session("good")
    failed = stage.failing()
    assert stage.woken == [("good", "good")]
    told = [str(error) for error in failed.errors]
    assert [text.partition(" cannot")[0] for text in told] == ["run bad", "run ?", "run ?", "session bad", "session ?"]
    assert failed.result.unclaimable_runs == 2


def test_of_two_snapshots_with_one_id_the_first_counts() -> None:
    stage = Stage()
    stage.run("r")
    stage.run("r")
    stage.session("s")
    stage.session("s")
    stage.once()
    assert stage.woken == [("r", "s")]


def test_capabilities_are_trimmed() -> None:
    stage = Stage()
    stage.run("r", required_capabilities=(" review",), workspace_id=" w")
    stage.session("s", capabilities=("review ", "review"), workspace_id="w ")
    stage.once()
    assert stage.woken == [("r", "s")]


def test_waiting_counts_from_when_a_run_became_claimable() -> None:
    stage = Stage()
    stage.run("r", waited=60 * MINUTE, eligible_since=BEGIN - AGE + 1)
    stage.session("s")
    assert stage.once().starved_runs == 0


def test_a_starved_run_leaves_sessions_alone_that_were_woken_for_it_lately() -> None:
    stage = Stage()
    stage.run("r", waited=AGE)
    for number in range(3):
        stage.session(f"s{number}")
    stage.once()
    for _ in range(3):
        stage.clock.pass_by(15_000)
        assert stage.once().recently_notified == 1
    assert len(stage.woken) == 3
    stage.clock.pass_by(4 * MINUTE)
    stage.once()
    assert len(stage.woken) == 6, "it has waited more than twice as long"


def test_wakes_are_forgotten_when_they_do_not_matter_any_more() -> None:
    stage = Stage()
    stage.run("r")
    stage.session("s")
    stage.once()
    stage.tasks.pending.clear()
    stage.clock.pass_by(BACKOFF_MS_MAX - 1)
    stage.once()
    assert stage.keys == 1
    stage.clock.pass_by(1)
    stage.once()
    assert stage.keys == 0


def test_a_run_that_waits_behind_busy_sessions_is_neither_starved_nor_without_match() -> None:
    stage = Stage()
    stage.run("r", waited=10 * AGE)
    stage.session("s", prompting=True)
    result = stage.once()
    assert (result.starved_runs, result.no_match_runs, result.wake_attempts) == (0, 0, 0)


def test_two_callers_have_a_cycle_each_one_after_the_other() -> None:
    stage = Stage()
    stage.run("r")
    stage.session("s")

    async def both() -> None:
        first, second = await asyncio.gather(stage.scheduler.run_once(), stage.scheduler.run_once())
        assert (first.wake_succeeded, second.wake_succeeded, second.recently_notified) == (1, 0, 1)

    bounded(both())
    assert (stage.tasks.at_once_max, len(stage.woken), stage.scheduler.stats().cycles) == (1, 1, 2)


def test_it_is_told_what_nobody_could_claim(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mine"):
        stage = Stage(with_logger(logging.getLogger("mine")))
        for number in range(30):
            stage.run(f"r{number:02}", workspace_id="w", waited=AGE)
        stage.once()
    told = [record.getMessage() for record in caplog.records]
    unclaimed, starved = [text.partition(": r00")[0] for text in told]
    assert (unclaimed.endswith(" claim: 30 runs"), starved) == (True, "scheduler: starved: 30 runs")
    assert all(text.endswith("r19") for text in told)
