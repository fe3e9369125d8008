"""Small charts: from numbers to the places of shapes. What they look like is a matter of templates and style."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from rota.core.ids import Millis
from rota.core.spans import show_span
from rota.ui.trend import STEP_MS, Step

WIDTH = 360
HEIGHT = 56
# One bar for so many steps, so that a bar can be seen.
STEPS_PER_BAR = 6
BARS = 60


class Bar(Struct, frozen=True):
    """What ended in a minute: `well` above nothing, `badly` above that. Heights are in the chart's own units."""

    x: float
    width: float
    well: float
    badly: float
    title: str


class Throughput(Struct, frozen=True):
    """Tasks that ended, minute by minute; `most` is the highest bar, `last` what ended in the last minute."""

    bars: list[Bar]
    most: int
    last: int


class Line(Struct, frozen=True):
    """A line and the area under it, as the points of polygons; `most` and `last` in words."""

    line: str
    area: str
    most: str
    last: str


def throughput(steps: Sequence[Step], now: Millis) -> Throughput:
    """How many tasks ended in each of the last minutes."""
    bar_ms = STEPS_PER_BAR * STEP_MS
    newest = now // bar_ms
    well, badly = [0] * BARS, [0] * BARS
    for step in steps:
        place = BARS - 1 - (newest - step.at // bar_ms)
        if 0 <= place < BARS:
            well[place] += step.well
            badly[place] += step.badly
    most = max(one + other for one, other in zip(well, badly, strict=True))
    scale = (HEIGHT - 2) / (most or 1)
    wide = WIDTH / BARS
    bars = [
        Bar(place * wide, wide - 1, one * scale, other * scale, _title(BARS - 1 - place, one, other))
        for place, (one, other) in enumerate(zip(well, badly, strict=True))
        if one or other
    ]
    last = sum(step.well + step.badly for step in steps if now - step.at < bar_ms)
    return Throughput(bars, max(most, last), last)


def _title(ago: int, well: int, badly: int) -> str:
    when = f"{ago} min ago" if ago else "this minute"
    return f"{when}: {well:,} done" + (f", {badly:,} failed" if badly else "")


def ages(steps: Sequence[Step], now: Millis) -> Line:
    """How long the oldest task had waited, over the same time."""
    return trace([(step.at, step.waited_ms) for step in steps], now, show_span)


def trace(values: Sequence[tuple[Millis, int]], now: Millis, words: Callable[[int], str]) -> Line:
    """What was measured at some instants of the last hour; `words` says how a value is told."""
    long_ms = BARS * STEPS_PER_BAR * STEP_MS
    shown = [(at, value) for at, value in values if now - at < long_ms]
    most = max((value for _, value in shown), default=0)
    scale = (HEIGHT - 4) / (most or 1)
    points = [f"{WIDTH - (now - at) * WIDTH / long_ms:.1f},{HEIGHT - 1 - value * scale:.1f}" for at, value in shown]
    line = " ".join(points)
    area = ""
    if points:
        first, last = points[0].partition(",")[0], points[-1].partition(",")[0]
        area = f"{first},{HEIGHT} {line} {last},{HEIGHT}"
    newest = shown[-1][1] if shown else 0
    return Line(line, area, words(most), words(newest))
