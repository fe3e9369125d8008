"""Queries on workers: a plan becomes a run, and its last stage gives the answer."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from rota.app.embedded import Rota
from rota.app.sql.handles import CANCELLED, Progress, QueryHandle, StageProgress
from rota.client.blocking import BlockingRun
from rota.core.errors import CODES, Refused
from rota.core.questions import TaskView
from rota.core.states import SUCCESS, RunState, TaskState
from rota.kinds.query import sizing
from rota.kinds.query.graphs import graph_of
from rota.kinds.query.plans import PhysicalPlan
from rota.wire.queries import QUERY

MEMORY = "query.memory"

# Plans the same query again, with that many partitions.
Again = Callable[[int], PhysicalPlan]


def live_slots(rota: Rota) -> int:
    """How many tasks of queries could run at once."""
    able = (
        worker.capacity
        for worker in rota.workers()
        if worker.present and not worker.draining and QUERY in worker.capacity.kinds
    )
    return sum(capacity.slots for capacity in able)


class ClusterQuery(QueryHandle):
    """A query that is a run. If it is out of memory it is cut finer and runs again, for whoever waits for it."""

    def __init__(self, rota: Rota, plan: PhysicalPlan, again: Again, *, timeout_ms: int = 0, **chosen: str) -> None:
        self._rota = rota
        self._again = again
        self._chosen = chosen
        self._timeout_ms = timeout_ms
        self._finer = 0
        self.schema = plan.schema
        self._submit(plan)

    def _submit(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self.unstaged = plan.unstaged
        graph = graph_of(plan, timeout_ms=self._timeout_ms, **self._chosen)
        self.run: BlockingRun = self._rota.submit(graph, labels={"partitions": str(plan.partitions)})
        self.id = self.run.id

    def status(self) -> RunState:
        """How it stands."""
        return self.run.status().state

    def progress(self) -> Progress:
        """How far it is."""
        counts = {stage.id: [0, 0] for stage in self._plan.stages}
        for task in self.run.tasks():
            count = counts[task.id.partition("[")[0]]
            count[0] += task.state is TaskState.RUNNING
            count[1] += task.state is SUCCESS
        return Progress(tuple(StageProgress(each.id, each.tasks, *counts[each.id]) for each in self._plan.stages))

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for its end."""
        while True:
            view = self.run.wait(timeout_s)
            if view.state is RunState.SUCCESS:
                return
            trouble = self._trouble(view.state, view.reason)
            if trouble.code != MEMORY or self._finer == sizing.FINER_MAX:
                raise trouble
            self._finer += 1
            self._submit(self._again(sizing.finer(self._plan.partitions)))

    def _trouble(self, state: RunState, reason: str) -> Refused:
        """Why the run did not succeed, as its first failed task has it."""
        if state is RunState.CANCELLED:
            return Refused("run.ended", f"query {self.id} was cancelled: {reason}")
        failed = self.run.tasks(states=("failed",))
        if not failed:
            return Refused("query.failed", f"query {self.id} ended as {state}: {reason}", path="sql")
        code, _, said = failed[0].error.partition(": ")
        if code not in CODES:
            code, said = "query.failed", failed[0].error
        return Refused(code, said, f"`rota logs {self.id} {failed[0].id}` has more.", path="sql")

    def cancel(self, reason: str = CANCELLED) -> None:
        """End it; workers kill what they are at."""
        self.run.cancel(reason)

    def tasks(self) -> list[TaskView]:
        """Its tasks, stage by stage."""
        return self.run.tasks()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        last = self._plan.stages[-1].id
        for task in self.run.tasks(last):
            table: pa.Table = self.run.open(task)
            for batch in table.to_batches():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
