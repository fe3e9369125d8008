"""The ladder of the mechanical scheduler: cases 6 to 11 and 13 by number, and what happens where something fails."""

import asyncio

import pytest

from rota.core.ladder import PARKED_QUEUED, PARKED_UNCLAIMED, Thresholds
from rota.kinds.agent import (
    AgentRun,
    ClimbRule,
    InvalidStatusTransition,
    Owner,
    OwnerKind,
    RunStatus,
    SpawnUnresolvable,
    default_starvation_thresholds,
    with_climb_rule,
    with_escalation_actor,
    with_starvation_store,
    with_starvation_thresholds,
    with_wake_cooldown,
)
from rota.kinds.agent.options import Option
from tests.unit.kinds.agent.stage import AGE, BEGIN, Broken, Escalating, Rows, Stage, thresholds


class Climbing(Stage):
    """A stage with a ladder whose tiers are reached after 1, 2, 3 and 4 cycles."""

    def __init__(self, *options: Option) -> None:
        self.rows = Rows()
        self.actor = Escalating()
        super().__init__(
            *options,
            with_starvation_store(self.rows),
            with_escalation_actor(self.actor),
            with_starvation_thresholds(thresholds()),
        )

    def count(self, run_id: str = "r") -> int:
        return self.rows.rows[run_id].wake_count


def test_06_the_ladder_is_climbed_rung_by_rung_each_once_and_the_row_goes_when_it_is_parked() -> None:
    stage = Climbing()
    stage.run("r", waited=AGE)
    for expected in ([], [("spawn", "r")], [("event", "r")], [("park", "r")]):
        stage.actor.did.clear()
        result = stage.once()
        assert stage.actor.did == expected
        assert result.spawn_requested_run_ids == (["r"] if expected == [("spawn", "r")] else [])
        stage.clock.pass_by(15_000)
    assert (result.needs_attention, result.needs_attention_run_ids) == (1, ["r"])
    assert (stage.rows.rows, stage.actor.ages) == ({}, [AGE + 30_000])
    stats = stage.scheduler.stats()
    assert (stats.spawn_requested, stats.needs_attention, stats.starved_runs, stats.no_match_runs) == (1, 1, 4, 4)


def test_07_a_spawn_that_nobody_could_answer_is_not_noted_and_holds_nothing_up() -> None:
    stage = Climbing()
    stage.actor.raising["spawn"] = SpawnUnresolvable()
    stage.run("r", waited=AGE)
    for _ in range(3):
        stage.once()
    assert stage.rows.rows["r"].spawn_requested_at == 0, "it is asked for again in every cycle"
    assert stage.once().spawn_requested == 0
    assert stage.actor.did == [("event", "r"), ("park", "r")]


def test_08_an_event_that_could_not_be_told_is_told_in_the_next_cycle() -> None:
    stage = Climbing()
    stage.actor.raising["event"] = Broken("event")
    stage.run("r", waited=AGE)
    stage.once()
    stage.once()
    failed = stage.failing()
    assert ([str(error) for error in failed.errors], stage.rows.rows["r"].starved_event_at) == (["event"], 0)
    assert (stage.count(), stage.scheduler.stats().cycles) == (3, 3)
    stage.actor.raising.clear()
    stage.once()
    assert ("event", "r") in stage.actor.did


def test_09_a_paused_run_keeps_its_count_and_one_that_was_claimed_loses_it() -> None:
    stage = Climbing()
    for id, status in (
        ("paused", RunStatus.QUEUED),
        ("parked", RunStatus.NEEDS_ATTENTION),
        ("done", RunStatus.CLAIMED),
    ):
        stage.rows.put(id, 3)
        stage.tasks.statuses[id] = status
    stage.rows.put("gone", 3)
    stage.run("paused", paused=True, waited=AGE)
    stage.once()
    assert list(stage.rows.rows) == ["paused", "parked"]
    assert stage.count("paused") == 3


