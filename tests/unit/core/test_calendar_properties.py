"""Each instant fires once: in every zone, from any restart, under any sequence of looks."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import msgspec
import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from rota.core.calendar import (
    Misfire,
    ScheduleSpec,
    count_slots,
    due_slots,
    next_slot,
    slots_between,
)

pytestmark = pytest.mark.slow

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
ZONES = sorted(available_timezones() - {"Factory", "localtime"})
ODD_ZONES = ("Australia/Lord_Howe", "Africa/Casablanca", "America/Sao_Paulo", "Antarctica/Troll", "Pacific/Apia")
FIXED = ("30 2 * * *", "0,15,30 0-3 * * *", "5 0-23/2 * * *", "59 23 L * *", "30 1 * * 0", "@daily")
WILDCARD = ("*/15 * * * *", "*/10 3 * * *", "0 */2 * * *", "45 * * * *", "*/20 0 */2 * *", "@hourly")


@cache
def days_with_a_jump(zone: str, year: int) -> tuple[int, ...]:
    """UTC days of a year on which the zone's offset changes, in seconds."""
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    days = range(begin, begin + 366 * DAY_S, DAY_S)
    offsets = [datetime.fromtimestamp(day, ZoneInfo(zone)).utcoffset() for day in days]
    return tuple(day for day, (a, b) in zip(days, pairwise(offsets), strict=False) if a != b)


