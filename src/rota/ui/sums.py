"""How the tasks of each node of a graph stand in one run, together: how many in which state, and from when to when.

Of a live run only what is shown is asked for, in questions that keep the coordinator for a millisecond or two each;
what was read is kept until the run's story goes on.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256

from rota.core.errors import Refused
from rota.core.graph import LiveGraph
from rota.core.history import Ended, GetEnded
from rota.core.ids import TaskId
from rota.core.questions import RunView
from rota.core.sums import SumTasks, TaskSum, sum_tasks
from rota.ui.reading import Reader

TASKS_AT_ONCE = 2_500


class Sums:
    """Those of some nodes in one run."""

    def __init__(self, reader: Reader, view: RunView, names: Sequence[str]) -> None:
        self._reader = reader
        self._view = view
        self._names = tuple(map(TaskId, names))
        # Many names are told from others by less than themselves.
        named = sha256("\0".join(names).encode()).hexdigest()
        self._key = (view.tenant, view.id, view.created_at, view.story, named)

    def known(self) -> dict[TaskId, TaskSum] | None:
        """What was read before and has not changed since; None if there is nothing."""
        return self._reader.memory.sums.get(self._key)

    async def cost(self) -> int:
        """How many tasks are looked at for it, about."""
        graph = await self._reader.graph(self._view.graph)
        nodes = [graph.index[name] for name in self._names if name in graph.index]
        return sum(graph.width[node] or self._view.total for node in nodes)

    async def get(self) -> dict[TaskId, TaskSum]:
        """By node: known, or read now."""
        known = self.known()
        return known if known is not None else await self.read()

    async def read(self) -> dict[TaskId, TaskSum]:
        """By node, read now."""
        view = self._view
        graph = await self._reader.graph(view.graph)
        found: dict[TaskId, TaskSum] = {}
        try:
            for some in _portions(graph, self._names):
                found |= await self._reader.ask(SumTasks(tenant=view.tenant, run=view.id, names=some))
        except Refused as refused:
            if refused.code != "run.unknown":
                raise
            found = await self._read_ended()
        return self._reader.memory.sums.put(self._key, found)

    async def _read_ended(self) -> dict[TaskId, TaskSum]:
        view = self._view
        question = GetEnded(tenant=view.tenant, run=view.id, created_at=view.created_at)
        ended: Ended | None = await self._reader.ask(question)
        if ended is None:
            return {}
        tasks = {task.idx: task for task in ended.tasks}
        return sum_tasks(await self._reader.graph_of(ended), tasks, self._names)


def _portions(graph: LiveGraph, names: tuple[TaskId, ...]) -> Iterator[tuple[TaskId, ...]]:
    """Names of so many tasks at once that nobody else waits long; one node is not divided."""
    some: list[TaskId] = []
    left = TASKS_AT_ONCE
    for name in names:
        width = graph.width[graph.index[name]] or 1 if name in graph.index else 1
        if some and width > left:
            yield tuple(some)
            some, left = [], TASKS_AT_ONCE
        some.append(name)
        left -= width
    if some:
        yield tuple(some)
