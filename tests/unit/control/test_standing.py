"""How a leader stands: its heartbeat, the window of stepping down, and how long it was away."""

import pytest

from rota.control.events import Level
from rota.control.standing import Cause, Heartbeat, Standing

NOW = 1_000_000
INTERVAL = 1_000
LATE = 3 * INTERVAL + 1_000


def leading(since: int = NOW) -> Standing:
    standing = Standing(INTERVAL)
    standing.set_leading(True, since)
    return standing


# The heartbeat.


def test_a_follower_is_healthy_and_idle():
    standing = Standing(INTERVAL)
    assert standing.heartbeat(NOW) == Heartbeat(is_healthy=True, turned_at=0)
    standing.turned(NOW)
    assert standing.heartbeat(NOW + 100 * LATE) == Heartbeat(is_healthy=True, turned_at=0)


@pytest.mark.parametrize(
    ("late_ms", "is_healthy"), [(0, True), (INTERVAL, True), (LATE - 1, True), (LATE, True), (LATE + 1, False)]
)
def test_a_leader_is_healthy_while_its_last_turn_is_within_three_intervals_and_a_second(late_ms: int, is_healthy: bool):
    standing = leading(NOW - 50_000)
    standing.turned(NOW)
    assert standing.heartbeat(NOW + late_ms) == Heartbeat(is_healthy, turned_at=NOW)


@pytest.mark.parametrize(("late_ms", "is_healthy"), [(0, True), (LATE, True), (LATE + 1, False)])
def test_a_leader_that_has_not_turned_yet_has_as_long_from_the_beginning_of_its_reign(late_ms: int, is_healthy: bool):
    assert leading().heartbeat(NOW + late_ms) == Heartbeat(is_healthy, turned_at=0)


def test_a_new_reign_does_not_inherit_the_clock_of_the_last_one():
    standing = leading()
    standing.turned(NOW)
    standing.set_leading(False, NOW + 10)
    assert standing.heartbeat(NOW + 10 * LATE).is_healthy, "who does not lead need not turn"
    standing.set_leading(True, NOW + 10 * LATE)
    assert standing.heartbeat(NOW + 11 * LATE) == Heartbeat(is_healthy=True, turned_at=0)


# Stepping down.


def test_the_window_opens_with_a_cause_that_is_counted_and_closes_when_told():
    standing = leading()
    assert not standing.stepping_down
    standing.mark_stepping_down(Cause.LOCK_LOST)
    standing.mark_stepping_down(Cause.LOCK_LOST)
    assert standing.stepping_down
    assert standing.step_downs == {Cause.LOCK_LOST: 2}, "what happened is counted, not whether the window was open"
    standing.clear_stepping_down()
    standing.clear_stepping_down()
    assert not standing.stepping_down


@pytest.mark.parametrize(
    ("in_window", "cancelled", "level"),
    [
        (True, True, Level.WARNING),
        (True, False, Level.ERROR),
        (False, True, Level.ERROR),
        (False, False, Level.ERROR),
    ],
)
def test_only_what_is_cancelled_on_purpose_is_no_error(in_window: bool, cancelled: bool, level: Level):
    standing = leading()
    if in_window:
        standing.mark_stepping_down(Cause.NOT_PROVEN)
    assert standing.level_of(cancelled=cancelled) is level, "a deadline is not a cancellation"


def test_a_reload_within_a_reign_is_no_stall_and_no_return_and_what_it_cancels_is_expected():
    standing = leading()
    standing.turned(NOW)
    standing.begin_anew()
    assert standing.heartbeat(NOW + 10 * LATE).is_healthy, "there is no loop to turn"
    assert standing.level_of(cancelled=True) is Level.WARNING
    standing.set_leading(True, NOW + 10 * LATE)
    assert standing.take_reacquires() == []
    assert standing.step_downs == {}


def test_a_new_reign_expects_no_cancellations_of_an_old_one():
    standing = leading()
    standing.mark_stepping_down(Cause.LOCK_LOST)
    standing.set_leading(False, NOW)
    standing.set_leading(True, NOW + 1)
    assert not standing.stepping_down


# Coming back.


def test_how_long_it_was_away_is_kept_until_it_is_asked_for():
    standing = leading()
    standing.set_leading(False, NOW + 5_000)
    standing.set_leading(True, NOW + 7_500)
    standing.set_leading(False, NOW + 8_000)
    standing.set_leading(True, NOW + 8_100)
    assert standing.take_reacquires() == [2_500, 100]
    assert standing.take_reacquires() == []


def test_a_first_election_is_no_return():
    assert leading().take_reacquires() == []


def test_a_campaign_that_is_given_up_before_any_reign_starts_no_clock():
    standing = Standing(INTERVAL)
    standing.set_leading(False, NOW)
    standing.set_leading(True, NOW + 9_000)
    assert standing.take_reacquires() == []


def test_the_time_away_is_counted_from_the_first_step_down():
    standing = leading()
    standing.set_leading(False, NOW + 1_000)
    standing.set_leading(False, NOW + 5_000)
    standing.set_leading(True, NOW + 6_000)
    assert standing.take_reacquires() == [5_000]
