"""What must be true, checked from the outside: from commits as they become true, and from what nodes are seen to do.

Each checker cites the line of docs/protocol.md it guards. The model is fed by the stories of durable commits, in the
order in which they became true, so it knows nothing of any coordinator's memory.
"""

from collections.abc import Callable

import msgspec

from rota.core import changes as ch
from rota.core.ids import Epoch, Fence, Millis, RunKey, fence_epoch
from rota.core.model import Pool
from rota.core.records import Batch, Run, Story, Task
from rota.core.states import (
    ASSIGNED,
    LEASED,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    RUNNING,
    SCHEDULED,
    TERMINAL,
    RunState,
    TaskState,
    can_transition,
    can_transition_run,
)

AnyChange = (
    ch.RunSubmitted
    | ch.RunStarted
    | ch.RunEnded
    | ch.RunReopened
    | ch.RunPaused
    | ch.RunStopping
    | ch.RunFaulted
    | ch.RunGrew
    | ch.PendingSet
    | ch.RunArchived
    | ch.TasksScheduled
    | ch.TasksSettled
    | ch.TasksReset
    | ch.TaskRequeued
    | ch.TaskAmended
    | ch.TaskEnded
    | ch.TaskStarved
    | ch.LeaseGranted
    | ch.AttemptStarted
    | ch.AttemptEnded
    | ch.LeaseReturned
    | ch.ReportRefused
)
read_story = msgspec.msgpack.Decoder(list[AnyChange]).decode


class Broken(AssertionError):
    """A promise was broken in this world."""


class TaskModel:
    """A task as the durable story tells it."""

    __slots__ = ("answered", "ended_silent", "fence", "holder", "state")

    def __init__(self) -> None:
        self.state: TaskState = NONE
        self.fence: Fence = 0
        self.holder = ""
        self.answered: dict[int, None] = {}
        self.ended_silent: dict[Fence, None] = {}


class LeaseModel:
    """A lease as the durable story tells it."""

    __slots__ = ("attempt", "pools", "task", "worker")

    def __init__(self, task: TaskModel, worker: str, attempt: int, pools: tuple[tuple[str, str, int], ...]) -> None:
        self.task = task
        self.worker = worker
        self.attempt = attempt
        self.pools = pools


