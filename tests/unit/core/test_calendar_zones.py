"""Four zones whose clocks change by an hour, by half an hour and not at all: what fires, instant by instant.

In 2024 clocks in Berlin went from 2 to 3 on 31 March and from 3 to 2 on 27 October; in New York from 2 to 3 on 10 March
and from 2 to 1 on 3 November; on Lord Howe from 2:00 to 2:30 on 6 October and from 2:00 to 1:30 on 7 April; in Kolkata
they were left alone.
"""

from datetime import UTC, datetime

import pytest

from rota.core.calendar import AT_MAX, ScheduleSpec, count_slots, due_slots, slots_between

BERLIN, NEW_YORK, LORD_HOWE, KOLKATA = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"


def at(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000)


def shown(slots: tuple[int, ...]) -> list[str]:
    return [datetime.fromtimestamp(slot // 1000, UTC).strftime("%d %H:%M") for slot in slots]


# The zone, the expression, from when on (UTC), and the instants that fire (UTC).
FIRES = [
    # A fixed time that is skipped fires once, at the jump.
    (BERLIN, "30 2 * * *", "2024-03-30T00:00", ["30 01:30", "31 01:00", "01 00:30"]),
    (NEW_YORK, "30 2 * * *", "2024-03-09T00:00", ["09 07:30", "10 07:00", "11 06:30"]),
    (LORD_HOWE, "15 2 * * *", "2024-10-04T16:00", ["05 15:30", "06 15:15"]),
    (KOLKATA, "30 2 * * *", "2024-03-30T00:00", ["30 21:00", "31 21:00", "01 21:00"]),
    # One that comes twice fires the first time.
    (BERLIN, "30 2 * * *", "2024-10-26T00:00", ["26 00:30", "27 00:30", "28 01:30"]),
    (NEW_YORK, "30 1 * * *", "2024-11-02T00:00", ["02 05:30", "03 05:30", "04 06:30"]),
    (LORD_HOWE, "45 1 * * *", "2024-04-05T15:00", ["06 14:45", "07 15:15"]),
    (KOLKATA, "30 1 * * *", "2024-10-26T00:00", ["26 20:00", "27 20:00", "28 20:00"]),
    # Midnight stays midnight.
    (BERLIN, "@daily", "2024-03-30T00:00", ["30 23:00", "31 22:00", "01 22:00"]),
    (NEW_YORK, "@daily", "2024-11-02T05:00", ["03 04:00", "04 05:00", "05 05:00"]),
    (LORD_HOWE, "@daily", "2024-10-04T14:00", ["05 13:30", "06 13:00", "07 13:00"]),
    (KOLKATA, "@daily", "2024-10-26T00:00", ["26 18:30", "27 18:30", "28 18:30"]),
    # Every hour follows the clock: none in the hour that is not there, two in the one that comes twice.
    (BERLIN, "0 * * * *", "2024-03-30T23:30", ["31 00:00", "31 01:00", "31 02:00"]),
    (BERLIN, "0 * * * *", "2024-10-26T23:30", ["27 00:00", "27 01:00", "27 02:00"]),
    (NEW_YORK, "0 * * * *", "2024-11-03T04:30", ["03 05:00", "03 06:00", "03 07:00"]),
    (LORD_HOWE, "0 * * * *", "2024-10-05T14:00", ["05 14:30", "05 16:00", "05 17:00"]),
    (LORD_HOWE, "30 * * * *", "2024-04-06T13:45", ["06 14:30", "06 15:00", "06 16:00"]),
    (KOLKATA, "0 * * * *", "2024-10-26T23:00", ["26 23:30", "27 00:30", "27 01:30"]),
    # Working days and months as the wall has them, not as UTC does.
    (KOLKATA, "0 2 * * mon", "2024-03-30T00:00", ["31 20:30", "07 20:30"]),
    (NEW_YORK, "0 22 1 * *", "2024-10-15T00:00", ["02 02:00", "02 03:00"]),
]


@pytest.mark.parametrize(("zone", "cron", "after", "slots"), FIRES)
def test_what_fires_around_a_change_of_the_clock(zone: str, cron: str, after: str, slots: list[str]) -> None:
    spec = ScheduleSpec(cron=cron, zone=zone)
    assert shown(slots_between(spec, at(after), AT_MAX, len(slots))) == slots


# How many fire between two midnights of the zone: the short day, the long day, an ordinary one.
DAYS = [
    (BERLIN, ("2024-03-30T23:00", "2024-03-31T22:00"), ("2024-10-26T22:00", "2024-10-27T23:00"), 60),
    (NEW_YORK, ("2024-03-10T05:00", "2024-03-11T04:00"), ("2024-11-03T04:00", "2024-11-04T05:00"), 60),
    (LORD_HOWE, ("2024-10-05T13:30", "2024-10-06T13:00"), ("2024-04-06T13:00", "2024-04-07T13:30"), 30),
    (KOLKATA, ("2024-03-30T18:30", "2024-03-31T18:30"), ("2024-10-26T18:30", "2024-10-27T18:30"), 0),
]


@pytest.mark.parametrize(("zone", "short", "long", "minutes"), DAYS)
def test_a_day_has_as_many_minutes_as_it_has_and_one_slot_of_a_fixed_time(
    zone: str, short: tuple[str, str], long: tuple[str, str], minutes: int
) -> None:
    for (begin, end), length in ((short, 1_440 - minutes), (long, 1_440 + minutes)):
        span = at(begin) - 1, at(end) - 1
        assert count_slots(ScheduleSpec(cron="* * * * *", zone=zone), *span) == length
        assert count_slots(ScheduleSpec(cron="*/15 * * * *", zone=zone), *span) == length // 15
        for fixed in ("15 2 * * *", "45 1 * * *", "0 0 * * *", "59 23 * * *"):
            assert count_slots(ScheduleSpec(cron=fixed, zone=zone), *span) == 1


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE, KOLKATA])
@pytest.mark.parametrize("cron", ["45 1 * * *", "15 2 * * *", "0 * * * *"])
@pytest.mark.parametrize("days", [("2024-03-09", "2024-04-09"), ("2024-10-04", "2024-11-05")], ids=["spring", "autumn"])
def test_through_both_changes_every_slot_is_made_once_whenever_somebody_looks(
    zone: str, cron: str, days: tuple[str, str]
) -> None:
    spec = ScheduleSpec(cron=cron, zone=zone)
    begin, end = (at(f"{day}T00:00") for day in days)
    cursor: int | None = begin
    made: list[int] = []
    # Looks at odd times, sometimes a minute and sometimes the better part of an hour apart.
    now = begin
    while now < end:
        now = min(end, now + (37 if now % 7 else 53) * 60_000 + 1)
        due = due_slots(spec, cursor, now, active_runs=0)
        made += due.run
        cursor = due.cursor
    assert tuple(made) == slots_between(spec, begin, end, 100_000)
    assert len(set(made)) == len(made)
