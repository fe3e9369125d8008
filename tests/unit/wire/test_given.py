"""Parameters of runs, as they travel."""

from datetime import UTC, date, datetime
from enum import Enum

import msgspec
import pytest

from rota.core.errors import Refused
from rota.wire.given import packed, priority_class
from tests.refusals import refused


class Size(Enum):
    SMALL = "s"


def test_dates_travel_as_text_and_members_as_their_values_however_deep_they_are():
    given = {
        "at": datetime(2026, 11, 16, 12, tzinfo=UTC),
        "days": [date(2026, 11, 16), {"size": Size.SMALL}],
        "pair": (1, date(2026, 1, 1)),
    }
    assert msgspec.msgpack.decode(packed(given)) == {
        "at": "2026-11-16T12:00:00+00:00",
        "days": ["2026-11-16", {"size": "s"}],
        "pair": [1, "2026-01-01"],
    }
    assert packed({}) == b""


def test_what_cannot_be_sent_and_what_is_no_priority_are_refused():
    with refused("field.type", "type object", path="params"):
        packed({"a": object()})
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(Refused, match=r"field\.type"):
        packed({"a": endless})
    with refused("field.value", "'soon'", path="priority"):
        priority_class("soon")
