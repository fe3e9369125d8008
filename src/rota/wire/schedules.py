"""Schedules for people: when runs are made, in a few words, and the next instants."""

from rota.core.calendar import CONTINUOUS, ScheduleSpec, slots_between
from rota.core.ids import Millis
from rota.core.questions import WorkflowView
from rota.core.spans import show_span

NEXT_SHOWN = 5
_FAR_MS = 10 * 366 * 86_400_000


def show_schedule(spec: ScheduleSpec | None) -> str:
    """When runs are made, in one line."""
    if spec is None:
        return "by hand"
    when = spec.cron or f"every {show_span(spec.every_ms)}"
    return when if spec.zone == "UTC" or spec.every_ms or spec.cron == CONTINUOUS else f"{when} {spec.zone}"


def upcoming(view: WorkflowView) -> list[Millis]:
    """The next instants at which runs are made, if nothing changes."""
    if view.schedule is None or view.next_at is None:
        return []
    return list(slots_between(view.schedule, view.next_at - 1, view.next_at + _FAR_MS, NEXT_SHOWN))
