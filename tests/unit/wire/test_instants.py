"""Instants that people name: in a workflow's time zone, unless they say otherwise."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from rota.core.errors import Refused
from rota.wire.instants import When, end_of, instant
from tests.refusals import refused


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("said", "zone", "meant"),
    [
        ("2026-07-01", "UTC", "2026-07-01T00:00+00:00"),
        ("2026-07-01", "Europe/Berlin", "2026-06-30T22:00+00:00"),
        ("2026-07-01T06:30", "Asia/Kolkata", "2026-07-01T01:00+00:00"),
        ("2026-07-01T06:30+00:00", "Asia/Kolkata", "2026-07-01T06:30+00:00"),
        ("2026-07-01T06:30Z", "Asia/Kolkata", "2026-07-01T06:30+00:00"),
        # Of an hour that there is twice it is the first one.
        ("2026-10-25T02:30", "Europe/Berlin", "2026-10-25T00:30+00:00"),
        ("2026-04-05T01:45", "Australia/Lord_Howe", "2026-04-04T14:45+00:00"),
        # A day whose midnight is left out begins an hour later.
        ("2026-03-29", "Asia/Beirut", "2026-03-28T22:00+00:00"),
        (datetime(2026, 7, 1, 6, tzinfo=timezone(timedelta(hours=2))), "UTC", "2026-07-01T04:00+00:00"),
        (datetime(2026, 1, 1, 0, 0, 0, 1234), "UTC", "2026-01-01T00:00:00.001+00:00"),  # noqa: DTZ001 - read in the zone beside it
        (date(2026, 1, 1), "America/New_York", "2026-01-01T05:00+00:00"),
        (datetime(2026, 1, 1), "America/New_York", "2026-01-01T05:00+00:00"),  # noqa: DTZ001 - read in the zone beside it
    ],
)
def test_an_instant_is_read_in_the_workflows_zone(said: When, zone: str, meant: str):
    assert instant(said, zone, "start") == at(meant)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("2026-02-30", "'2026-02-30'.* month"),
        ("tomorrow", "'tomorrow'"),
        ("", "''"),
        ("2026-03-29T02:30", "2026-03-29T02:30:00.* Europe/Berlin"),
        ("0001-01-01", "0001-01-01T00:00:00.* calendar"),
        ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59-12:00.* calendar"),
    ],
)
def test_an_instant_that_does_not_exist_is_refused(said: str, why: str):
    with pytest.raises(Refused, match=why) as caught:
        instant(said, "Europe/Berlin", "start")
    assert (caught.value.code, caught.value.path) == ("field.value", "start")


@pytest.mark.parametrize(
    ("said", "zone", "meant"),
    [
        ("2026-07-01", "UTC", "2026-07-01T23:59:59.999+00:00"),
        ("20260701", "UTC", "2026-07-01T23:59:59.999+00:00"),
        (date(2026, 7, 1), "UTC", "2026-07-01T23:59:59.999+00:00"),
        ("2026-03-29", "Europe/Berlin", "2026-03-29T21:59:59.999+00:00"),
        ("2026-03-28", "Asia/Beirut", "2026-03-28T21:59:59.999+00:00"),
        ("2026-07-01T00:00", "UTC", "2026-07-01T00:00+00:00"),
        (datetime(2026, 7, 1, tzinfo=UTC), "UTC", "2026-07-01T00:00+00:00"),
    ],
)
def test_a_date_alone_at_an_end_means_all_of_that_day(said: When, zone: str, meant: str):
    assert end_of(said, zone, "end") == at(meant)


def test_the_last_day_of_all_has_no_end():
    with refused("field.value", "9999-12-31 ", "calendar", path="end"):
        end_of("9999-12-31", "UTC", "end")
