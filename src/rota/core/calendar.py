"""Calendar: the instants at which a schedule fires, and which of them are due.

A schedule is a set of instants, its slots, and a function of its spec alone. The cursor says how far that set has been
decided: every slot up to it was made into a run or recorded as missed, and it only grows. So an instant fires once
across restarts and leaders, and a run made by hand, which is no input here, moves nothing.

cronsim reads the expression and says which days match; the search and the zone are applied here, because with a zone
cronsim's answer depends on where its search began. The rules are those of Debian's cron:

| expression | wall time skipped by a jump | wall time repeated |
|---|---|---|
| minute and hour fixed: `30 2 * * *` | fires once, at the jump | fires the first time only |
| minute or hour begins with `*`: `*/15 * * * *` | does not fire | fires both times |

An interval counts elapsed time from `start_at` (or from 1970) and knows no zone.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from msgspec import Struct

from rota.core.errors import Refused
from rota.core.ids import Millis
from rota.core.spans import show_number

ONCE: Final = "@once"
CONTINUOUS: Final = "@continuous"
PRESETS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
AT_MAX: Final[Millis] = 7_258_118_400_000  # 2200-01-01; nothing fires later, and every search ends
CRON_CHARS_MAX: Final = 200
EVERY_MS_MIN: Final = 1_000
EVERY_MS_MAX: Final = 3_660 * 86_400_000
GRACE_MS_MAX: Final = 366 * 86_400_000
ACTIVE_RUNS_MAX: Final = 1_000_000

_DAY_S: Final = 86_400
_EVERY_KIND_OF_YEAR_S: Final = 28 * 366 * _DAY_S  # 1970 to 1998: each first weekday, with and without a leap day
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_HOST_ZONES: Final = ("Factory", "localtime", "posixrules")  # what these mean differs from host to host
_HOST_ZONE_FOLDERS: Final = ("posix/", "right/")


class Misfire(StrEnum):
    """What becomes of a slot that nobody looked at in time."""

    RUN_LATEST = "run_latest"
    SKIP = "skip"


class MissedCause(StrEnum):
    """Why a slot made no run: later than its grace, or overtaken by a newer slot."""

    LATE = "late"
    SUPERSEDED = "superseded"


class ScheduleSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When runs are made: `cron` (five fields or a preset) or `every_ms`, between `start_at` and `end_at` inclusive.

    `max_active_runs` 0 means no cap; @continuous has a cap of one. `misfire_grace_ms` counts only with `skip`.
    """

    cron: str = ""
    every_ms: int = 0
    zone: str = "UTC"
    start_at: Millis | None = None
    end_at: Millis | None = None
    catch_up: bool = False
    misfire: Misfire = Misfire.RUN_LATEST
    misfire_grace_ms: int = 60_000
    max_active_runs: int = 0

    @property
    def instants(self) -> tuple[object, ...]:
        """What decides when it fires; the rest only says what becomes of its slots."""
        return self.cron, self.every_ms, self.zone, self.start_at


class MissedRange(Struct, frozen=True):
    """Neighbouring slots that made no run; the count is exact however long the range."""

    first: Millis
    last: Millis
    count: int
    cause: MissedCause


class DueSlots(Struct, frozen=True, kw_only=True):
    """What one look found. Store `cursor` in the same commit as the runs and the missed ranges.

    `held` slots are due and still to be made. Look again at `next_at`, and when a run ends while any are held.
    """

    cursor: Millis | None
    run: tuple[Millis, ...] = ()
    missed: tuple[MissedRange, ...] = ()
    held: int = 0
    next_at: Millis | None = None