def instants_of(cron: str, zone: ZoneInfo, low: int, high: int) -> list[int]:
    """The slots in (low, high], in seconds, by another road: every wall time that matches, put into the zone."""
    cron = {"@daily": "0 0 * * *", "@hourly": "0 * * * *"}.get(cron, cron)
    is_fixed = not any(field.startswith("*") for field in cron.split()[:2])
    found: set[int] = set()
    for wall in CronSim(cron, datetime.fromtimestamp(low - 2 * DAY_S, UTC)):
        if wall.timestamp() > high + 2 * DAY_S:
            break
        first, second = (wall.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
        exists = datetime.fromtimestamp(first.timestamp(), zone).replace(tzinfo=None) == wall.replace(tzinfo=None)
        if exists:
            found.update(int(w.timestamp()) for w in ((first,) if is_fixed else (first, second)))
        elif is_fixed:
            found.add(jump_between(zone, int(second.timestamp()), int(first.timestamp())))
    return sorted(at for at in found if low < at <= high)


def jump_between(zone: ZoneInfo, low: int, high: int) -> int:
    """The first second with the offset that holds at `high`."""
    after = datetime.fromtimestamp(high, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if datetime.fromtimestamp(middle, zone).utcoffset() == after else (middle, high)
    return high


@st.composite
def zones_and_days(draw: st.DrawFn) -> tuple[str, int]:
    """A zone and an instant in seconds, near one of the zone's jumps where the drawn year has any."""
    zone = draw(st.sampled_from(ODD_ZONES) | st.sampled_from(ZONES))
    year = draw(st.integers(1971, 2150))
    days = days_with_a_jump(zone, year) or (int(datetime(year, 6, 1, tzinfo=UTC).timestamp()),)
    return zone, draw(st.sampled_from(days)) + draw(st.integers(-HOUR_S, DAY_S))


crons = st.sampled_from(FIXED) | st.sampled_from(WILDCARD)
reaches = st.integers(1, 2 * DAY_S)


@given(zones_and_days(), crons, reaches, reaches)
def test_slots_are_the_matching_wall_times_each_once_and_in_order(
    place: tuple[str, int], cron: str, before_s: int, after_s: int
) -> None:
    zone, middle = place
    low, high = middle - before_s, middle + after_s
    spec = ScheduleSpec(cron=cron, zone=zone)
    expected = [at * 1000 for at in instants_of(cron, ZoneInfo(zone), low, high)]
    assert list(slots_between(spec, low * 1000, high * 1000, 10_000)) == expected
    assert count_slots(spec, low * 1000, high * 1000) == len(expected)


@given(zones_and_days(), crons, st.lists(st.integers(0, 3 * DAY_S * 1000), max_size=20))
def test_a_search_may_begin_anywhere_and_finds_the_same_slots(
    place: tuple[str, int], cron: str, starts: list[int]
) -> None:
    zone, middle = place
    low, high = (middle - DAY_S) * 1000, (middle + 3 * DAY_S) * 1000
    spec = ScheduleSpec(cron=cron, zone=zone)
    slots = slots_between(spec, low, high, 10_000)
    for start in (low + offset for offset in starts):
        later = [slot for slot in slots if slot > start]
        found = next_slot(spec, start)
        assert found is not None
        assert found == later[0] if later else found > high
        assert count_slots(spec, start, high) == len(later)


@given(st.integers(1_000, 10**9), st.integers(0, 2 * 10**12), st.integers(0, 10**12), st.integers(0, 10**10))
def test_an_interval_is_the_multiples_of_its_length(every_ms: int, start_at: int, after: int, length: int) -> None:
    spec = ScheduleSpec(every_ms=every_ms, start_at=start_at)
    slots = slots_between(spec, after, after + length, 50)
    assert all(slot > after and slot >= start_at and (slot - start_at) % every_ms == 0 for slot in slots)
    assert all(b - a == every_ms for a, b in pairwise(slots))
    assert len(slots) == min(50, count_slots(spec, after, after + length))


looks = st.lists(
    st.tuples(
        st.integers(-HOUR_S * 1000, 6 * HOUR_S * 1000),  # how far the clock moves, now and then backwards
        st.integers(0, 4),  # runs still active
        st.integers(1, 7),  # how many a look may make
    ),
    min_size=1,
    max_size=25,
)
specs = st.builds(
    ScheduleSpec,
    cron=crons,
    catch_up=st.booleans(),
    misfire=st.sampled_from(Misfire),
    misfire_grace_ms=st.integers(1_000, 10 * HOUR_S * 1000),
    max_active_runs=st.integers(0, 3),
)


@given(zones_and_days(), specs, looks)
def test_every_slot_is_decided_exactly_once_whatever_the_looks(
    place: tuple[str, int], spec: ScheduleSpec, looks: list[tuple[int, int, int]]
) -> None:
    zone, middle = place
    spec = msgspec.structs.replace(spec, zone=zone)
    now = begun = (middle - DAY_S) * 1000
    cursor: int | None = None
    decided: list[tuple[int, int, int]] = []
    for moved, active_runs, limit in looks:
        now += moved
        due = due_slots(spec, cursor, now, active_runs, limit)
        if cursor is None:
            begun = now
        assert due.cursor is not None
        assert cursor is None or due.cursor >= cursor, "a cursor never goes back"
        assert due.next_at is None or due.next_at >= now
        assert len(due.run) <= limit
        cap = spec.max_active_runs
        assert not due.run or not cap or active_runs + len(due.run) <= cap
        decided += [(missed.first, missed.last, missed.count) for missed in due.missed]
        decided += [(slot, slot, 1) for slot in due.run]
        cursor = due.cursor
    assert all(a[1] < b[0] for a, b in pairwise(decided)), "decisions follow one another and never overlap"
    assert cursor is not None
    assert sum(count for _, _, count in decided) == count_slots(spec, begun - 1, cursor)
    assert all(count == count_slots(spec, first - 1, last) for first, last, count in decided)


@given(zones_and_days(), crons, looks)
def test_catch_up_makes_all_slots_in_the_end_however_often_it_was_held(
    place: tuple[str, int], cron: str, looks: list[tuple[int, int, int]]
) -> None:
    zone, middle = place
    spec = ScheduleSpec(cron=cron, zone=zone, catch_up=True, max_active_runs=3)
    begun = now = (middle - DAY_S) * 1000
    cursor, made = begun, list[int]()
    for moved, active_runs, limit in looks:
        now = max(now, now + moved)
        due = due_slots(spec, cursor, now, active_runs, limit)
        cursor, made = due.cursor, [*made, *due.run]
    while (due := due_slots(spec, cursor, now, active_runs=0)).run:
        cursor, made = due.cursor, [*made, *due.run]
    assert made == list(slots_between(spec, begun, now, 10_000))


@given(zones_and_days(), crons, st.integers(0, 40 * DAY_S * 1000))
def test_without_catch_up_an_outage_of_any_length_makes_the_newest_slot_only(
    place: tuple[str, int], cron: str, outage_ms: int
) -> None:
    zone, middle = place
    spec = ScheduleSpec(cron=cron, zone=zone)
    cursor = (middle - DAY_S) * 1000
    now = cursor + outage_ms
    due = due_slots(spec, cursor, now, active_runs=0)
    total = count_slots(spec, cursor, now)
    assert len(due.run) == min(total, 1)
    assert sum(missed.count for missed in due.missed) == max(0, total - 1)
    assert not due.run or count_slots(spec, due.run[0], now) == 0


def test_a_daily_time_fires_once_for_every_day_of_a_year_in_every_zone() -> None:
    begin = int(datetime(2024, 12, 31, 12, tzinfo=UTC).timestamp()) * 1000
    for zone in ZONES:
        spec = ScheduleSpec(cron="30 2 * * *", zone=zone)
        first = next_slot(spec, begin)
        assert first is not None
        year_ms = int(timedelta(days=365, hours=12).total_seconds()) * 1000
        assert count_slots(spec, first, first + year_ms) == 365, zone


@pytest.mark.parametrize("zone", ODD_ZONES)
@pytest.mark.parametrize("cron", ["30 2 * * *", "0,15,30 0-3 * * *", "*/10 3 * * *", "45 * * * *"])
def test_half_a_year_in_an_odd_zone_matches_the_wall_clock(zone: str, cron: str) -> None:
    low = int(datetime(2011, 8, 1, tzinfo=UTC).timestamp())
    high = low + 180 * DAY_S
    expected = instants_of(cron, ZoneInfo(zone), low, high)
    spec = ScheduleSpec(cron=cron, zone=zone)
    assert count_slots(spec, low * 1000, high * 1000) == len(expected)
    assert [slot // 1000 for slot in slots_between(spec, low * 1000, high * 1000, 10_000)] == expected
