"""Instants that people name: in a zone of their own, or in that of the workflow they are about.

Everybody reads them here, so that a day is the same stretch of time in a schedule, in a backfill and in a test.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.model import Param, ParamType

# A text in ISO form is a day or an instant, as it says.
When = datetime | date | str


def instant(said: When, zone: str, path: str) -> Millis:
    """The instant that was named; of a day its beginning. One that does not exist in that zone is refused."""
    moment = _read(said, path)
    if not isinstance(moment, datetime):
        return _begin(moment, zone, path)
    if moment.tzinfo is not None:
        return _millis(moment, path)
    here = ZoneInfo(zone)
    at = _millis(moment.replace(tzinfo=here), path)
    if moment.replace(tzinfo=here).astimezone(UTC).astimezone(here).replace(tzinfo=None) != moment:
        text = f"there is no {moment.isoformat()} in {zone}: clocks were put forward"
        raise Refused("field.value", text, "Name an instant that exists there.", path=path)
    return at


def end_of(said: When, zone: str, path: str) -> Millis:
    """The end of a stretch: a day means all of it."""
    moment = _read(said, path)
    if isinstance(moment, datetime):
        return instant(moment, zone, path)
    try:
        after = moment + timedelta(days=1)
    except OverflowError:
        raise _far(moment, path) from None
    # Where a day was left out, it ends as it begins.
    return max(_begin(moment, zone, path), _begin(after, zone, path) - 1)


def check_instants(params: Iterable[Param], given: Mapping[str, Any], zone: str) -> None:
    """Refuse an instant among what a run is given that there is not in the workflow's zone."""
    for param in params:
        value = given.get(param.name)
        if param.type is ParamType.DATETIME and isinstance(value, str | datetime):
            instant(value, zone, f"params.{param.name}")


def _read(said: When, path: str) -> datetime | date:
    if not isinstance(said, str):
        return said
    try:
        return date.fromisoformat(said)
    except ValueError as error:
        why = error
    try:
        return datetime.fromisoformat(said)
    except ValueError as error:
        # Of a day that there is not it is said why; of anything else, what is wrong with it as an instant.
        why = why if "out of range" in str(why) else error
    hint = "Write it like 2026-11-16 or 2026-11-16T12:00:00+01:00."
    raise Refused("field.value", f"{said[:40]!r} is not a date: {why}", hint, path=path)


def _begin(day: date, zone: str, path: str) -> Millis:
    """A day begins when it does, also where its midnight is left out."""
    return _millis(datetime.combine(day, time(), ZoneInfo(zone)), path)


def _millis(moment: datetime, path: str) -> Millis:
    try:
        return round(moment.astimezone(UTC).timestamp() * 1_000)
    except OverflowError:
        raise _far(moment, path) from None


def _far(moment: date, path: str) -> Refused:
    return Refused("field.value", f"{moment.isoformat()} is at the end of the calendar", path=path)
