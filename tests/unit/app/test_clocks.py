"""The clock of a process goes on whatever the day is set to."""

import time

import pytest

from rota.app.clocks import SystemClock, wall_clock


def test_a_day_that_is_set_back_does_not_move_the_clock_of_a_process(monkeypatch: pytest.MonkeyPatch):
    clock = SystemClock()
    before = clock()
    assert abs(before - wall_clock()) < 60_000
    day = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: day - 3_600 * 10**9)
    assert wall_clock() < before - 3_000_000
    assert 0 <= clock() - before < 60_000


def test_time_counts_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch):
    clock = SystemClock()
    before = clock()
    asked: list[int] = []

    def after_an_hour_of_sleep(which: int) -> int:
        asked.append(which)
        return real(which) + 3_600 * 10**9

    real = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", after_an_hour_of_sleep)
    assert clock() - before >= 3_600_000
    assert asked == [time.CLOCK_BOOTTIME]