def check_schedule(spec: ScheduleSpec) -> None:
    """Refuse a spec that cannot be read, contradicts itself or never fires."""
    _check_numbers(spec)
    _zone(spec.zone)
    if bool(spec.cron) == bool(spec.every_ms):
        raise Refused("schedule.cron", "a schedule needs either cron or every_ms", "Give exactly one.", path="cron")
    if spec.cron in (ONCE, CONTINUOUS):
        return
    if spec.cron and _first_match(_cron(spec.cron, spec.zone), 0, _EVERY_KIND_OF_YEAR_S) is None:
        raise _never(spec.cron)
    if next_slot(spec, -1) is None:
        raise Refused("schedule.window", "no slot falls between start_at and end_at", path="end_at")


def check_zone(name: str) -> None:
    """Refuse a name that is not an IANA time zone."""
    _zone(name)


def local_time(at: Millis, zone: str) -> datetime:
    """An instant as a date and time in a time zone."""
    return (_EPOCH + timedelta(milliseconds=at)).astimezone(_zone(zone))


def _check_numbers(spec: ScheduleSpec) -> None:
    start_at, end_at = spec.start_at or 0, AT_MAX if spec.end_at is None else spec.end_at
    cap_max = 1 if spec.cron == CONTINUOUS else ACTIVE_RUNS_MAX
    bounds = (
        ("schedule.interval", "every_ms", spec.every_ms or EVERY_MS_MIN, EVERY_MS_MIN, EVERY_MS_MAX),
        ("schedule.window", "start_at", start_at, 0, AT_MAX),
        ("schedule.window", "end_at", end_at, start_at, AT_MAX),
        ("schedule.policy", "misfire_grace_ms", spec.misfire_grace_ms, 1_000, GRACE_MS_MAX),
        ("schedule.policy", "max_active_runs", spec.max_active_runs, 0, cap_max),
    )
    for code, name, value, least, most in bounds:
        if not least <= value <= most:
            said, low, high = (show_number(number, name) for number in (value, least, most))
            raise Refused(code, f"{name} is {said}", f"Use {low} to {high}.", path=name)


