"""Durations and instants as people read them, in messages and on pages."""

from datetime import UTC, datetime, timedelta

from rota.core.ids import Millis

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000


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


def show_instant(at: Millis) -> str:
    """An instant, in UTC; one outside of the calendar as the number it is."""
    try:
        moment = _EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        return str(at)
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds' if at % 1_000 else 'seconds')}Z"


def show_number(value: int, name: str) -> str:
    """A number as its field's name says what it is: a duration in `_ms`, an instant in `_at`."""
    if name.endswith("_ms"):
        return show_span(value)
    return show_instant(value) if name.endswith("_at") else str(value)