class Ledger:
    """Everything that has become durable, folded into a model of its own."""

    def __init__(self) -> None:
        self.epoch: Epoch = 0
        self.newest_fence: Fence = 0
        self._floor: Fence = 0
        self.tasks: dict[tuple[str, str, int], TaskModel] = {}
        self.runs: dict[RunKey, RunState] = {}
        self.graphs: dict[RunKey, str] = {}
        self.live: dict[Fence, LeaseModel] = {}
        self.granted: dict[Fence, Millis] = {}
        self.slots: dict[tuple[str, str, Millis], RunKey] = {}
        self.capacity: dict[str, int] = {}
        self.story_numbers: dict[RunKey, int] = {}
        self.needs: Callable[[RunKey, int], tuple[tuple[str, str, int], ...]] = lambda run, task: ()
        self.pools: dict[tuple[str, str], Pool] = {}
        self.acked: dict[RunKey, None] = {}
        self.changes = 0
        self._granted_now: list[tuple[str, str]] = []
        self._apply: dict[type, Callable[[RunKey, object], None]] = {
            ch.RunSubmitted: self._submitted,
            ch.RunStarted: self._started_run,
            ch.RunEnded: self._ended_run,
            ch.RunReopened: self._reopened,
            ch.TasksScheduled: self._scheduled,
            ch.TasksSettled: self._settled,
            ch.TasksReset: self._reset,
            ch.TaskRequeued: self._requeued,
            ch.TaskEnded: self._ended_task,
            ch.LeaseGranted: self._granted,
            ch.AttemptStarted: self._started,
            ch.AttemptEnded: self._ended,
            ch.LeaseReturned: self._returned,
        }

    # Commits.

    def committed(self, epoch: Epoch, batch: Batch) -> None:
        """P-COMMIT: epochs never go back on disk; a run keeps its graph; each run's story has no gap and no copy."""
        if epoch < self.epoch:
            raise Broken(f"P-COMMIT: epoch {epoch} wrote after {self.epoch}")
        self.epoch = epoch
        self._floor = self.newest_fence
        for record in batch.puts:
            if isinstance(record, Run):
                key = (record.tenant, record.id)
                known = self.graphs.setdefault(key, record.graph)
                if known != record.graph:
                    raise Broken(f"P-PIN: run {key} changed its graph")
            elif isinstance(record, Pool):
                self.pools[(record.tenant, record.name)] = record
            elif type(record).__name__ == "Worker":
                self.capacity[record.id] = record.capacity.slots  # type: ignore[union-attr] - a Worker has a capacity
        for story in batch.stories:
            self._tell(story)
        for record in batch.puts:
            self._compare(record)
        # A commit happens at one instant: what it ends and what it grants are compared with the limits together.
        for tenant, worker in self._granted_now:
            self._check_limits(tenant, worker)
        self._granted_now.clear()
        for key in batch.archives:
            if self.runs.get(key) not in RUN_TERMINAL:
                raise Broken(f"P-END: run {key} was archived as {self.runs.get(key)}")

    def _tell(self, story: Story) -> None:
        key = (story.tenant, story.run)
        changes = read_story(story.changes)
        first = changes[0]
        if isinstance(first, ch.RunSubmitted):
            self.story_numbers[key] = 0
        if story.number != self.story_numbers.get(key, 0):
            raise Broken(f"P-STORY: {key} tells part {story.number}, expected {self.story_numbers.get(key, 0)}")
        self.story_numbers[key] = story.number + 1
        for change in changes:
            self.changes += 1
            apply = self._apply.get(type(change))
            if apply is not None:
                apply(key, change)

    def _compare(self, record: object) -> None:
        """P-COMMIT: what is stored of a task is what its story says."""
        if isinstance(record, Run) and record.solo is not None:
            record = record.solo
        if isinstance(record, Task):
            model = self.task((record.tenant, record.run), record.idx)
            if (record.state, record.fence) != (model.state, model.fence):
                raise Broken(f"P-STORY: {record.run}/{record.idx} is stored as {record.state}, told as {model.state}")

    # Tasks.

    def task(self, run: RunKey, idx: int) -> TaskModel:
        """The model of a task."""
        key = (*run, idx)
        model = self.tasks.get(key)
        if model is None:
            model = self.tasks[key] = TaskModel()
        return model

    def _move(self, run: RunKey, idx: int, to: TaskState) -> TaskModel:
        model = self.task(run, idx)
        if not can_transition(model.state, to):
            raise Broken(f"P-TABLE: {run}/{idx} went from {model.state} to {to}")
        if model.state in LEASED and to not in LEASED:
            self.live.pop(model.fence, None)
            model.fence = 0
            model.holder = ""
        model.state = to
        return model

    def _submitted(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.RunSubmitted)
        row = change.row
        if self.runs.get(run) not in (None, *RUN_TERMINAL):
            raise Broken(f"P-SUBMIT: run {run} was submitted while it lived")
        for key in [key for key in self.tasks if key[:2] == run]:
            del self.tasks[key]
        self.runs[run] = RunState.QUEUED
        self.graphs[run] = row.graph
        if row.schedule:
            slot = (row.tenant, row.schedule, row.slot_at)
            if slot in self.slots:
                raise Broken(f"P-SLOT: {slot} fired as {self.slots[slot]} and as {run}")
            self.slots[slot] = run

    def _run_to(self, run: RunKey, to: RunState) -> None:
        here = self.runs[run]
        if not can_transition_run(here, to):
            raise Broken(f"P-TABLE: run {run} went from {here} to {to}")
        self.runs[run] = to

    def _started_run(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.RunStarted)
        self._run_to(run, RunState.RUNNING)

    def _ended_run(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.RunEnded)
        self._run_to(run, change.state)

    def _reopened(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.RunReopened)
        self._run_to(run, RunState.QUEUED)

    def _scheduled(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.TasksScheduled)
        for idx in change.tasks:
            self._move(run, idx, SCHEDULED)
            self._move(run, idx, QUEUED)

    def _settled(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.TasksSettled)
        for idx in change.tasks:
            self._move(run, idx, change.state)

    def _reset(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.TasksReset)
        for idx in change.tasks:
            model = self._move(run, idx, NONE)
            if change.fresh or change.cause:
                model.answered.clear()

    def _requeued(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.TaskRequeued)
        self._move(run, change.task, SCHEDULED)
        self._move(run, change.task, QUEUED)

    def _ended_task(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.TaskEnded)
        self._move(run, change.task, change.state)

    # Leases.

    def _granted(self, run: RunKey, change: object) -> None:
        """P-FENCE: fences only grow and belong to the epoch that wrote them. P-LIMIT: no pool or worker is exceeded."""
        assert isinstance(change, ch.LeaseGranted)
        # Inside one commit runs are told one after the other, so only older commits give an order.
        if change.fence <= self._floor or change.fence in self.granted:
            raise Broken(f"P-FENCE: fence {change.fence} after {self._floor}")
        if fence_epoch(change.fence) != self.epoch:
            raise Broken(f"P-FENCE: fence of epoch {fence_epoch(change.fence)} granted in {self.epoch}")
        self.newest_fence = max(self.newest_fence, change.fence)
        model = self._move(run, change.task, ASSIGNED)
        model.fence = change.fence
        model.holder = change.worker
        pools = self.needs(run, change.task)
        self.live[change.fence] = LeaseModel(model, change.worker, change.attempt, pools)
        self.granted[change.fence] = change.at
        if change.attempt in model.answered:
            raise Broken(f"P-ONE: {run}/{change.task} attempt {change.attempt} was granted after its outcome")
        self._granted_now.append((run[0], change.worker))

    def _check_limits(self, tenant: str, worker: str) -> None:
        taken: dict[tuple[str, str], int] = {}
        held = 0
        for lease in self.live.values():
            held += lease.worker == worker
            for pool, key, amount in lease.pools:
                if pool[: len(tenant) + 1] == f"{tenant}/":
                    for name in {(pool, ""): None, (pool, key): None}:
                        taken[name] = taken.get(name, 0) + amount
        if held > self.capacity.get(worker, 1 << 30):
            raise Broken(f"P-LIMIT: worker {worker} was given {held} leases of {self.capacity[worker]}")
        for (name, key), amount in taken.items():
            pool = self.pools.get((tenant, name.partition("/")[2]))
            if pool is None:
                continue
            most = pool.slots_per_key if key else pool.slots
            if most and amount > most:
                raise Broken(f"P-LIMIT: pool {name} {key} has {amount} of {most} taken")

    def _started(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.AttemptStarted)
        self._must_hold(run, change.task, change.fence)
        self._move(run, change.task, RUNNING)

    def _ended(self, run: RunKey, change: object) -> None:
        """P-ONE: one outcome per attempt, by the holder of the live fence."""
        assert isinstance(change, ch.AttemptEnded)
        model = self._must_hold(run, change.task, change.fence)
        attempt = self.live[change.fence].attempt
        if attempt in model.answered:
            raise Broken(f"P-ONE: {run}/{change.task} attempt {attempt} ended twice")
        model.answered[attempt] = None
        self._move(run, change.task, change.state)

    def _returned(self, run: RunKey, change: object) -> None:
        assert isinstance(change, ch.LeaseReturned)
        model = self._must_hold(run, change.task, change.fence)
        if change.cause == "its worker fell silent":
            model.ended_silent[change.fence] = None
        self._move(run, change.task, change.state)

    def _must_hold(self, run: RunKey, idx: int, fence: Fence) -> TaskModel:
        model = self.task(run, idx)
        if model.fence != fence:
            raise Broken(f"P-FENCE: {run}/{idx} was changed by fence {fence}, {model.fence} holds it")
        return model

    # The end.

    def unfinished(self) -> list[RunKey]:
        """Runs that have not ended."""
        return [run for run, state in self.runs.items() if state not in RUN_TERMINAL]

    def check_end(self) -> None:
        """P-END: when every run has ended nothing is held and nothing moves."""
        if self.live:
            raise Broken(f"P-END: leases outlive their runs: {list(self.live)[:3]}")
        for key, model in self.tasks.items():
            if model.state not in TERMINAL and model.state is not NONE:
                raise Broken(f"P-END: {key} is {model.state} in an ended run")
