"""Reading for pages: a client that remembers what cannot change any more, so that a page asks only for what is new."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from rota.client.runs import Client
from rota.core.errors import Refused
from rota.core.graph import LiveGraph
from rota.core.ids import RunId, TaskId
from rota.core.questions import ListTasks, RunView, TasksPage, TaskView
from rota.core.records import Run as RunRecord
from rota.core.states import FAILED, RUN_TERMINAL, RunState
from rota.core.sums import TaskSum
from rota.ui.drawing import Drawing
from rota.ui.trend import Trend

# Some pages of runs: what is kept of runs that ended should not grow with their number for long.
VIEWS_KEPT_MAX = 500
GRAPHS_KEPT_MAX = 50
SUMS_KEPT_MAX = 500
TRENDS_KEPT_MAX = 50
DRAWINGS_KEPT_MAX = 50
# Among so many failed tasks of a run the first one is looked for.
CAUSES_READ_MAX = 50

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """So many things at most; the one that was asked for longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """What is kept under this key."""
        if key not in self._kept:
            return None
        self._kept[key] = value = self._kept.pop(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Keep it."""
        self._kept.pop(key, None)
        self._kept[key] = value
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return value

    def __len__(self) -> int:
        return len(self._kept)


Counts = dict[str, int]


class Memory:
    """What all visits share. A definition never changes, and a run only with its story, also one in history: somebody
    may take it out of there, and it comes back as another.
    """

    def __init__(self) -> None:
        # By tenant, run, its creation and the length of its story.
        self.views: Kept[tuple[str, str, int, int], RunView] = Kept(VIEWS_KEPT_MAX)
        self.graphs: Kept[tuple[str, str], LiveGraph] = Kept(GRAPHS_KEPT_MAX)
        # By tenant, run, its creation, the length of its story, and a hash of the names that are shown.
        self.sums: Kept[tuple[str, str, int, int, str], dict[TaskId, TaskSum]] = Kept(SUMS_KEPT_MAX)
        # By tenant, run, its creation and how many tasks it has.
        self.grown: Kept[tuple[str, str, int, int], LiveGraph] = Kept(GRAPHS_KEPT_MAX)
        # By the same as views: the task that a run failed of, if there is one.
        self.causes: Kept[tuple[str, str, int, int], tuple[TaskView, ...]] = Kept(VIEWS_KEPT_MAX)
        # By tenant, definition, what is open and the first node that is shown.
        self.drawings: Kept[tuple[str, str, tuple[str, ...] | None, int], Drawing] = Kept(DRAWINGS_KEPT_MAX)
        self._trends: Kept[str, Trend] = Kept(TRENDS_KEPT_MAX)

    def trend(self, tenant: str) -> Trend:
        """How things went for a tenant, from when somebody first asked."""
        return self._trends.get(tenant) or self._trends.put(tenant, Trend())


class Reader(Client):
    """A client for one visit."""

    def __init__(self, client: Client, memory: Memory) -> None:
        super().__init__(client.line, patience_s=0)
        self.memory = memory

    async def view_past(self, row: RunRecord) -> RunView | None:
        """A run of history, read once for as long as its story is."""
        key = (row.tenant, row.id, row.created_at, row.story)
        known = self.memory.views.get(key)
        if known is not None:
            return known
        view = await super().view_past(row)
        return self.memory.views.put(key, view) if view is not None else None

    async def find_task(self, run: str, name: str) -> TaskView | None:
        """One task; None if the name is that of a group, of which no more is read than that takes."""
        try:
            page: TasksPage = await self.ask(
                ListTasks(tenant=self.line.tenant, run=RunId(run), names=(TaskId(name),), limit=1)
            )
            found = page.tasks[0]
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            # In history it was read whole anyway.
            found = (await self.run(run).tasks(name))[0]
        return found if found.id == name else None

    async def cause_of(self, view: RunView) -> TaskView | None:
        """The task of a failed run that failed first, read once for as long as the run's story is; None if none did."""
        if view.state is not RunState.FAILED or not view.tasks.get(FAILED):
            return None
        key = (view.tenant, view.id, view.created_at, view.story)
        known = self.memory.causes.get(key)
        if known is None:
            page = await self.run(view.id).tasks_page(states=(FAILED,), limit=CAUSES_READ_MAX)
            first = min(page.tasks, key=lambda task: task.ended_at, default=None)
            known = self.memory.causes.put(key, (first,) if first is not None else ())
        return known[0] if known else None

    async def is_held(self, view: RunView) -> bool:
        """Whether a run does not go on because its workflow is paused."""
        if not view.version or view.state in RUN_TERMINAL:
            return False
        try:
            return (await self.workflow(view.name)).workflow.paused
        except Refused as refused:
            if refused.code != "workflow.unknown":
                raise
            return False

    async def graph(self, digest: str) -> LiveGraph:
        """A definition, laid out once."""
        key = (self.line.tenant, digest)
        return self.memory.graphs.get(key) or self.memory.graphs.put(key, await super().graph(digest))
