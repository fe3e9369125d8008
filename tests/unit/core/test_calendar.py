"""The calendar: which instants fire, what is due, what is refused."""

from datetime import UTC, datetime

import msgspec
import pytest

from rota.core.calendar import (
    AT_MAX,
    CONTINUOUS,
    ONCE,
    PRESETS,
    DueSlots,
    Misfire,
    MissedCause,
    MissedRange,
    ScheduleSpec,
    check_schedule,
    count_slots,
    due_slots,
    next_slot,
    slots_between,
)
from rota.core.errors import Refused

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MINUTELY = ScheduleSpec(cron="* * * * *")
MINUTELY_CATCH_UP = ScheduleSpec(cron="* * * * *", catch_up=True)


def at(text: str) -> int:
    """An instant from its UTC spelling."""
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp()) * SECOND


NOON = at("2026-05-04T12:00")


def fires(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next slots in UTC, short enough to read in a test."""
    slots = slots_between(ScheduleSpec(cron=cron, zone=zone), at(after), AT_MAX, count)
    return [datetime.fromtimestamp(slot // 1000, UTC).strftime("%d %H:%M") for slot in slots]


# --- which instants fire ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "slot"),
    [
        ("@hourly", "2026-05-04T13:00"),
        ("@daily", "2026-05-05T00:00"),
        ("@midnight", "2026-05-05T00:00"),
        ("@weekly", "2026-05-10T00:00"),
        ("@monthly", "2026-06-01T00:00"),
        ("@quarterly", "2026-07-01T00:00"),
        ("@yearly", "2027-01-01T00:00"),
        ("@annually", "2027-01-01T00:00"),
    ],
)
def test_a_preset_fires_at_the_start_of_its_period(preset: str, slot: str) -> None:
    assert preset in PRESETS
    assert next_slot(ScheduleSpec(cron=preset), NOON) == at(slot)


def test_a_slot_is_strictly_later_than_the_instant_asked_about() -> None:
    assert next_slot(MINUTELY, NOON - 1) == NOON
    assert next_slot(MINUTELY, NOON) == NOON + MINUTE


def test_an_interval_is_counted_from_its_start() -> None:
    spec = ScheduleSpec(every_ms=7 * SECOND, start_at=NOON + 3)
    assert next_slot(spec, 0) == NOON + 3
    assert next_slot(spec, NOON + 3) == NOON + 3 + 7 * SECOND
    assert count_slots(spec, NOON + 3, NOON + 3 + 70 * SECOND) == 10


def test_an_interval_without_a_start_is_counted_from_1970() -> None:
    assert next_slot(ScheduleSpec(every_ms=7 * SECOND), NOON) == (NOON // 7000 + 1) * 7000


def test_a_day_long_interval_keeps_elapsed_time_when_the_clocks_change() -> None:
    spec = ScheduleSpec(every_ms=DAY, zone="Europe/Paris", start_at=at("2024-03-30T01:00"))
    assert slots_between(spec, 0, AT_MAX, 3)[-1] == at("2024-04-01T01:00")


def test_start_and_end_are_both_inside_the_window() -> None:
    spec = ScheduleSpec(cron="0 * * * *", start_at=NOON, end_at=NOON + 2 * HOUR)
    assert slots_between(spec, 0, AT_MAX, 10) == (NOON, NOON + HOUR, NOON + 2 * HOUR)
    assert count_slots(spec, 0, AT_MAX) == 3
    assert next_slot(spec, NOON + 2 * HOUR) is None


def test_nothing_fires_after_the_end_of_the_calendar() -> None:
    assert next_slot(ScheduleSpec(cron="@yearly"), AT_MAX) is None
    assert next_slot(ScheduleSpec(every_ms=DAY), AT_MAX - 1) == AT_MAX
    assert next_slot(ScheduleSpec(every_ms=DAY), AT_MAX) is None


def test_a_leap_day_that_is_a_monday_is_found_decades_ahead() -> None:
    assert next_slot(ScheduleSpec(cron="0 0 * 2 MON#5"), NOON) == at("2044-02-29T00:00")
    assert next_slot(ScheduleSpec(cron="0 0 29 2 *"), at("2096-03-01T00:00")) == at("2104-02-29T00:00")


def test_the_last_day_and_the_last_weekday_of_a_month_are_understood() -> None:
    assert next_slot(ScheduleSpec(cron="0 9 L * *"), NOON) == at("2026-05-31T09:00")
    assert next_slot(ScheduleSpec(cron="0 9 LW * *"), NOON) == at("2026-05-29T09:00")


# --- clocks that change ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "zone", "after", "slots"),
    [
        ("30 2 * * *", "Europe/Paris", "2024-03-30T00:00", ["30 01:30", "31 01:00", "01 00:30"]),
        ("30 2 * * *", "America/New_York", "2024-03-09T00:00", ["09 07:30", "10 07:00", "11 06:30"]),
        ("10 0 * * *", "Asia/Kathmandu", "1985-12-31T00:00", ["31 18:30", "01 18:25"]),
        ("30 2 * * *", "Africa/Casablanca", "2024-04-13T00:00", ["13 02:30", "14 02:00", "15 01:30"]),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T00:00", ["03 03:00", "04 03:00", "05 02:00"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05T00:00", ["05 15:30", "06 15:15"]),
        ("30 2 * * *", "Pacific/Apia", "2011-12-29T00:00", ["29 12:30", "30 10:00", "30 12:30", "31 12:30"]),
    ],
)
def test_a_fixed_time_that_the_clock_skips_fires_at_the_jump(
    cron: str, zone: str, after: str, slots: list[str]
) -> None:
    assert fires(cron, zone, after, len(slots)) == slots


@pytest.mark.parametrize(
    ("cron", "zone", "after", "slots"),
    [
        ("30 1 * * *", "America/New_York", "2024-11-02T00:00", ["02 05:30", "03 05:30", "04 06:30"]),
        ("30 2 * * *", "Europe/Paris", "2024-10-26T00:00", ["26 00:30", "27 00:30", "28 01:30"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2024-04-06T00:00", ["06 14:45", "07 15:15"]),
        ("30 23 * * *", "America/Sao_Paulo", "2018-02-17T00:00", ["17 01:30", "18 01:30", "19 02:30"]),
    ],
)
def test_a_fixed_time_that_the_clock_repeats_fires_the_first_time(
    cron: str, zone: str, after: str, slots: list[str]
) -> None:
    assert fires(cron, zone, after, len(slots)) == slots


def test_all_fixed_times_inside_one_gap_fire_as_one() -> None:
    expected = ["10 07:00", "10 07:30", "11 06:00", "11 06:30"]
    assert fires("0,30 2,3 * * *", "America/New_York", "2024-03-10T00:00", 4) == expected
    spec = ScheduleSpec(cron="0,20,40 2,3 * * *", zone="America/New_York")
    assert count_slots(spec, at("2024-03-10T00:00"), at("2024-03-10T23:00")) == 3


def test_a_restart_in_the_repeated_hour_does_not_fire_a_fixed_time_again() -> None:
    assert fires("30 1 * * *", "America/New_York", "2024-11-03T06:10", 1) == ["04 06:30"]


def test_a_wildcard_follows_the_clock_through_a_gap_and_a_repeat() -> None:
    assert fires("*/30 * * * *", "Europe/Paris", "2024-03-31T00:00", 3) == ["31 00:30", "31 01:00", "31 01:30"]
    through_repeat = ["27 00:00", "27 00:30", "27 01:00", "27 01:30", "27 02:00"]
    assert fires("*/30 * * * *", "Europe/Paris", "2024-10-26T23:30", 5) == through_repeat
    assert fires("15 * * * *", "Australia/Lord_Howe", "2024-10-05T14:00", 2) == ["05 14:45", "05 16:15"]
    assert fires("45 * * * *", "Australia/Lord_Howe", "2024-04-06T14:00", 3) == ["06 14:45", "06 15:15", "06 16:15"]


def test_a_half_hour_jump_before_a_fixed_hour_loses_none_of_its_slots() -> None:
    expected = ["05 16:00", "05 16:20", "05 16:40", "06 16:00"]
    assert fires("*/20 3 * * *", "Australia/Lord_Howe", "2024-10-05T12:00", 4) == expected


def test_a_midnight_that_does_not_exist_fires_no_wildcard_whichever_way_it_is_reached() -> None:
    daily = ScheduleSpec(cron="*/20 0 * * *", zone="America/Sao_Paulo")
    assert next_slot(daily, at("2018-11-03T03:50")) == at("2018-11-05T02:00")
    yearly = ScheduleSpec(cron="*/20 0 4 11 *", zone="America/Sao_Paulo")
    assert next_slot(yearly, at("2018-11-01T00:00")) == at("2019-11-04T03:00")
    skipped_day = ScheduleSpec(cron="*/30 * 30 12 *", zone="Pacific/Apia")
    assert next_slot(skipped_day, at("2011-12-01T00:00")) == at("2012-12-29T10:00")


# --- what is due -----------------------------------------------------------------------------------------------------


def test_a_new_schedule_begins_at_the_first_look() -> None:
    due = due_slots(MINUTELY, None, NOON + 1, active_runs=0)
    assert due == DueSlots(cursor=NOON, next_at=NOON + MINUTE)
    assert due_slots(MINUTELY, None, NOON, active_runs=0).run == (NOON,)


def test_a_start_in_the_past_fires_from_there_only_with_catch_up() -> None:
    start_at = NOON - 3 * HOUR
    hourly = ScheduleSpec(cron="@hourly", start_at=start_at)
    assert due_slots(hourly, None, NOON + 1, active_runs=0).run == ()
    caught_up = msgspec.structs.replace(hourly, catch_up=True)
    assert due_slots(caught_up, None, NOON + 1, active_runs=0).run == tuple(start_at + i * HOUR for i in range(4))


def test_a_start_in_the_future_is_waited_for() -> None:
    for catch_up in (False, True):
        spec = ScheduleSpec(cron="@hourly", start_at=NOON + DAY, catch_up=catch_up)
        assert due_slots(spec, None, NOON, active_runs=0) == DueSlots(cursor=NOON - 1, next_at=NOON + DAY)


def test_a_look_that_decides_nothing_leaves_the_cursor_alone() -> None:
    assert due_slots(MINUTELY, NOON, NOON + 59_999, active_runs=0) == DueSlots(cursor=NOON, next_at=NOON + MINUTE)


def test_a_clock_that_stepped_back_fires_nothing_again() -> None:
    for spec in (MINUTELY, MINUTELY_CATCH_UP):
        due = due_slots(spec, NOON, NOON - HOUR, active_runs=0)
        assert due == DueSlots(cursor=NOON, next_at=NOON + MINUTE)


def test_a_day_of_missed_minutes_makes_one_run_the_newest() -> None:
    now = NOON + 1_440 * MINUTE
    due = due_slots(MINUTELY, NOON, now, active_runs=0)
    assert due.run == (now,)
    assert due.missed == (MissedRange(NOON + MINUTE, now - MINUTE, 1_439, MissedCause.SUPERSEDED),)
    assert (due.cursor, due.next_at) == (now, now + MINUTE)


def test_a_year_of_missed_minutes_makes_one_run() -> None:
    now = NOON + 365 * DAY
    due = due_slots(msgspec.structs.replace(MINUTELY, zone="Europe/Paris"), NOON, now, active_runs=0)
    assert due.run == (now,)
    assert [missed.count for missed in due.missed] == [365 * 1_440 - 1]


def test_catch_up_makes_every_slot_in_order_a_bounded_number_at_a_time() -> None:
    now, cursor, made = NOON + 250 * MINUTE, NOON, ()
    while True:
        due = due_slots(MINUTELY_CATCH_UP, cursor, now, active_runs=0, limit=100)
        made, cursor = made + due.run, due.cursor
        assert due.held == 250 - len(made)
        assert len(due.run) <= 100
        if not due.held:
            break
        assert due.next_at == now, "there is room, so the rest is made at once"
    assert made == tuple(NOON + i * MINUTE for i in range(1, 251))
    assert due.next_at == now + MINUTE


def test_a_slot_held_by_the_cap_is_made_later_with_catch_up() -> None:
    spec = msgspec.structs.replace(MINUTELY_CATCH_UP, max_active_runs=2)
    now = NOON + 3 * MINUTE
    due = due_slots(spec, NOON, now, active_runs=1)
    assert due == DueSlots(cursor=NOON + MINUTE, run=(NOON + MINUTE,), held=2, next_at=now + MINUTE)
    assert due_slots(spec, due.cursor, now, active_runs=2) == DueSlots(cursor=due.cursor, held=2, next_at=now + MINUTE)
    assert due_slots(spec, due.cursor, now, active_runs=0).run == (NOON + 2 * MINUTE, now)


def test_the_newest_slot_at_the_cap_is_held_without_catch_up_and_made_when_there_is_room() -> None:
    spec = msgspec.structs.replace(MINUTELY, max_active_runs=1)
    now = NOON + 3 * MINUTE
    due = due_slots(spec, NOON, now, active_runs=1)
    assert due.run == ()
    assert due.missed == (MissedRange(NOON + MINUTE, NOON + 2 * MINUTE, 2, MissedCause.SUPERSEDED),)
    assert (due.cursor, due.held) == (NOON + 2 * MINUTE, 1)
    assert due_slots(spec, due.cursor, now + 1, active_runs=0).run == (now,)


def test_more_active_runs_than_the_cap_are_no_surprise() -> None:
    spec = msgspec.structs.replace(MINUTELY_CATCH_UP, max_active_runs=1)
    assert due_slots(spec, NOON, NOON + MINUTE, active_runs=5).held == 1


def test_a_slot_later_than_its_grace_is_skipped() -> None:
    spec = ScheduleSpec(cron="@hourly", misfire=Misfire.SKIP, misfire_grace_ms=MINUTE)
    assert due_slots(spec, NOON, NOON + HOUR + MINUTE, active_runs=0).run == (NOON + HOUR,)
    due = due_slots(spec, NOON, NOON + 2 * HOUR + MINUTE + 1, active_runs=0)
    assert due.run == ()
    assert due.missed == (MissedRange(NOON + HOUR, NOON + 2 * HOUR, 2, MissedCause.LATE),)
    assert due.cursor == NOON + 2 * HOUR


def test_skip_tells_late_slots_from_superseded_ones() -> None:
    spec = ScheduleSpec(cron="* * * * *", misfire=Misfire.SKIP, misfire_grace_ms=2 * MINUTE)
    due = due_slots(spec, NOON, NOON + 10 * MINUTE, active_runs=0)
    assert [(missed.count, missed.cause) for missed in due.missed] == [
        (7, MissedCause.LATE),
        (2, MissedCause.SUPERSEDED),
    ]
    assert due.run == (NOON + 10 * MINUTE,)


def test_catch_up_with_skip_reaches_back_no_further_than_the_grace() -> None:
    spec = ScheduleSpec(cron="@hourly", catch_up=True, misfire=Misfire.SKIP, misfire_grace_ms=2 * HOUR)
    due = due_slots(spec, NOON, NOON + 10 * HOUR, active_runs=0)
    assert due.run == (NOON + 8 * HOUR, NOON + 9 * HOUR, NOON + 10 * HOUR)
    assert due.missed == (MissedRange(NOON + HOUR, NOON + 7 * HOUR, 7, MissedCause.LATE),)


def test_after_its_end_a_schedule_never_asks_to_be_looked_at_again() -> None:
    spec = ScheduleSpec(cron="@hourly", end_at=NOON)
    assert due_slots(spec, NOON - HOUR, NOON, active_runs=0) == DueSlots(cursor=NOON, run=(NOON,))
    assert due_slots(spec, NOON, NOON + DAY, active_runs=0) == DueSlots(cursor=NOON)


# --- schedules that are not periodic ---------------------------------------------------------------------------------


def test_once_without_a_start_fires_at_the_first_look_and_never_again() -> None:
    spec = ScheduleSpec(cron=ONCE)
    due = due_slots(spec, None, NOON, active_runs=0)
    assert due == DueSlots(cursor=NOON, run=(NOON,))
    assert due_slots(spec, due.cursor, NOON + DAY, active_runs=0) == DueSlots(cursor=NOON)


def test_once_with_a_start_fires_then_even_if_nobody_looked_in_time() -> None:
    spec = ScheduleSpec(cron=ONCE, start_at=NOON)
    assert due_slots(spec, None, NOON - DAY, active_runs=0).next_at == NOON
    for cursor in (None, NOON - DAY):
        due = due_slots(spec, cursor, NOON + DAY, active_runs=0)
        assert due == DueSlots(cursor=NOON, run=(NOON,))
    assert due_slots(spec, NOON, NOON + 2 * DAY, active_runs=0) == DueSlots(cursor=NOON)


@pytest.mark.parametrize("start_at", [None, NOON])
def test_once_waits_for_room_and_is_not_lost(start_at: int | None) -> None:
    spec = ScheduleSpec(cron=ONCE, start_at=start_at, max_active_runs=1)
    held = due_slots(spec, None, NOON, active_runs=1)
    assert (held.run, held.missed, held.held) == ((), (), 1)
    assert due_slots(spec, held.cursor, NOON + HOUR, active_runs=0).run == (start_at or NOON + HOUR,)


def test_once_with_skip_is_missed_when_it_is_too_late() -> None:
    spec = ScheduleSpec(cron=ONCE, start_at=NOON, misfire=Misfire.SKIP)
    due = due_slots(spec, None, NOON + HOUR, active_runs=0)
    assert due == DueSlots(cursor=NOON, missed=(MissedRange(NOON, NOON, 1, MissedCause.LATE),))


def test_continuous_makes_a_run_whenever_none_is_active() -> None:
    spec = ScheduleSpec(cron=CONTINUOUS)
    due = due_slots(spec, None, NOON, active_runs=0)
    assert due == DueSlots(cursor=NOON, run=(NOON,))
    assert due_slots(spec, due.cursor, NOON + 5, active_runs=1) == DueSlots(cursor=NOON, held=1)
    assert due_slots(spec, due.cursor, NOON + 1_006, active_runs=0).run == (NOON + 1_006,)


def test_continuous_leaves_a_second_between_runs_even_if_they_end_at_once_or_the_clock_steps_back() -> None:
    spec = ScheduleSpec(cron=CONTINUOUS)
    for now in (NOON, NOON + 999, NOON - HOUR):
        assert due_slots(spec, NOON, now, active_runs=0) == DueSlots(cursor=NOON, next_at=NOON + 1_000)
    assert due_slots(spec, NOON, NOON + 1_000, active_runs=0).run == (NOON + 1_000,)


def test_continuous_keeps_to_its_window() -> None:
    spec = ScheduleSpec(cron=CONTINUOUS, start_at=NOON, end_at=NOON + HOUR)
    assert due_slots(spec, None, NOON - 1, active_runs=0) == DueSlots(cursor=None, next_at=NOON)
    assert due_slots(spec, None, NOON + HOUR, active_runs=0).run == (NOON + HOUR,)
    assert due_slots(spec, NOON, NOON + HOUR + 1, active_runs=0) == DueSlots(cursor=NOON)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        *(ScheduleSpec(cron=preset) for preset in (*PRESETS, ONCE, CONTINUOUS)),
        ScheduleSpec(cron="0 0 29 2 *", zone="Australia/Lord_Howe"),
        ScheduleSpec(cron="0 0 * 2 MON#5"),
        ScheduleSpec(cron="*/5 8-18/2 1,15 jan-jun mon-fri"),
        ScheduleSpec(every_ms=SECOND, zone="Etc/GMT-14"),
        ScheduleSpec(cron="@daily", start_at=0, end_at=AT_MAX),
    ],
    ids=str,
)
def test_a_sound_schedule_is_accepted(spec: ScheduleSpec) -> None:
    check_schedule(spec)


@pytest.mark.parametrize(
    ("code", "path", "spec"),
    [
        ("schedule.cron", "cron", ScheduleSpec()),
        ("schedule.cron", "cron", ScheduleSpec(cron="@daily", every_ms=DAY)),
        ("schedule.cron", "cron", ScheduleSpec(cron="@every 5m")),
        ("schedule.cron", "cron", ScheduleSpec(cron="   ")),
        ("schedule.cron", "cron", ScheduleSpec(cron="0 0 * *")),
        ("schedule.cron", "cron", ScheduleSpec(cron="0 0 0 * * *")),
        ("schedule.cron", "cron", ScheduleSpec(cron="CRON_TZ=UTC 0 0 * * *")),
        ("schedule.cron", "cron", ScheduleSpec(cron="60 0 * * *")),
        ("schedule.cron", "cron", ScheduleSpec(cron="*/0 0 * * *")),
        ("schedule.cron", "cron", ScheduleSpec(cron="5-1 0 * * *")),
        ("schedule.cron", "cron", ScheduleSpec(cron="0 0 30 2 *")),
        ("schedule.cron", "cron", ScheduleSpec(cron="0 0 */30 * MON#3")),
        ("schedule.cron", "cron", ScheduleSpec(cron="0," * 200 + "0 0 * * *")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="Europe")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="Mars/Olympus")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="localtime")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="right/Europe/Paris")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="../../etc/passwd")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="a\0b")),
        ("schedule.zone", "zone", ScheduleSpec(cron="@daily", zone="x" * 10_000)),
        ("schedule.interval", "every_ms", ScheduleSpec(every_ms=999)),
        ("schedule.interval", "every_ms", ScheduleSpec(every_ms=-1)),
        ("schedule.interval", "every_ms", ScheduleSpec(every_ms=10**15)),
        ("schedule.window", "start_at", ScheduleSpec(cron="@daily", start_at=-1)),
        ("schedule.window", "start_at", ScheduleSpec(cron="@daily", start_at=10**18)),
        ("schedule.window", "end_at", ScheduleSpec(cron="@daily", end_at=10**18)),
        ("schedule.window", "end_at", ScheduleSpec(cron="@daily", start_at=NOON, end_at=NOON - 1)),
        ("schedule.window", "end_at", ScheduleSpec(cron="@daily", start_at=NOON, end_at=NOON + HOUR)),
        ("schedule.policy", "misfire_grace_ms", ScheduleSpec(cron="@daily", misfire_grace_ms=0)),
        ("schedule.policy", "misfire_grace_ms", ScheduleSpec(cron="@daily", misfire_grace_ms=10**15)),
        ("schedule.policy", "max_active_runs", ScheduleSpec(cron="@daily", max_active_runs=-1)),
        ("schedule.policy", "max_active_runs", ScheduleSpec(cron=CONTINUOUS, max_active_runs=2)),
    ],
    ids=lambda value: str(value)[:80],
)
def test_an_unsound_schedule_is_refused_with_the_field_at_fault(code: str, path: str, spec: ScheduleSpec) -> None:
    with pytest.raises(Refused) as refusal:
        check_schedule(spec)
    assert (refusal.value.code, refusal.value.path) == (code, path)


def test_a_misspelt_zone_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(Refused) as refusal:
        check_schedule(ScheduleSpec(cron="@daily", zone="europe/pariss"))
    assert "Europe/Paris" in refusal.value.hint


def test_a_spec_survives_json_and_an_unknown_field_does_not() -> None:
    spec = ScheduleSpec(cron="@daily", zone="Asia/Tokyo", start_at=NOON, misfire=Misfire.SKIP)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ScheduleSpec) == spec
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"cron": "@daily", "timezone": "UTC"}', type=ScheduleSpec)
