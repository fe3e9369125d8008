"""The timeline of a run: a row for each task or mapped task, and what it did when, as parts of one scale."""

from collections.abc import Sequence

from msgspec import Struct, structs

from rota.core.ids import Millis
from rota.core.questions import RunView
from rota.core.spans import show_span
from rota.core.states import RUN_TERMINAL, TERMINAL, UP_FOR_RESCHEDULE, UP_FOR_RETRY
from rota.core.sums import TaskSum
from rota.ui.attempts import INTERRUPTED, Past, read_attempts
from rota.ui.grid import cell_of, ended_of
from rota.ui.phases import Phase, phases_of
from rota.ui.reading import Counts, Reader
from rota.ui.sums import Sums
from rota.ui.words import BY_URGENCY
from rota.wire.builds import BUILD

ROWS = 50
SORTS = ("queue", "start", "fetch", "run", "upload")
TICKS = 6
# What a tick may be, so that it reads well.
_STEPS_MS = tuple(
    unit * number
    for unit, numbers in ((1, (1, 2, 5, 10, 20, 50, 100, 200, 500)), (1_000, (1, 2, 5, 10, 15, 30)))
    for number in numbers
) + tuple(60_000 * number for number in (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1_440, 2_880, 10_080, 43_200, 525_600))


class Part(Struct, frozen=True):
    """A stretch of a row, in percent of the scale. `sort` is what is done in it: queue, start, fetch, run or upload."""

    sort: str
    x: float
    width: float
    title: str
    # Of what runs or ran, how that stands; empty otherwise.
    state: str = ""


class Lane(Struct, frozen=True):
    """One row."""

    name: str
    is_group: bool
    state: str
    counts: Counts
    ended: int
    total: int
    parts: list[Part]
    took: str
    attempt: int
    error: str


class Tick(Struct, frozen=True):
    """A place on the scale."""

    x: float
    text: str


class Timeline(Struct, frozen=True):
    """Rows from the number `first` on, of `total`."""

    lanes: list[Lane]
    ticks: list[Tick]
    first: int
    total: int
    span: str

    @property
    def sorts(self) -> list[str]:
        """What there is to tell apart."""
        there = {part.sort for lane in self.lanes for part in lane.parts}
        return [sort for sort in SORTS if sort in there]

    @property
    def states(self) -> list[str]:
        """How what runs or ran stands, which is what its colour says."""
        there = {part.state for lane in self.lanes for part in lane.parts if part.sort == "run"}
        return [str(state) for state in (*BY_URGENCY, INTERRUPTED) if state in there]

    @property
    def last(self) -> int:
        """The row after those that are shown."""
        return self.first + len(self.lanes)


async def read_timeline(reader: Reader, view: RunView, first: int, now: Millis) -> Timeline:
    """The timeline of one run."""
    graph = await reader.graph(view.graph)
    first = max(0, min(first, len(graph.specs) - 1))
    nodes = graph.by_rank[first : first + ROWS]
    names = [graph.specs[node].id for node in nodes]
    found = await Sums(reader, view, names).get()
    builds = [name for name, node in zip(names, nodes, strict=True) if graph.specs[node].kind == BUILD]
    phases = {task.id: phases_of(task) for task in await reader.run(view.id).tasks(*builds)} if builds else {}
    # A task has the instants of its last attempt only; those before it are in the story.
    again = {
        graph.start[node]: name
        for name, node in zip(names, nodes, strict=True)
        if name in found and (found[name].attempt > 1 or _rests(found[name])) and not graph.is_group(node)
    }
    past = await read_attempts(reader, view, again) if again else {}
    scale = Scale(view, now, list(found.values()))
    lanes = [
        lane_of(
            name,
            found.get(name, TaskSum()),
            scale,
            phases.get(name, ()),
            past.get(name, ()),
            is_group=graph.is_group(node),
        )
        for name, node in zip(names, nodes, strict=True)
    ]
    return Timeline(lanes, scale.ticks(), first, len(graph.specs), show_span(scale.long_ms))


