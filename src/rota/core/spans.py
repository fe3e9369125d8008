"""Durations and instants as people read them, in messages and on pages."""

from datetime import UTC, datetime, timedelta

from rota.core.ids import Millis

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000
# A day less than the calendar has at both ends, so that every zone has a date for what lies between.
_FIRST_AT = (datetime(1, 1, 2, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_AT = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def show_span(ms: Millis) -> str:
    """A duration, in the unit that suits it."""
    if ms < 0:
        return f"-{show_span(-ms)}"
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    if ms >= _DAY_MS:
        days, hours = ms // _DAY_MS, ms % _DAY_MS // 3_600_000
        shown = "1 day" if days == 1 else f"{days} days"
        return f"{shown} {hours} h" if hours else shown
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def moment_of(at: Millis) -> datetime | None:
    """An instant as a date and time, in UTC; None where there is no date for it, as before the year 1."""
    return _EPOCH + timedelta(milliseconds=at) if _FIRST_AT <= at < _LAST_AT else None


def show_beyond(at: Millis) -> str:
    """An instant that there is no date for, in words."""
    return f"{'before the year 1' if at < 0 else 'after the year 9999'} ({at} ms)"


def show_instant(at: Millis) -> str:
    """An instant, in UTC; one outside of the calendar as the number it is."""
    moment = moment_of(at)
    if moment is None:
        return str(at)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds' if at % 1_000 else 'seconds')}Z"


def show_slot(at: Millis) -> str:
    """The instant of a schedule, in UTC and no longer than it has to be: `2026-11-17T06:00Z`."""
    moment = moment_of(at)
    if moment is None or at % 60_000:
        return show_instant(at)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='minutes')}Z"


def show_number(value: int, name: str) -> str:
    """A number as its field's name says what it is: a duration in `_ms`, an instant in `_at`."""
    if name.endswith("_ms"):
        return show_span(value)
    return show_instant(value) if name.endswith("_at") else str(value)