def next_slot(spec: ScheduleSpec, after: Millis) -> Millis | None:
    """The first slot strictly after an instant.

    @continuous, and @once without a start, fire at the moment of a look and have no slot that could be told before.
    """
    after, until = _window(spec, after, AT_MAX)
    if after >= until:
        return None
    if spec.every_ms:
        anchor = spec.start_at or 0
        slot = anchor + ((after - anchor) // spec.every_ms + 1) * spec.every_ms
        return slot if slot <= until else None
    if spec.cron in (ONCE, CONTINUOUS):
        return spec.start_at if spec.start_at is not None and after < spec.start_at else None
    slot_s = _next_fire(spec.cron, spec.zone, after // 1000, until // 1000)
    return None if slot_s is None else slot_s * 1000


def slots_between(spec: ScheduleSpec, after: Millis, until: Millis, limit: int) -> tuple[Millis, ...]:
    """The first `limit` slots later than `after` and not later than `until`, oldest first."""
    slots: list[Millis] = []
    while len(slots) < limit and (slot := next_slot(spec, after)) is not None and slot <= until:
        slots.append(slot)
        after = slot
    return tuple(slots)


def count_slots(spec: ScheduleSpec, after: Millis, until: Millis) -> int:
    """How many slots `slots_between` would give without a limit; costs days, not slots."""
    after, until = _window(spec, after, until)
    if after >= until:
        return 0
    if spec.every_ms:
        anchor = spec.start_at or 0
        return (until - anchor) // spec.every_ms - (after - anchor) // spec.every_ms
    if spec.cron in (ONCE, CONTINUOUS):
        return len(slots_between(spec, after, until, 1))
    return _count_fires(_cron(spec.cron, spec.zone), after // 1000, until // 1000)


def due_slots(spec: ScheduleSpec, cursor: Millis | None, now: Millis, active_runs: int, limit: int = 100) -> DueSlots:
    """What to do about the slots later than `cursor` and not later than `now`.

    | slot | catch-up on | catch-up off |
    |---|---|---|
    | late beyond the grace, `skip` | missed (late) | missed (late) |
    | newest of those left | made | made |
    | older ones | made first, `limit` a look | missed (superseded) |
    | no room under the cap | held: cursor stays before it, made later | the newest likewise |

    Cursor None is a schedule nobody has looked at: it begins now, and nothing older fires unless catch-up is on and
    `start_at` says from when. @once never loses its run to the cap; with a start it fires however late the look is
    (unless `skip`), without one at the first look. @continuous fires when no run is active. A look that decides
    nothing returns the cursor it was given, so it needs no commit; only None is replaced, by the beginning. When cron,
    interval, zone or start of a live schedule change, pass the moment of the change as its cursor: everything older
    was decided by the old spec.
    """
    assert limit > 0, "a look that may make nothing would never get past a held slot"
    cap = 1 if spec.cron == CONTINUOUS else spec.max_active_runs
    room = max(0, cap - active_runs) if cap else ACTIVE_RUNS_MAX
    if spec.cron == CONTINUOUS or (spec.cron == ONCE and spec.start_at is None):
        return _due_at_look(spec, cursor, now, room)
    in_order = spec.catch_up or spec.cron == ONCE
    if cursor is None:
        cursor = (min(spec.start_at, now) if in_order and spec.start_at is not None else now) - 1
    missed: tuple[MissedRange, ...] = ()
    if spec.misfire is Misfire.SKIP:
        missed = _missed(spec, cursor, now - spec.misfire_grace_ms - 1, MissedCause.LATE)
        cursor = missed[-1].last if missed else cursor
    if in_order:
        run = slots_between(spec, cursor, now, min(limit, room))
        cursor = run[-1] if run else cursor
        held = count_slots(spec, cursor, now)
        next_at = now if held and room > len(run) else next_slot(spec, max(cursor, now))
        return DueSlots(cursor=cursor, run=run, missed=missed, held=held, next_at=next_at)
    newest, run = _latest_slot(spec, cursor, now), ()
    if newest is not None:
        overtaken = _missed(spec, cursor, newest - 1, MissedCause.SUPERSEDED)
        missed += overtaken
        if room:
            cursor, run = newest, (newest,)
        elif overtaken:
            cursor = overtaken[-1].last
    held = int(newest is not None and not run)
    return DueSlots(cursor=cursor, run=run, missed=missed, held=held, next_at=next_slot(spec, max(cursor, now)))


def _due_at_look(spec: ScheduleSpec, cursor: Millis | None, now: Millis, room: int) -> DueSlots:
    """One run labelled with the moment of the look, a second or more after the one before, by whatever clock."""
    if spec.cron == CONTINUOUS and room and cursor is not None and now - cursor < EVERY_MS_MIN:
        # A run that ends at once is not followed at once: a second is the shortest period there is.
        return DueSlots(cursor=cursor, next_at=cursor + EVERY_MS_MIN)
    slot = now if cursor is None else max(now, cursor + 1)
    is_over = slot > (AT_MAX if spec.end_at is None else spec.end_at)
    if is_over or (spec.cron == ONCE and cursor is not None):
        return DueSlots(cursor=cursor)
    if spec.start_at is not None and slot < spec.start_at:
        return DueSlots(cursor=cursor, next_at=spec.start_at)
    return DueSlots(cursor=slot, run=(slot,)) if room else DueSlots(cursor=cursor, held=1)


def _missed(spec: ScheduleSpec, after: Millis, until: Millis, cause: MissedCause) -> tuple[MissedRange, ...]:
    first = next_slot(spec, after)
    last = _latest_slot(spec, after, until)
    if first is None or last is None:
        return ()
    return (MissedRange(first, last, count_slots(spec, after, last), cause),)


def _latest_slot(spec: ScheduleSpec, after: Millis, until: Millis) -> Millis | None:
    """The last slot later than `after` and not later than `until`: found by halving, so an outage's length is cheap."""
    latest = next_slot(spec, after)
    if latest is None or latest > until:
        return None
    following = next_slot(spec, latest)
    none_after = until if following is not None and following <= until else latest
    while none_after - latest >= EVERY_MS_MIN:
        middle = (latest + none_after) // 2
        slot = next_slot(spec, middle)
        if slot is None or slot > until:
            none_after = middle
        else:
            latest = slot
    return latest


def _window(spec: ScheduleSpec, after: Millis, until: Millis) -> tuple[Millis, Millis]:
    return max(after, (spec.start_at or 0) - 1), min(until, AT_MAX if spec.end_at is None else spec.end_at)


class _Cron(NamedTuple):
    """A parsed expression: `is_fixed` if neither minute nor hour begins with `*`, `day_seconds` its times of day."""

    fields: CronSim
    zone: ZoneInfo
    is_fixed: bool
    day_seconds: tuple[int, ...]


class _Jump(NamedTuple):
    """An instant at which the zone's offset changes. All in seconds."""

    at: int
    before: int
    after: int


class _Stretch(NamedTuple):
    """Wall seconds in (low, high] that fire under one offset; those a jump skipped fire at `floor`, the jump."""

    low: int
    high: int
    offset: int
    floor: int


@lru_cache(maxsize=4096)
def _cron(text: str, zone: str) -> _Cron:
    expression = PRESETS.get(text, text)
    parts = expression.split()
    if len(text) > CRON_CHARS_MAX:
        raise Refused("schedule.cron", f"the expression has more than {CRON_CHARS_MAX} characters", path="cron")
    if expression.startswith("@"):
        known = ", ".join((*PRESETS, ONCE, CONTINUOUS))
        raise Refused("schedule.cron", f"there is no preset {text!r}", f"Presets: {known}.", path="cron")
    if len(parts) != 5:
        hint = "Give minute, hour, day, month and weekday; seconds need every_ms, a zone goes into zone."
        raise Refused("schedule.cron", f"{text!r} has {len(parts)} fields, not five", hint, path="cron")
    try:
        fields = CronSim(expression, datetime.fromtimestamp(0, UTC))
    except CronSimError as error:
        if _is_cron(*parts[:2], "*", *parts[3:]) and _is_cron(*parts[:3], "*", parts[4]):
            # Each part can be, and not together: the 30th of February.
            raise _never(text) from error
        raise Refused("schedule.cron", f"{text!r} cannot be read: {str(error).lower()}", path="cron") from error
    is_fixed = not (parts[0].startswith("*") or parts[1].startswith("*"))
    day_seconds = tuple(h * 3600 + m * 60 for h in sorted(fields.hours) for m in sorted(fields.minutes))
    return _Cron(fields, _zone(zone), is_fixed, day_seconds)


def _is_cron(*parts: str) -> bool:
    try:
        CronSim(" ".join(parts), datetime.fromtimestamp(0, UTC))
    except CronSimError:
        return False
    return True


def _never(cron: str) -> Refused:
    return Refused("schedule.cron", f"{cron!r} never fires", "No day satisfies it.", path="cron")


def _zone(name: str) -> ZoneInfo:
    try:
        if name not in _HOST_ZONES and not name.startswith(_HOST_ZONE_FOLDERS):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass
    near = get_close_matches(name[:80], _zone_names(), n=1)
    hint = f"Did you mean {near[0]}?" if near else "Use an IANA name such as Europe/Paris."
    raise Refused("schedule.zone", f"{name[:80]!r} is not an IANA time zone", hint, path="zone")


@lru_cache(maxsize=1)
def _zone_names() -> tuple[str, ...]:
    return tuple(sorted(available_timezones()))


# One look asks for the same slot several times, and schedules that say the same ask for the same ones.
@lru_cache(maxsize=4096)
def _next_fire(text: str, zone: str, after: int, until: int) -> int | None:
    cron = _cron(text, zone)
    for stretch in _stretches(cron, after, until):
        wall = _first_match(cron, stretch.low, stretch.high)
        if wall is not None:
            return max(wall - stretch.offset, stretch.floor)
    return None


def _count_fires(cron: _Cron, after: int, until: int) -> int:
    count = 0
    for stretch in _stretches(cron, after, until):
        skipped = _count_matches(cron, stretch.low, min(stretch.floor + stretch.offset, stretch.high))
        count += _count_matches(cron, stretch.low, stretch.high) - max(0, skipped - 1)
    return count


def _stretches(cron: _Cron, after: int, until: int) -> Iterator[_Stretch]:
    """The time in (after, until] as stretches of one offset, with the wall times of each that are to fire.

    With minute and hour fixed each wall time counts once, so a stretch goes on where the wall clock of the one before
    ended; otherwise the clock is read as it stands, and a stretch begins with what it shows.
    """
    offset, floor = _offset(cron.zone, after), after + 1
    low = after + offset
    if cron.is_fixed:
        jumps = _jumps(cron.zone, datetime.fromtimestamp(after, UTC).year)
        low = max([low, *(jump.at + jump.before - 1 for jump in jumps if jump.at <= after)])
    for jump in _jumps_after(cron.zone, after):
        end = min(jump.at - 1, until)
        yield _Stretch(low, end + offset, offset, floor)
        if end == until:
            return
        low = max(low, end + offset) if cron.is_fixed else jump.at + jump.after - 1
        offset, floor = jump.after, jump.at


def _jumps_after(zone: ZoneInfo, after: int) -> Iterator[_Jump]:
    year = datetime.fromtimestamp(after, UTC).year
    while True:
        for jump in _jumps(zone, year):
            if jump.at > after:
                yield jump
                after = jump.at
        year += 1


@lru_cache(maxsize=8192)
def _jumps(zone: ZoneInfo, year: int) -> tuple[_Jump, ...]:
    """The jumps from two days before a UTC year to its end, which is itself listed so that no search looks beyond.

    Sampling by the day is enough: since 1970 no zone has jumped twice within a week.
    """
    begin, end = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) for y in (year, year + 1))
    jumps: list[_Jump] = []
    before = _offset(zone, begin - 2 * _DAY_S)
    for day_end in range(begin - _DAY_S, end + 1, _DAY_S):
        offset = _offset(zone, day_end)
        if offset != before:
            low, high = day_end - _DAY_S, day_end
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
            jumps.append(_Jump(high, before, offset))
            before = offset
    return (*jumps, _Jump(end, before, before))


def _offset(zone: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None, "a ZoneInfo knows its offset at every instant"
    return offset.days * _DAY_S + offset.seconds


def _first_match(cron: _Cron, low: int, high: int) -> int | None:
    """The first wall time in (low, high] that matches."""
    first_day, low_s = divmod(low, _DAY_S)
    later = bisect_right(cron.day_seconds, low_s)
    if later < len(cron.day_seconds) and _is_match_day(cron, first_day):
        wall = first_day * _DAY_S + cron.day_seconds[later]
        return wall if wall <= high else None
    for day in range(first_day + 1, high // _DAY_S + 1):
        if _is_match_day(cron, day):
            wall = day * _DAY_S + cron.day_seconds[0]
            return wall if wall <= high else None
    return None


def _count_matches(cron: _Cron, low: int, high: int) -> int:
    """How many wall times in (low, high] match: whole days by multiplication, the two ends by look-up."""
    if high <= low:
        return 0
    (first_day, first_s), (last_day, last_s) = divmod(low, _DAY_S), divmod(high, _DAY_S)
    days = sum(_is_match_day(cron, day) for day in range(first_day, last_day))
    before = bisect_right(cron.day_seconds, first_s) if _is_match_day(cron, first_day) else 0
    rest = bisect_right(cron.day_seconds, last_s) if _is_match_day(cron, last_day) else 0
    return days * len(cron.day_seconds) + rest - before


def _is_match_day(cron: _Cron, day: int) -> bool:
    on = date.fromordinal(_EPOCH_DAY + day)
    return on.month in cron.fields.months and cron.fields.match_day(on)
