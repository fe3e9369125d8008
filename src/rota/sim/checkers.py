"""What must be true, checked from the outside: from commits as they become true, and from what nodes are seen to do.

Each checker cites the line of docs/protocol.md it guards. The model is fed by the stories of durable commits, in the
order in which they became true, so it knows nothing of any coordinator's memory.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rota.core import changes as ch
from rota.core.bounds import INTERRUPTIONS_MAX
from rota.core.decide.leases import OVERRAN
from rota.core.ids import Epoch, Fence, Millis, RunKey, fence_epoch
from rota.core.model import FailureClass, Graph, Pool, TaskSpec
from rota.core.records import Batch, Run, Story, Task, Worker
from rota.core.retry import retries_allowed
from rota.core.states import (
    ASSIGNED,
    LEASED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    RUNNING,
    SCHEDULED,
    SUCCESS,
    TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
    TaskState,
    can_transition,
    can_transition_run,
)
from rota.core.story import read_story
from rota.sim.broken import Broken
from rota.sim.faults import Mix

PoolUse = tuple[str, str, int]

# A process that hangs up for a moment, or is not heard for two beats, may lose its place to a copy of itself; a copy
# that takes it again and again was let in without looking.
TAKEOVERS_MAX = 8


class TaskModel:
    """A task as the durable story tells it."""

    __slots__ = ("due_at", "ended_silent", "fence", "interrupted", "spent", "state", "tries")

    def __init__(self) -> None:
        self.state: TaskState = NONE
        self.fence: Fence = 0
        self.spent = 0
        self.tries = 0
        self.interrupted = 0
        self.due_at: Millis = 0
        self.ended_silent: dict[Fence, None] = {}


class LeaseModel:
    """A lease as the durable story tells it."""

    __slots__ = ("incarnation", "pools", "worker")

    def __init__(self, worker: str, incarnation: str, pools: tuple[PoolUse, ...]) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.pools = pools


class Facts(Protocol):
    """What the ledger asks the scene about things that stories do not repeat."""

    def graph(self, tenant: str, digest: str) -> Graph | None:
        """A stored definition."""
        ...

    def reign_began_at(self, epoch: Epoch) -> Millis:
        """When a coordinator finished loading, by its own clock."""
        ...

    def is_lost_work(self, fence: Fence) -> bool:
        """Whether a worker that still lives has finished this and not been told that nobody wants it."""
        ...

    def is_running(self, fence: Fence) -> bool:
        """Whether a living worker is at work on this."""
        ...

    def has_concluded(self, fence: Fence) -> bool:
        """Whether whoever was given this fence has come to an end with it."""
        ...

    def is_well(self, incarnation: str) -> bool:
        """Whether a worker process lives and has just heard from the reigning coordinator."""
        ...

    def is_servable(self, spec: TaskSpec, at: Millis) -> bool:
        """Whether a worker that was registered then could run this."""
        ...


class Ledger:
    """Everything that has become durable, folded into a model of its own."""

    def __init__(self, facts: Facts, mix: Mix) -> None:
        self.facts = facts
        self.mix = mix
        self.epoch: Epoch = 0
        self.newest_fence: Fence = 0
        self._floor: Fence = 0
        self.tasks: dict[tuple[str, str, int], TaskModel] = {}
        self.runs: dict[RunKey, RunState] = {}
        self.names: dict[RunKey, tuple[str, str]] = {}
        self.graphs: dict[RunKey, str] = {}
        self.held: dict[RunKey, dict[str, None]] = {}
        self.live: dict[Fence, LeaseModel] = {}
        self.granted: dict[Fence, Millis] = {}
        self.ended_at: dict[Fence, Millis] = {}
        self.ended_for: dict[Fence, str] = {}
        self.slots: dict[tuple[str, str, Millis], RunKey] = {}
        self.capacity: dict[str, int] = {}
        self.story_numbers: dict[RunKey, int] = {}
        self.pools: dict[tuple[str, str], Pool] = {}
        self.tokens: dict[tuple[str, str], tuple[int, Millis, Epoch]] = {}
        self.acked: dict[RunKey, None] = {}
        self.changes = 0
        self.takeovers = 0
        self._granted_now: list[Fence] = []
        self._started_now: list[RunKey] = []
        self._apply: dict[type, Callable[[RunKey, Any], None]] = {
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
            ch.RunPaused: self._paused,
            ch.RunStopping: self._stopping,
            ch.TaskStarved: self._starved,
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
            elif isinstance(record, Worker):
                self.capacity[record.id] = record.capacity.slots
        for story in batch.stories:
            self._tell(story)
        for record in batch.puts:
            self._compare(record)
        # A commit happens at one instant: what it ends and what it grants are compared with the limits together.
        for fence in self._granted_now:
            if fence in self.live:
                self._check_limits(self.live[fence])
        self._granted_now.clear()
        for run in self._started_now:
            self._check_active_runs(run)
        self._started_now.clear()
        for key in batch.archives:
            if self.runs.get(key) not in RUN_TERMINAL:
                raise Broken(f"P-END: run {key} was archived as {self.runs.get(key)}")

    def _tell(self, story: Story) -> None:
        key = (story.tenant, story.run)
        changes = read_story(story)
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

    def compare_all(self, records: Iterable[object]) -> None:
        """P-COMMIT: the disk changes by commits and by nothing else."""
        for record in records:
            self._compare(record)

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

    def _graph(self, run: RunKey) -> Graph | None:
        return self.facts.graph(run[0], self.graphs[run])

    def _spec(self, run: RunKey, task: int) -> TaskSpec | None:
        """A task's definition, counted out from the stored graph; None for tasks that were added later."""
        graph = self._graph(run)
        start = 0
        for spec in graph.tasks if graph is not None else ():
            if start <= task < start + spec.width:
                return spec
            start += spec.width
        return None

    def _move(self, run: RunKey, idx: int, to: TaskState, at: Millis) -> TaskModel:
        model = self.task(run, idx)
        if not can_transition(model.state, to):
            raise Broken(f"P-TABLE: {run}/{idx} went from {model.state} to {to}")
        if model.state in LEASED and to not in LEASED:
            self.live.pop(model.fence, None)
            self.ended_at[model.fence] = at
            model.fence = 0
        model.state = to
        return model

    def _submitted(self, run: RunKey, change: ch.RunSubmitted) -> None:
        """P-SUBMIT: a run is made once. P-SLOT: so is the run of a slot."""
        row = change.row
        if self.runs.get(run) not in (None, *RUN_TERMINAL):
            raise Broken(f"P-SUBMIT: run {run} was submitted while it lived")
        for key in [key for key in self.tasks if key[:2] == run]:
            del self.tasks[key]
        self.runs[run] = RunState.QUEUED
        self.names[run] = (row.tenant, row.name)
        self.graphs[run] = row.graph
        self.held[run] = {}
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

    def _started_run(self, run: RunKey, change: ch.RunStarted) -> None:
        """P-LIMIT: a graph has no more active runs than it may."""
        del change
        self._run_to(run, RunState.RUNNING)
        self._started_now.append(run)

    def _check_active_runs(self, run: RunKey) -> None:
        graph = self._graph(run)
        if graph is not None and graph.max_active_runs:
            name = self.names[run]
            active = sum(state is RunState.RUNNING and self.names[other] == name for other, state in self.runs.items())
            if active > graph.max_active_runs:
                raise Broken(f"P-LIMIT: graph {name} has {active} active runs of {graph.max_active_runs}")

    def _ended_run(self, run: RunKey, change: ch.RunEnded) -> None:
        self._run_to(run, change.state)

    def _reopened(self, run: RunKey, change: ch.RunReopened) -> None:
        del change
        self._run_to(run, RunState.QUEUED)
        self.held[run].pop("stopping", None)

    def _paused(self, run: RunKey, change: ch.RunPaused) -> None:
        if change.paused:
            self.held[run]["paused"] = None
        else:
            self.held[run].pop("paused", None)

    def _stopping(self, run: RunKey, change: ch.RunStopping) -> None:
        del change
        self.held[run]["stopping"] = None

    def _scheduled(self, run: RunKey, change: ch.TasksScheduled) -> None:
        for idx in change.tasks:
            self._move(run, idx, SCHEDULED, change.at)
            self._move(run, idx, QUEUED, change.at)

    def _settled(self, run: RunKey, change: ch.TasksSettled) -> None:
        for idx in change.tasks:
            self._move(run, idx, change.state, change.at)

    def _reset(self, run: RunKey, change: ch.TasksReset) -> None:
        for idx in change.tasks:
            model = self._move(run, idx, NONE, change.at)
            if change.fresh:
                model.tries = model.interrupted = 0

    def _requeued(self, run: RunKey, change: ch.TaskRequeued) -> None:
        """P-COOL: nobody comes back before its time."""
        model = self.task(run, change.task)
        if model.state is NEEDS_ATTENTION:
            model.interrupted = 0
        elif change.at < model.due_at:
            raise Broken(f"P-COOL: {run}/{change.task} came back {model.due_at - change.at} ms early")
        self._move(run, change.task, SCHEDULED, change.at)
        self._move(run, change.task, QUEUED, change.at)

    def _ended_task(self, run: RunKey, change: ch.TaskEnded) -> None:
        self._move(run, change.task, change.state, change.at)

    def _starved(self, run: RunKey, change: ch.TaskStarved) -> None:
        """P-LADDER: waiting behind busy workers is not starvation."""
        spec = self._spec(run, change.task)
        if spec is not None and self.facts.is_servable(spec, change.at):
            raise Broken(f"P-LADDER: {run}/{change.task} climbed although a registered worker could run it")

    # Leases.

    def _granted(self, run: RunKey, change: ch.LeaseGranted) -> None:
        """P-FENCE: fences only grow. P-LIMIT: nothing is exceeded. P-HOLD: held runs get nothing. P-UNSPENT."""
        # Inside one commit runs are told one after the other, so only older commits give an order.
        if change.fence <= self._floor or change.fence in self.granted:
            raise Broken(f"P-FENCE: fence {change.fence} after {self._floor}")
        if fence_epoch(change.fence) != self.epoch:
            raise Broken(f"P-FENCE: fence of epoch {fence_epoch(change.fence)} granted in {self.epoch}")
        if self.held[run]:
            raise Broken(f"P-HOLD: {run}/{change.task} was granted while its run was {list(self.held[run])}")
        self.newest_fence = max(self.newest_fence, change.fence)
        model = self._move(run, change.task, ASSIGNED, change.at)
        model.fence = change.fence
        if change.attempt != model.spent + 1:
            raise Broken(f"P-UNSPENT: {run}/{change.task} is granted as {change.attempt} after {model.spent} outcomes")
        pools = self._pools_of(run, change.task)
        self.live[change.fence] = LeaseModel(change.worker, change.incarnation, pools)
        self.granted[change.fence] = change.at
        self._granted_now.append(change.fence)
        self._spend_tokens(run[0], pools, change.at)

    def _pools_of(self, run: RunKey, task: int) -> tuple[PoolUse, ...]:
        spec, graph = self._spec(run, task), self._graph(run)
        if spec is None or graph is None:
            return ()
        uses = tuple((need.pool, need.key, need.amount) for need in spec.pools)
        if graph.max_active_tasks:
            name = f"@graph/{graph.name}"
            self.pools[(run[0], name)] = Pool(tenant=run[0], name=name, slots=graph.max_active_tasks)
            uses += ((name, "", 1),)
        return tuple((f"{run[0]}/{pool}", key, amount) for pool, key, amount in uses)

    def _spend_tokens(self, tenant: str, pools: tuple[PoolUse, ...], at: Millis) -> None:
        """P-RATE: a pool's rate holds, across coordinators too (clocks permitting)."""
        for name, _, _ in pools:
            pool = self.pools.get((tenant, name.partition("/")[2]))
            if pool is None or not pool.starts_per_minute or self.mix.skew_ms or self.mix.clock_step:
                continue
            tokens, since, epoch = self.tokens.get((tenant, name), (pool.burst * 60_000, at, self.epoch))
            tokens = min(pool.burst * 60_000, tokens + max(0, at - since) * pool.starts_per_minute)
            if tokens < 60_000 and epoch == self.epoch:
                raise Broken(f"P-RATE: pool {name} let a start through with {tokens / 60_000:.2f} tokens")
            self.tokens[(tenant, name)] = (tokens - 60_000, at, self.epoch)

    def _check_limits(self, granted: LeaseModel) -> None:
        """What a new lease uses is within its limits; a pool that was made smaller only lets nothing new in."""
        held = sum(lease.worker == granted.worker for lease in self.live.values())
        if held > self.capacity.get(granted.worker, 1 << 30):
            raise Broken(f"P-LIMIT: worker {granted.worker} was given {held} of {self.capacity[granted.worker]} leases")
        for name, key, _ in granted.pools:
            tenant, _, pool_name = name.partition("/")
            pool = self.pools.get((tenant, pool_name))
            if pool is None:
                continue
            uses = [use for lease in self.live.values() for use in lease.pools if use[0] == name]
            in_all = sum(amount for _, _, amount in uses)
            for_key = sum(amount for _, used, amount in uses if key and used == key)
            if (pool.slots and in_all > pool.slots) or (pool.slots_per_key and for_key > pool.slots_per_key):
                raise Broken(f"P-LIMIT: pool {name} has {in_all} of {pool.slots} taken, {for_key} for key {key!r}")

    def _started(self, run: RunKey, change: ch.AttemptStarted) -> None:
        self._must_hold(run, change.task, change.fence)
        self._move(run, change.task, RUNNING, change.at)

    def _ended(self, run: RunKey, change: ch.AttemptEnded) -> None:
        """P-ONE: one outcome per attempt, by the holder of the live fence. P-BUDGET: no more retries than allowed."""
        model = self._must_hold(run, change.task, change.fence)
        if change.failure is FailureClass.TIMEOUT and change.error.startswith(OVERRAN):
            self._check_overrun(run, change)
        elif not self.facts.has_concluded(change.fence):
            raise Broken(f"P-ONE: {run}/{change.task} got an outcome that the holder of {change.fence} never gave")
        model.spent += 1
        model.due_at = change.due_at
        if change.state is not UP_FOR_RESCHEDULE:
            model.tries += 1
        if change.state is SUCCESS:
            model.interrupted = 0
        spec = self._spec(run, change.task)
        if change.state is UP_FOR_RETRY and spec is not None and change.failure is not None:
            allowed = retries_allowed(spec.retry, change.failure)
            if model.tries > allowed:
                raise Broken(f"P-BUDGET: {run}/{change.task} is tried again after {model.tries} of {allowed} retries")
        self._move(run, change.task, change.state, change.at)

    def _check_overrun(self, run: RunKey, change: ch.AttemptEnded) -> None:
        """P-OVERRUN: an attempt is not ended for its length before its limit and the grace are over."""
        spec, waited = self._spec(run, change.task), change.at - self.granted[change.fence]
        if spec is None or self.mix.skew_ms or self.mix.clock_step:
            return
        if not spec.timeout_ms or waited < spec.timeout_ms + self.mix.limits.overrun_ms:
            raise Broken(f"P-OVERRUN: {run}/{change.task} was ended as too long after {waited} ms")

    def _returned(self, run: RunKey, change: ch.LeaseReturned) -> None:
        """P-LEASE: nobody's lease is cut short. P-OUTAGE: finished work is not thrown away. P-POISON: not for ever."""
        model = self._must_hold(run, change.task, change.fence)
        if change.cause == "its worker fell silent":
            model.ended_silent[change.fence] = None
            self._check_patience(run, change)
        if change.cause == "not held any more":
            if self.facts.is_lost_work(change.fence):
                raise Broken(f"P-OUTAGE: {run}/{change.task} was finished by its worker and taken away")
            if self.facts.is_running(change.fence):
                raise Broken(f"P-ABSENCE: {run}/{change.task} was said not to be held, and runs")
        self.ended_for[change.fence] = change.cause
        if change.cause == "its worker restarted" and self.facts.is_well(self.live[change.fence].incarnation):
            self.takeovers += 1
            if self.takeovers > TAKEOVERS_MAX:
                raise Broken(f"P-CLONE: {run}/{change.task} was taken from a worker that is alive and well")
        model.interrupted += change.counted
        if model.interrupted > INTERRUPTIONS_MAX:
            raise Broken(f"P-POISON: {run}/{change.task} was interrupted {model.interrupted} times")
        self._move(run, change.task, change.state, change.at)

    def _check_patience(self, run: RunKey, change: ch.LeaseReturned) -> None:
        if self.mix.skew_ms or self.mix.clock_step:
            return
        lease_ms = self.mix.limits.lease_ms
        waited = change.at - self.granted[change.fence]
        if waited < lease_ms:
            raise Broken(f"P-LEASE: {run}/{change.task} was taken away after {waited} of {lease_ms} ms")
        if fence_epoch(change.fence) < self.epoch:
            waited = change.at - self.facts.reign_began_at(self.epoch)
            if waited < lease_ms:
                raise Broken(f"P-LEASE: {run}/{change.task} was taken away {waited} ms after an election")

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
