"""When a workflow runs, from how people write it."""

from datetime import timedelta

from rota.core.calendar import CONTINUOUS, EVERY_MS_MAX, EVERY_MS_MIN, ONCE, Misfire, ScheduleSpec, check_schedule
from rota.core.errors import Refused
from rota.core.spans import show_span
from rota.kinds.workflow.options import millis
from rota.wire.instants import When, end_of, instant

# How many runs of a schedule that catches up are made at once, unless its workflow says so.
CATCH_UP_RUNS = 16


def schedule_of(
    schedule: str | timedelta | float | None,
    *,
    start: When | None,
    end: When | None,
    timezone: str,
    catchup: bool,
    misfire: str,
    max_active_runs: int,
) -> ScheduleSpec | None:
    """A checked schedule; None if there is none. A cron text, a preset, @once, @continuous, a timedelta or seconds."""
    # Also without a schedule: the zone says which day it is.
    check_schedule(ScheduleSpec(cron=ONCE, zone=timezone))
    if schedule is None:
        if start is not None or end is not None or catchup:
            raise Refused(
                "schedule.window", "start, end and catchup are of a schedule, and there is none", path="schedule"
            )
        return None
    if isinstance(schedule, str) and not schedule.strip():
        hint = "Leave it out, or give a cron text such as 0 6 * * *, a preset such as @daily, or seconds."
        raise Refused("schedule.cron", "the schedule is empty", hint, path="schedule")
    every_ms = 0 if isinstance(schedule, str) else _every_ms(schedule)
    cap = 1 if schedule == CONTINUOUS else max_active_runs or (CATCH_UP_RUNS if catchup else 0)
    spec = ScheduleSpec(
        cron=schedule.strip() if isinstance(schedule, str) else "",
        every_ms=every_ms,
        zone=timezone,
        start_at=None if start is None else instant(start, timezone, "start"),
        end_at=None if end is None else end_of(end, timezone, "end"),
        catch_up=catchup,
        misfire=_misfire(misfire),
        max_active_runs=cap,
    )
    check_schedule(spec)
    return spec


def _every_ms(schedule: timedelta | float) -> int:
    every_ms = millis(schedule)
    if not EVERY_MS_MIN <= every_ms <= EVERY_MS_MAX:
        text = f"a schedule cannot be {schedule!r}: {show_span(every_ms)} from one run to the next"
        hint = f"Use {show_span(EVERY_MS_MIN)} to {show_span(EVERY_MS_MAX)}."
        raise Refused("schedule.interval", text, hint, path="schedule")
    return every_ms


def _misfire(name: str) -> Misfire:
    try:
        return Misfire(name)
    except ValueError:
        known = ", ".join(Misfire)
        raise Refused("schedule.policy", f"{name!r} is no misfire policy", f"Use {known}.", path="misfire") from None