def test_10_a_run_that_was_claimed_meanwhile_is_left_alone_and_its_row_goes() -> None:
    stage = Climbing()
    stage.rows.put("r", 9)
    stage.run("r", waited=AGE)
    stage.tasks.statuses["r"] = RunStatus.CLAIMED
    stage.once()
    assert (stage.actor.did, stage.rows.rows) == ([], {})
    stage.rows.put("r", 9)
    stage.tasks.statuses["r"] = RunStatus.NEEDS_ATTENTION
    stage.once()
    assert (stage.actor.did, stage.count()) == ([], 9)


def test_11_the_count_survives_a_rebuild() -> None:
    stage = Climbing()
    stage.run("r", waited=AGE)
    stage.once()
    assert stage.count() == 1
    asyncio.run(stage.scheduler.rebuild())
    stage.once()
    assert stage.count() == 2


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ((5, 3, 9, 7), (5, 5, 9, 9)),
        ((0, -1, 0, 0), (2, 4, 6, 10)),
        ((3, 0, 0, 0), (3, 4, 6, 10)),
        ((20, 0, 0, 0), (20, 20, 20, 20)),
        ((1, 2, 3, 4), (1, 2, 3, 4)),
    ],
)
def test_13_thresholds_that_do_not_rise_are_raised(given: tuple[int, ...], meant: tuple[int, ...]) -> None:
    assert thresholds(*given).as_ladder() == Thresholds(
        **dict(zip(("fan_out", "spawn", "event", "park"), meant, strict=True))
    )
    assert default_starvation_thresholds() == thresholds(2, 4, 6, 10)


def test_by_the_rule_queued_a_run_behind_busy_sessions_climbs_and_is_parked() -> None:
    stage = Climbing(with_climb_rule(ClimbRule.QUEUED))
    stage.actor.cause = PARKED_QUEUED
    stage.run("busy", waited=AGE)
    stage.session("at-work", prompting=True)
    for expected in ([], [("spawn", "busy")], [("event", "busy")], [("park", "busy")]):
        stage.actor.did.clear()
        result = stage.once()
        assert (stage.actor.did, result.starved_run_ids) == (expected, ["busy"])
        stage.clock.pass_by(15_000)
    assert (result.needs_attention_run_ids, stage.rows.rows, stage.woken) == (["busy"], {}, [])


def test_a_run_behind_busy_sessions_is_never_parked() -> None:
    stage = Climbing()
    stage.run("busy", waited=AGE)
    stage.session("at-work", prompting=True)
    for _ in range(100):
        result = stage.once()
        assert result.needs_attention == 0
        stage.clock.pass_by(15_000)
    assert (stage.actor.did, stage.rows.rows, stage.woken) == ([], {}, [])


@pytest.mark.parametrize("cooldown_ms", [0, 60_000])
def test_a_run_that_idle_sessions_were_woken_for_and_none_claimed_climbs_after_the_threshold(cooldown_ms: int) -> None:
    stage = Climbing(with_wake_cooldown(cooldown_ms))
    stage.actor.cause = PARKED_UNCLAIMED
    stage.run("unwanted")
    stage.session("idle")
    did: list[tuple[int, str]] = []
    for _ in range(13):
        before = len(stage.actor.did)
        stage.once()
        did += [(stage.clock.now() - BEGIN, what) for what, _ in stage.actor.did[before:]]
        stage.clock.pass_by(15_000)
    assert did[:3] == [(AGE + 15_000, "spawn"), (AGE + 30_000, "event"), (AGE + 45_000, "park")]


