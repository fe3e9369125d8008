"""What the store says in the end, through an ordinary client: every run, its tasks, and every word of its story."""

from collections.abc import Iterator

from msgspec import Struct

from rota.app.embedded import AsyncRota
from rota.client.runs import Client
from rota.client.threads import LoopThread
from rota.core.changes import LeaseGranted
from rota.core.graph import LiveGraph
from rota.core.history import GetStories
from rota.core.ids import Fence, Millis
from rota.core.model import TaskSpec
from rota.core.questions import RunView
from rota.core.records import Audit, Story
from rota.core.states import RUN_TERMINAL
from rota.core.story import RunChange, describe, read_story, show_line

RUNS_MAX = 1_000_000
AUDITS_MAX = 1_000_000


class TaskEntry(Struct, frozen=True, kw_only=True):
    """A task as it ended, and what was said of it before."""

    idx: int
    id: str
    state: str
    fence: Fence
    spec: TaskSpec


class Told(Struct, frozen=True):
    """One change of a story: in which part of it, and when that was committed, by the clock of whoever led."""

    part: int
    at: Millis
    change: RunChange


class RunEntry(Struct, frozen=True, kw_only=True):
    """A run, with everything that is known of it."""

    id: str
    created_at: Millis
    state: str
    tasks: tuple[TaskEntry, ...]
    story: tuple[Told, ...]

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self.state in RUN_TERMINAL

    def task(self, idx: int) -> TaskEntry | None:
        """A task by its number."""
        return next((task for task in self.tasks if task.idx == idx), None)

    def about(self, idx: int | None = None) -> Iterator[Told]:
        """Its story, or what of it concerns one task."""
        for told in self.story:
            if idx is None or getattr(told.change, "task", None) == idx or idx in getattr(told.change, "tasks", ()):
                yield told

    def lines(self, idx: int | None = None) -> list[str]:
        """Its story for people."""
        names = {task.idx: task.id for task in self.tasks}
        return [
            show_line(told.at - self.created_at, describe(told.change, lambda idx: names.get(idx, str(idx))))
            for told in self.about(idx)
        ]


class Grant(Struct, frozen=True):
    """Whose lease a fence is."""

    run: RunEntry
    told: Told
    change: LeaseGranted


class Ledger(Struct, frozen=True):
    """All runs, and who asked for what besides."""

    runs: tuple[RunEntry, ...]
    audits: tuple[Audit, ...] = ()

    def grants(self) -> Iterator[Grant]:
        """Every lease that was ever granted, run by run."""
        for run in self.runs:
            for told in run.story:
                if isinstance(told.change, LeaseGranted):
                    yield Grant(run, told, told.change)


async def read_ledger(client: Client) -> Ledger:
    """Everything that a client may read. For when nothing moves any more."""
    # A run that moves to history while it is listed may come twice.
    views = {(view.id, view.created_at): view for view in await client.runs(limit=RUNS_MAX)}
    graphs: dict[str, LiveGraph] = {}
    runs: list[RunEntry] = []
    for view in views.values():
        if view.graph not in graphs:
            graphs[view.graph] = await client.graph(view.graph)
        runs.append(await _read_run(client, view, graphs[view.graph]))
    return Ledger(tuple(runs), tuple(await client.audits(AUDITS_MAX)))


def ledger_at(url: str) -> Ledger:
    """The same, of whoever leads there, through a client that is opened for it."""
    thread = LoopThread()

    async def read() -> Ledger:
        async with await AsyncRota.connect(url) as client:
            return await read_ledger(client)

    try:
        return thread.call(read())
    finally:
        thread.stop()


async def _read_run(client: Client, view: RunView, graph: LiveGraph) -> RunEntry:
    question = GetStories(tenant=view.tenant, run=view.id, created_at=view.created_at)
    parts: list[Story] = await client.ask(question)
    tasks = await client.run(view.id).tasks()
    return RunEntry(
        id=view.id,
        created_at=view.created_at,
        state=view.state,
        tasks=tuple(
            TaskEntry(idx=task.idx, id=task.id, state=task.state, fence=task.fence, spec=graph.spec(task.idx))
            for task in tasks
        ),
        story=tuple(Told(part.number, part.at, change) for part in parts for change in read_story(part)),
    )
