"""Reapers: below, at and above the threshold, unset and future stamps."""

from collections.abc import Callable

import pytest

from rota.core.changes import RELEASED
from rota.core.reap import (
    AGENT_LOST_MS,
    DISPATCH_LOST_MS,
    FELL_SILENT,
    LEASE_RAN_OUT,
    NEVER_ACKNOWLEDGED,
    ORPHAN_MS,
    WAS_FORGOTTEN,
    AgentCandidate,
    DispatchCandidate,
    RunCandidate,
    is_agent_lost,
    is_dispatch_lost,
    is_orphaned,
    reaper_of,
)

NOW = 1_700_000_000_000


def orphaned(stamp: int | None, *threshold_ms: int) -> bool:
    return is_orphaned(RunCandidate(run_id="r", graph_id="g", last_activity_at=stamp), NOW, *threshold_ms)


def agent_lost(stamp: int | None, *threshold_ms: int) -> bool:
    candidate = AgentCandidate(run_id="r", graph_id="g", task_id="t", attempt=1, last_heartbeat_at=stamp)
    return is_agent_lost(candidate, NOW, *threshold_ms)


def dispatch_lost(stamp: int | None, *threshold_ms: int) -> bool:
    candidate = DispatchCandidate(run_id="r", graph_id="g", task_id="t", attempt=1, assigned_at=stamp)
    return is_dispatch_lost(candidate, NOW, *threshold_ms)


REAPERS = [
    pytest.param(orphaned, 300_000, id="orphaned"),
    pytest.param(agent_lost, 90_000, id="agent_lost"),
    pytest.param(dispatch_lost, 180_000, id="dispatch_lost"),
]
Reaper = Callable[..., bool]


def test_the_default_thresholds_are_five_minutes_a_minute_and_a_half_and_three_minutes():
    assert (ORPHAN_MS, AGENT_LOST_MS, DISPATCH_LOST_MS) == (300_000, 90_000, 180_000)


@pytest.mark.parametrize(
    ("cause", "reaper"),
    [
        (FELL_SILENT, "agent_lost"),
        (LEASE_RAN_OUT, "agent_lost"),
        (WAS_FORGOTTEN, "agent_lost"),
        (NEVER_ACKNOWLEDGED, "dispatch_lost"),
        ("orphaned: nothing can move any more", "orphaned"),
        (f"{FELL_SILENT}; interrupted 5 times, last on worker w", "agent_lost"),
        (RELEASED, ""),
        ("its worker restarted", ""),
        ("", ""),
    ],
)
def test_what_a_reaper_ended_says_so_in_its_first_word(cause: str, reaper: str):
    assert reaper_of(cause) == reaper


@pytest.mark.parametrize(("reaper", "threshold_ms"), REAPERS)
def test_silence_below_the_threshold_is_alive(reaper: Reaper, threshold_ms: int):
    assert not reaper(NOW - threshold_ms + 1)
    assert not reaper(NOW)


@pytest.mark.parametrize(("reaper", "threshold_ms"), REAPERS)
def test_silence_at_the_threshold_is_dead(reaper: Reaper, threshold_ms: int):
    assert reaper(NOW - threshold_ms)


@pytest.mark.parametrize(("reaper", "threshold_ms"), REAPERS)
def test_silence_above_the_threshold_is_dead(reaper: Reaper, threshold_ms: int):
    assert reaper(NOW - threshold_ms - 1)
    assert reaper(1)


@pytest.mark.parametrize(("reaper", "threshold_ms"), REAPERS)
def test_a_stamp_from_the_future_is_alive(reaper: Reaper, threshold_ms: int):
    assert not reaper(NOW + 1)
    assert not reaper(NOW + 10 * threshold_ms)
    assert not reaper(NOW + 1, 0)


@pytest.mark.parametrize(("reaper", "threshold_ms"), REAPERS)
def test_the_threshold_is_the_callers_to_choose(reaper: Reaper, threshold_ms: int):
    assert reaper(NOW - 50, 50)
    assert not reaper(NOW - 49, 50)
    assert not reaper(NOW - threshold_ms, threshold_ms + 1)


@pytest.mark.parametrize("unset", [0, None])
def test_a_run_without_any_sign_of_activity_is_orphaned(unset: int | None):
    assert orphaned(unset)


@pytest.mark.parametrize("unset", [0, None])
def test_a_task_that_was_never_observed_is_left_alone(unset: int | None):
    assert not agent_lost(unset)
    assert not dispatch_lost(unset)
    assert not agent_lost(unset, 0)
    assert not dispatch_lost(unset, 0)