class Scale:
    """From instants to percent: from when the run was made to its end, or to now."""

    def __init__(self, view: RunView, now: Millis, shown: list[TaskSum]) -> None:
        self.is_over = view.state in RUN_TERMINAL
        self.begin_at = view.created_at
        last = max([view.ended_at, *(each.ended_at for each in shown)])
        self.end_at = max(last if self.is_over else now, self.begin_at + 1)

    @property
    def long_ms(self) -> Millis:
        """How long it is in all."""
        return self.end_at - self.begin_at

    def place(self, at: Millis) -> float:
        """Where an instant is; what is outside is at the edge."""
        return 100 * (min(max(at, self.begin_at), self.end_at) - self.begin_at) / self.long_ms

    def part(self, sort: str, start_at: Millis, end_at: Millis, state: str = "", *, goes_on: bool = False) -> Part:
        """A stretch of what is done there."""
        x = self.place(start_at)
        words = f"{sort} for {show_span(max(0, end_at - start_at))}{', and goes on' if goes_on else ''}"
        return Part(sort, x, max(0.0, self.place(end_at) - x), words, state)

    def ticks(self) -> list[Tick]:
        """Round instants since the beginning."""
        step = next((step for step in _STEPS_MS if self.long_ms / step <= TICKS), _STEPS_MS[-1])
        count = min(int(self.long_ms // step), 2 * TICKS)
        return [
            Tick(100 * number * step / self.long_ms, f"+{show_span(number * step)}" if number else "0")
            for number in range(count + 1)
        ]


def lane_of(
    name: str,
    told: TaskSum,
    scale: Scale,
    phases: tuple[Phase, ...] = (),
    past: Sequence[Past] = (),
    *,
    is_group: bool = False,
) -> Lane:
    """One row."""
    counts = told.counts
    total, ended = sum(counts.values()), ended_of(counts)
    state = cell_of(counts).state or "none"
    is_over = bool(total) and ended == total
    end_at = told.ended_at if is_over else scale.end_at
    took = show_span(max(0, end_at - told.started_at)) if told.started_at and not _rests(told) else ""
    last = () if _rests(told) else (told.started_at, told.assigned_at)
    parts = [_earlier(each, scale) for each in past if each.start_at not in last]
    if not (_rests(told) and not is_group):
        parts += _parts(told, phases, scale, state, end_at, is_over=is_over)
    return Lane(name, is_group, state, counts, ended, total, parts, took, told.attempt, told.error)


def _rests(told: TaskSum) -> bool:
    """Whether it is between two attempts: the instants it has are those of the one that is over."""
    return any(state in told.counts for state in (UP_FOR_RETRY, UP_FOR_RESCHEDULE))


def _earlier(attempt: Past, scale: Scale) -> Part:
    part = scale.part("run", attempt.start_at, attempt.end_at, attempt.state)
    return structs.replace(part, title=f"attempt {attempt.number} {attempt.state}, {part.title}")


def _parts(
    told: TaskSum, phases: tuple[Phase, ...], scale: Scale, state: str, end_at: Millis, *, is_over: bool
) -> list[Part]:
    """Waiting, starting and running, as far as it has come; what never ran and ended has none."""
    queued_at, given_at, started_at = told.eligible_at, told.assigned_at, told.started_at
    # An attempt that was handed back leaves the instants of the one before.
    given_at = given_at if given_at >= queued_at else 0
    started_at = started_at if started_at >= given_at and started_at >= queued_at else 0
    found: list[Part] = []
    if queued_at and (given_at or started_at or not is_over):
        until = given_at or started_at or end_at
        found.append(scale.part("queue", queued_at, until, goes_on=not given_at and not started_at))
    if given_at and (started_at or not is_over):
        found.append(scale.part("start", given_at, started_at or end_at, goes_on=not started_at))
    if not started_at:
        return found
    if phases:
        return [*found, *_phases(phases, scale, started_at, end_at, state)]
    return [*found, scale.part("run", started_at, end_at, state, goes_on=not is_over and state not in TERMINAL)]


def _phases(phases: tuple[Phase, ...], scale: Scale, start_at: Millis, end_at: Millis, state: str) -> list[Part]:
    """What the attempt told of itself, moved onto the coordinator's clock: its last phase ended when it did."""
    ahead = phases[-1].end_at - end_at
    found: list[Part] = []
    for phase in phases:
        begin, end = max(start_at, phase.start_at - ahead), max(start_at, phase.end_at - ahead)
        found.append(scale.part(phase.name, begin, end, state if phase.name == "run" else ""))
    return found
