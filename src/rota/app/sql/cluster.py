"""Queries on workers: a plan becomes a run, and its last stage gives the answer."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from msgspec import Struct

from rota.app.embedded import Rota
from rota.app.sql.fetching import AnswerGone, FetchedAnswer, WorkerUnreached
from rota.app.sql.handles import CANCELLED, Progress, QueryHandle, StageProgress, named
from rota.client.blocking import BlockingRun
from rota.core.errors import CODES, Refused, headline
from rota.core.model import QUERIES_QUEUE
from rota.core.questions import RunView, TaskView
from rota.core.states import SUCCESS, RunState, TaskState
from rota.kinds.query import sizing
from rota.kinds.query.graphs import COUNTED, PUBLISH, bundle_of, graph_of
from rota.kinds.query.plans import PhysicalPlan
from rota.wire.queries import KEPT, QUERY, Compression, KeptAnswer, decode_kept
from rota.wire.targets import Target, discard
from rota.wire.work import Value, decode_value

MEMORY = "query.memory"
# How long a program that waits for a query may be gone before the query is cancelled.
ABANDON_MS = 60_000

# Plans the same query again, with that many partitions.
Again = Callable[[int], PhysicalPlan]


class Choices(Struct, frozen=True, kw_only=True):
    """What may be chosen about queries on workers.

    `partitions`: into how many parts data is split; as many as slots and data ask for unless told otherwise. `strict`:
    refuse a query that cannot be cut instead of running it as one task. `compression`: of what is exchanged, "lz4" or
    "zstd", for slow networks. `timeout_s`: how long a query may take; no limit unless told otherwise. `queue`: where
    its tasks wait. `parent`: a run that queries are part of, and are paused with.
    """

    partitions: int = 0
    strict: bool = False
    compression: Compression = ""
    timeout_s: float = 0
    queue: str = QUERIES_QUEUE
    parent: str = ""


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

    def __init__(
        self,
        rota: Rota,
        plan: PhysicalPlan,
        again: Again,
        choices: Choices,
        *,
        target: Target | None = None,
        near: str = "",
        ca: str = "",
        unreached: Callable[[], None] = lambda: None,
    ) -> None:
        """`target` is where it writes. `near` is the machine of who reads the answer at once and needs it no more.

        `ca` is the file of who vouches for workers; `unreached` hears that an answer could not be fetched from one.
        """
        self._rota = rota
        self._near = near
        self._ca = ca
        self._unreached = unreached
        self._again = again
        self._choices = choices
        self._finer = 0
        # Of all its runs together.
        self._ends_at = time.monotonic() + choices.timeout_s if choices.timeout_s else None
        self._target = target
        # Several may wait for it, or read it; one of them has it run again.
        self._renewing = threading.Lock()
        self._found: list[Callable[[], Iterator[pa.RecordBatch]]] = []
        self.schema = plan.schema if target is None else COUNTED
        self._submit(plan)

    def _submit(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._has_ended = False
        self.unstaged = plan.unstaged
        packed = bundle_of(plan.stages)
        graph = graph_of(
            plan.stages,
            bundle=self._rota.put_bundle(packed) if packed else None,
            queue=self._choices.queue,
            timeout_ms=self._left_ms(),
            compression=self._choices.compression,
            target=self._target,
            near=self._near,
            texts=plan.texts(),
        )
        labels = {"partitions": str(plan.partitions)}
        self.run: BlockingRun = self._rota.submit(graph, labels=labels, parent=self._choices.parent, is_new=True)
        self.id = self.run.id

    def _left_ms(self) -> int:
        """How long its next run may take; 0 for no limit."""
        if self._ends_at is None:
            return 0
        left_ms = round((self._ends_at - time.monotonic()) * 1_000)
        if left_ms <= 0:
            text = f"the query took longer than the {self._choices.timeout_s:g} s that it may take"
            raise Refused("query.failed", text, "Give it more time with timeout_s.", path="sql")
        return left_ms

    def status(self) -> RunState:
        """How it stands."""
        return self.run.status().state

    def progress(self) -> Progress:
        """How far it is."""
        stages = {stage.id: stage.tasks for stage in self._plan.stages}
        if self._target is not None:
            stages[PUBLISH] = 1
        counts = {stage: [0, 0] for stage in stages}
        for task in self.run.tasks():
            count = counts[task.id.partition("[")[0]]
            count[0] += task.state is TaskState.RUNNING
            count[1] += task.state is SUCCESS
        return Progress(tuple(StageProgress(stage, tasks, *counts[stage]) for stage, tasks in stages.items()))

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until its answer is there. One that was lost before it was read is made again."""
        while not self._is_there():
            run = self.run
            view = run.wait(timeout_s, abandon_ms=ABANDON_MS if self.is_ours_alone else 0)
            with self._renewing:
                # Whoever else waits for it may have been faster.
                if run is self.run:
                    self._judge(view)

    def _judge(self, view: RunView) -> None:
        """What to do about a run that has ended: nothing, if it succeeded."""
        if view.state is RunState.SUCCESS:
            self._has_ended = True
            return
        trouble = trouble_of(self.run, view, "query")
        if trouble.code != MEMORY or self._finer == sizing.FINER_MAX:
            raise trouble
        self._finer += 1
        if self._target is not None:
            # What the run before has put aside is nobody's.
            discard(self._target, self.id)
        self._submit(self._again(sizing.finer(self._plan.partitions)))

    def _is_there(self) -> bool:
        """Whether the answer can be read; if it was lost, it is made again, where it will not be."""
        with self._renewing:
            if not self._has_ended:
                return False
            try:
                self._found = self._pieces()
            except AnswerGone as gone:
                if isinstance(gone, WorkerUnreached):
                    self._unreached()
                self._near = ""
                self._submit(self._plan)
                return False
            return True

    def cancel(self, reason: str = CANCELLED) -> None:
        """End it; workers kill what they are at."""
        self.run.cancel(reason)

    def tasks(self) -> list[TaskView]:
        """Its tasks, stage by stage."""
        return self.run.tasks()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for piece in self._found:
                for batch in piece():
                    yield named(batch, self.schema)
        except AnswerGone as gone:
            text = f"the answer of query {self.id} was lost while it was read: {gone}"
            raise Refused("query.failed", text, "Ask again.", path="sql") from None

    def _pieces(self) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        """What gives the batches of each task of the last stage."""
        last = self._plan.stages[-1].id if self._target is None else PUBLISH
        found: list[Callable[[], Iterator[pa.RecordBatch]]] = []
        for task in self.run.tasks(last):
            kept = _kept_of(task)
            found.append(FetchedAnswer(kept, self._ca).batches if kept is not None else partial(self._opened, task))
        return found

    def _opened(self, task: TaskView) -> Iterator[pa.RecordBatch]:
        table: pa.Table = self.run.open(task)
        yield from table.to_batches()


def trouble_of(run: BlockingRun, view: RunView, called: str) -> Refused:
    """Why a run did not succeed, as its first failed task has it."""
    if view.state is RunState.CANCELLED:
        return Refused("run.ended", f"{called} {run.id} was cancelled: {view.reason}")
    failed = run.tasks(states=("failed",))
    if not failed:
        return Refused("query.failed", f"{called} {run.id} ended as {view.state}: {view.reason}", path="sql")
    code, _, said = failed[0].error.partition(": ")
    if code not in CODES:
        # An error of ours, or how the task died.
        code, said = "query.failed", headline(failed[0].error)
    return Refused(code, said, f"`rota logs {run.id} {failed[0].id}` has more.", path="sql")


def _kept_of(task: TaskView) -> KeptAnswer | None:
    """Where the answer of a task has stayed, if it has."""
    value = decode_value(task.result) if task.result is not None else None
    return decode_kept(value.content) if isinstance(value, Value) and value.encoding == KEPT else None
