"""Durations and instants as people read them."""

from zoneinfo import ZoneInfo

import pytest

from rota.core.graph import check_id, check_number
from rota.core.spans import moment_of, show_beyond, show_instant, show_slot, show_span
from tests.refusals import refused


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (61_000, "1 min 01 s"),
        (3_597_000, "59 min 57 s"),
        (7_260_000, "2 h 01 min"),
        (86_400_000, "1 day"),
        (90_000_000, "1 day 1 h"),
        (30 * 86_400_000, "30 days"),
        (-1_500, "-1.5 s"),
    ],
)
def test_a_span_is_shown_in_the_unit_that_suits_it(ms: int, text: str):
    assert show_span(ms) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_794_960_000_250, "2026-11-18T00:00:00.250Z"),
        (1 << 62, str(1 << 62)),
    ],
)
def test_an_instant_is_shown_in_utc(at: int, text: str):
    assert show_instant(at) == text


def test_a_number_that_is_out_of_range_is_shown_by_what_its_name_says_it_is():
    with refused("field.value", "40 days", "0 ms", "30 days", path="task.timeout_ms"):
        check_number(40 * 86_400_000, 0, 30 * 86_400_000, "task", "timeout_ms")
    with refused("field.value", "2500-01-01T00:00:00Z", path="logical_at"):
        check_number(16_725_225_600_000, 0, 10, "logical_at")
    with refused("field.value", "5000 ", "0 to 10", path="slots"):
        check_number(5_000, 0, 10, "slots")


@pytest.mark.parametrize("id", [".", ".."])
def test_an_id_that_an_address_would_take_for_a_folder_is_none(id: str):
    with refused("field.value", repr(id), " . or .. ", path="run"):
        check_id(id, "run")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_every_zone_has_a_date_for_every_moment_that_there_is(zone: str):
    ends = [-(1 << 63), -62_135_596_800_001, -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000, 1 << 62]
    for at in (*ends, 10**400):
        assert moment_of(at) is None
        assert f"({at} ms)" in show_beyond(at)
    for at in (-62_135_510_400_000, 253_402_214_399_999):
        moment = moment_of(at)
        assert moment is not None
        assert moment.astimezone(ZoneInfo(zone)).timestamp() * 1_000 == at
    assert [show_beyond(at).partition(" (")[0] for at in (ends[0], ends[-1])] == [
        "before the year 1",
        "after the year 9999",
    ]


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (1_794_895_200_000, "2026-11-17T06:00Z"),
        (1_794_895_207_000, "2026-11-17T06:00:07Z"),
        (1_794_895_207_250, "2026-11-17T06:00:07.250Z"),
    ],
)
def test_a_slot_is_shown_no_longer_than_it_has_to_be(at: int, text: str):
    assert show_slot(at) == text
    check_id(f"etl@{text}")