def test_a_run_that_waited_behind_busy_sessions_is_offered_for_the_threshold_before_it_climbs() -> None:
    stage = Climbing()
    stage.run("r", waited=10 * AGE)
    stage.session("idle")
    for _ in range(AGE // 15_000):
        stage.once()
        stage.clock.pass_by(15_000)
    assert (stage.actor.did, stage.rows.rows) == ([], {})
    stage.once()
    assert stage.count() == 1


def test_a_run_that_was_claimed_and_came_back_is_told_again_within_the_cooldown() -> None:
    stage = Climbing()
    stage.run("r")
    stage.session("s")
    stage.once()
    stage.tasks.active = [AgentRun(id="r", task_id="t", status=RunStatus.CLAIMED, session_id="s")]
    stage.clock.pass_by(1_000)
    stage.once()
    stage.tasks.active = []
    stage.clock.pass_by(1_000)
    stage.once()
    assert stage.woken == [("r", "s")] * 2


def test_a_run_that_came_back_between_two_cycles_is_told_again_within_the_cooldown() -> None:
    stage = Climbing()
    stage.run("r")
    stage.session("s")
    stage.once()
    stage.clock.pass_by(1_000)
    stage.tasks.pending.clear()
    stage.run("r")
    stage.once()
    assert stage.woken == [("r", "s")] * 2


def test_a_run_whose_owner_never_claims_is_not_parked() -> None:
    stage = Climbing()
    stage.run("r", waited=AGE, owner=Owner(OwnerKind.HUMAN, "me"))
    for _ in range(6):
        stage.once()
    assert (stage.actor.did, stage.rows.rows) == ([], {})


def test_one_bad_row_does_not_keep_others_from_climbing() -> None:
    stage = Climbing()
    stage.run("a", waited=AGE)
    stage.run("b", waited=AGE)
    stage.rows.broken.append("upsert a")
    failed = stage.failing()
    assert ([str(error) for error in failed.errors], stage.count("b")) == (["upsert a"], 1)


def test_where_rows_cannot_be_listed_they_are_asked_for_by_name() -> None:
    stage = Climbing()
    stage.run("a", waited=AGE)
    stage.run("b", waited=AGE)
    stage.rows.put("a", 7, spawn_requested_at=1, starved_event_at=1)
    stage.rows.broken.append("list")
    failed = stage.failing()
    assert ([str(error) for error in failed.errors], stage.actor.did, stage.count("b")) == (
        ["list"],
        [("park", "a")],
        1,
    )


def test_a_row_that_cannot_be_read_is_not_begun_anew() -> None:
    stage = Climbing()
    stage.run("a", waited=AGE)
    stage.rows.put("a", 7)
    stage.rows.rows["a"] = type(stage.rows.rows["a"])(
        run_id="a", wake_count=7, first_starved_at=1, last_wake_at=1, escalation_tier=99
    )
    assert len(stage.failing().errors) == 2
    assert stage.count("a") == 7


def test_a_status_that_cannot_be_read_leaves_everything_as_it_is() -> None:
    stage = Climbing()
    stage.run("r", waited=AGE)
    stage.rows.put("r", 9)
    stage.rows.put("other", 1)
    stage.tasks.broken.append("get_run_status")
    assert len(stage.failing().errors) == 2
    assert (stage.actor.did, stage.count(), stage.count("other")) == ([], 9, 1)


def test_whoever_left_the_queue_just_before_it_was_parked_is_off_the_ladder() -> None:
    stage = Climbing()
    stage.run("r", waited=AGE)
    stage.rows.put("r", 9)
    stage.actor.raising["park"] = InvalidStatusTransition()
    result = stage.once()
    assert (result.needs_attention, stage.rows.rows) == (0, {})


def test_what_could_not_be_parked_is_parked_in_the_next_cycle() -> None:
    stage = Climbing()
    stage.run("r", waited=AGE)
    stage.rows.put("r", 9)
    stage.actor.raising["park"] = Broken("park")
    assert stage.failing().result.needs_attention == 0
    assert stage.count() == 10
    stage.actor.raising.clear()
    assert stage.once().needs_attention == 1


def test_without_a_store_or_somebody_to_act_there_are_no_tiers() -> None:
    actor = Escalating()
    rows = Rows()
    for option in (with_escalation_actor(actor), with_starvation_store(rows)):
        stage = Stage(option, with_starvation_thresholds(thresholds(1, 1, 1, 1)))
        stage.run("r", waited=AGE)
        assert stage.once().starved_runs == 1
    assert (actor.did, rows.rows) == ([], {})
