"""`rota top` as lines of text: from how things stand to a picture that fits a terminal, and nothing else."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from rota.cli.bars import bar
from rota.cli.showing import one_line, show_count
from rota.core.ids import Millis
from rota.core.overview import Overview
from rota.core.questions import RunView, WorkerView
from rota.core.spans import show_span
from rota.core.states import FAILED, RUNNING, TERMINAL, UPSTREAM_FAILED

COLUMNS_MIN = 40
_BAR_CHARS = 10
_TITLE, _GOOD, _BAD, _BUSY, _DIM = "1", "32", "31", "36", "2"
# How a picture without colours and one with them are drawn.
Paint = Callable[[str, str], str]


class Sight(Struct, frozen=True):
    """What is drawn: everything that was heard at one time."""

    where: str
    overview: Overview
    running: Sequence[RunView] = ()
    workers: Sequence[WorkerView] = ()
    # Tasks that ended, and those of them that failed, in a second; None if that is not known yet.
    ended_per_s: float | None = None
    failed_per_s: float = 0.0
    trouble: str = ""


class Rate:
    """How many tasks end in a second, from what was counted between two looks."""

    def __init__(self) -> None:
        self._before: Overview | None = None

    def hear(self, now: Overview) -> tuple[float | None, float]:
        """All, and those that failed; nothing at first, nor when another reign began to count anew."""
        before, self._before = self._before, now
        if before is None or before.epoch != now.epoch or now.as_of <= before.as_of:
            return None, 0.0
        seconds = (now.as_of - before.as_of) / 1000
        failed = sum(now.ended.get(state, 0) - before.ended.get(state, 0) for state in (FAILED, UPSTREAM_FAILED))
        return (sum(now.ended.values()) - sum(before.ended.values())) / seconds, failed / seconds


def plain(text: str, sort: str) -> str:  # noqa: ARG001 - as the other one
    """Without colours."""
    return text


def coloured(text: str, sort: str) -> str:
    """With them."""
    return f"\x1b[{sort}m{text}\x1b[0m"


def draw(sight: Sight, columns: int, rows: int, clock: str, paint: Paint = plain) -> list[str]:
    """The picture: no line is wider than the terminal, and there are no more than it has."""
    columns = max(columns, COLUMNS_MIN)
    head = _head(sight, columns, clock, paint)
    sections = [_running(sight, columns, paint), _waiting(sight, columns, paint), _workers(sight, columns, paint)]
    # Each has a blank line before it and its title.
    room = max(0, rows - len(head) - 2 * len(sections))
    lines = list(head)
    for (title, body), shown in zip(sections, _share(room, [len(body) for _, body in sections]), strict=True):
        more = len(body) - shown
        hidden = f" ({more} more)" if more > 0 else ""
        lines += ["", paint(_fit(title + hidden, columns), _TITLE), *body[:shown]]
    return lines[:rows]


def _share(room: int, wanted: list[int]) -> list[int]:
    """How many lines each section has: as many as it wants, and of too few the same for all."""
    given = [0] * len(wanted)
    while room > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for index, want in enumerate(wanted):
            if given[index] < want and room > 0:
                given[index] += 1
                room -= 1
    return given


def _head(sight: Sight, columns: int, clock: str, paint: Paint) -> list[str]:
    view = sight.overview
    left = f"rota top  {sight.where}"
    right = f"{clock}  q quits"
    runs = ", ".join(f"{count:,} {state}" for state, count in view.runs.items()) or "none"
    more = "" if view.is_all else " and more"
    busy = f"{view.leases:,} of {view.slots:,} slots"
    rate = "–" if sight.ended_per_s is None else f"{sight.ended_per_s:.1f} tasks/s"
    failed = f", {sight.failed_per_s:.1f} failed/s" if sight.failed_per_s else ""
    queues = ", ".join(
        f"{line.queue or 'default'} {line.tasks:,} (oldest {show_span(max(0, view.as_of - line.oldest_at))})"
        for line in view.queues
    )
    lines = [
        paint(_fit(f"{left:<{max(0, columns - len(right))}}", columns - len(right)) + right, _TITLE),
        _fit(f"runs     {runs}{more}", columns),
        _fit(f"work     {busy} taken, {rate}{failed}", columns),
        _fit(f"queues   {queues or 'nothing waits for a worker'}", columns),
    ]
    if sight.trouble:
        lines.append(paint(_fit(f"! {sight.trouble}", columns), _BAD))
    return lines


def _running(sight: Sight, columns: int, paint: Paint) -> tuple[str, list[str]]:
    body: list[str] = []
    width = max(12, (columns - 34) // 2)
    for view in sight.running:
        ended = sum(count for state, count in view.tasks.items() if state in TERMINAL)
        took = show_span(max(0, sight.overview.as_of - view.started_at - view.idle_ms))
        failed = view.tasks.get(FAILED, 0) + view.tasks.get(UPSTREAM_FAILED, 0)
        bad = f" {failed} failed" if failed else ""
        counts = f"{ended}/{view.total}, {view.tasks.get(RUNNING, 0)} running{bad}"
        text = f"{_fit(view.id, width):<{width}}  {_fit(took, 12):<12}  {bar(ended, view.total, _BAR_CHARS)}  {counts}"
        body.append(paint(_fit(text, columns), _BAD if failed else _BUSY))
    return f"RUNNING: {show_count(sight.overview.runs.get('running', 0), 'run')}", body or [_fit("  nothing", columns)]


def _waiting(sight: Sight, columns: int, paint: Paint) -> tuple[str, list[str]]:
    body: list[str] = []
    for line in sight.overview.waiting:
        count = show_count(line.tasks, "task") if line.tasks else show_count(line.runs, "run")
        which = f"rota why {line.run} {line.task}" if line.task else line.run
        body.append(_fit(f"{count:>10}  {line.reason.code}: {line.reason.text}", columns))
        body.append(paint(_fit(f"{'':>10}  {which}", columns), _DIM))
    if sight.overview.unexplained:
        body.append(_fit(f"{show_count(sight.overview.unexplained, 'task'):>10}  were not asked why", columns))
    return "WAITING, AND WHY", body or [_fit("  nothing", columns)]


def _workers(sight: Sight, columns: int, paint: Paint) -> tuple[str, list[str]]:
    standing = ", ".join(f"{count} {name}" for name, count in sight.overview.workers.items() if count)
    body: list[str] = []
    width = max(12, columns - 50)
    now = sight.overview.as_of
    for view in sorted(sight.workers, key=lambda view: (not view.present, -view.leases, view.id)):
        state = state_of(view, now)
        slots = view.capacity.slots
        heard = show_span(max(0, now - view.seen_at))
        text = (
            f"{_fit(view.id, width):<{width}}  {state:<11}  {bar(view.leases, slots, _BAR_CHARS)}"
            f" {view.leases}/{slots}  heard {heard} ago"
        )
        body.append(paint(_fit(text, columns), _GOOD if state == "present" else _BAD))
    return f"WORKERS: {standing or 'none'}", body or [_fit("  none: start one with `rota worker`", columns)]


def state_of(view: WorkerView, now: Millis) -> str:
    """Whether a worker takes work, in a word."""
    if view.quarantined_until > now:
        return "quarantined"
    if view.draining:
        return "draining"
    return "present" if view.present else "away"


def _fit(text: str, width: int) -> str:
    shown = one_line(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"
