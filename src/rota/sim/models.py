"""The model: runs, tasks and leases as the durable story tells them, and what checkers ask the scene besides.

Fed by commits in the order in which they became true, so it knows nothing of any coordinator's memory.
"""

from typing import Protocol

from rota.core.ids import NO_FENCE, Epoch, Fence, GraphDigest, Millis, RunKey
from rota.core.ladder import is_ours
from rota.core.model import Graph, Queue, TaskSpec
from rota.core.records import Run, Worker
from rota.core.states import (
    LEASED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    SKIPPED,
    SUCCESS,
    TASK_MARKS,
    TASK_MOVES,
    RunState,
    TaskState,
    can_transition,
)
from rota.sim.broken import Broken
from rota.sim.faults import Mix

PoolUse = tuple[str, str, int]


class TaskModel:
    """A task as the durable story tells it."""

    __slots__ = (
        "assigned_at",
        "climbed_at",
        "cycles",
        "due_at",
        "ended_silent",
        "fence",
        "first_started_at",
        "interrupted",
        "note",
        "queued_at",
        "revoked",
        "spent",
        "state",
        "tries",
    )

    def __init__(self) -> None:
        self.state: TaskState = NONE
        self.fence = NO_FENCE
        self.spent = 0
        self.tries = 0
        self.interrupted = 0
        self.due_at: Millis = 0
        self.assigned_at: Millis = 0
        self.first_started_at: Millis = 0
        self.note = ""
        # The starvation ladder: cycles counted, and when and in which epoch the last one was.
        self.cycles = 0
        self.climbed_at: tuple[Epoch, Millis] = (Epoch(0), 0)
        # When and in which epoch it began to wait for a claim.
        self.queued_at: tuple[Epoch, Millis] = (Epoch(0), 0)
        self.ended_silent: dict[Fence, None] = {}
        # Its leases that were revoked and are not over.
        self.revoked: dict[Fence, None] = {}

    def forget_own_note(self) -> None:
        """What the scheduler wrote down about waiting is over with it."""
        if is_ours(self.note):
            self.note = ""


class LeaseModel:
    """A lease as the durable story tells it."""

    __slots__ = ("incarnation", "pools", "timeout_ms", "worker")

    def __init__(self, worker: str, incarnation: str, pools: tuple[PoolUse, ...]) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.pools = pools
        # For how long its worker was silent when it was revoked, at least.
        self.timeout_ms: Millis = 0


class Facts(Protocol):
    """What the ledger asks the scene about things that stories do not repeat."""

    def note(self, kind: str) -> None:
        """Something happened that a test may want to count."""
        ...

    def now(self) -> Millis:
        """What time it is, whatever clocks say."""
        ...

    def graph(self, tenant: str, digest: GraphDigest) -> Graph | None:
        """A stored definition."""
        ...

    def queue(self, tenant: str, name: str) -> Queue:
        """A stored queue, or the one that is there without being defined."""
        ...

    def times_in_history(self, tenant: str, run: str, created_at: Millis) -> int:
        """How often a run that was created then is in history."""
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

    def is_servable(self, tenant: str, spec: TaskSpec, at: Millis) -> bool:
        """Whether a worker that was registered then could run this."""
        ...

    def worker(self, tenant: str, name: str) -> Worker | None:
        """A stored worker."""
        ...

    def misfit(self, tenant: str, spec: TaskSpec, worker: Worker) -> str:
        """Why a worker could never run this; nothing if it could."""
        ...


class Model:
    """What is durable, as far as more than one rule needs it."""

    def __init__(self, facts: Facts, mix: Mix) -> None:
        self.facts = facts
        self.mix = mix
        self.epoch = Epoch(0)
        self.tasks: dict[tuple[str, str, int], TaskModel] = {}
        self.runs: dict[RunKey, RunState] = {}
        self.names: dict[RunKey, tuple[str, str]] = {}
        self.graphs: dict[RunKey, GraphDigest] = {}
        # As it was submitted; `graphs` and `versions` say what it is of now.
        self.rows: dict[RunKey, Run] = {}
        self.versions: dict[RunKey, int] = {}
        self.held: dict[RunKey, dict[str, None]] = {}
        # Runs in history, and when they were created.
        self.archived: dict[RunKey, Millis] = {}
        # Of the present commit: tenants whose workflows or calendars somebody changed, or took away; runs that came,
        # moved or were revived; tasks that were well at some time.
        self.redefined: dict[str, None] = {}
        self.dropped: dict[str, None] = {}
        self.unsettled: dict[RunKey, None] = {}
        self.well: dict[tuple[str, str, int], None] = {}
        self.live: dict[Fence, LeaseModel] = {}
        # Leases that were revoked and are not over, and when they were.
        self.revoked: dict[Fence, tuple[LeaseModel, Millis]] = {}
        self.granted: dict[Fence, Millis] = {}
        self.ended_at: dict[Fence, Millis] = {}
        self.ended_for: dict[Fence, str] = {}
        # Tasks whose requirements an operator replaced.
        self.amended: dict[tuple[str, str, int], None] = {}
        # When a task of a run last began to wait for a claim: in which epoch, and by that coordinator's clock.
        self.queued_at: dict[RunKey, tuple[Epoch, Millis]] = {}
        # When a worker was last granted a task of a run.
        self.granted_to: dict[tuple[RunKey, str], Millis] = {}
        # When a tenant's work was last paused, resumed or otherwise changed by a command.
        self.meddled_at: dict[str, Millis] = {}

    def task(self, run: RunKey, idx: int) -> TaskModel:
        """The model of a task."""
        key = (*run, idx)
        model = self.tasks.get(key)
        if model is None:
            model = self.tasks[key] = TaskModel()
        return model

    def graph(self, run: RunKey) -> Graph | None:
        """The stored definition of a run."""
        return self.facts.graph(run[0], self.graphs[run])

    def spec(self, run: RunKey, task: int) -> TaskSpec | None:
        """A task's definition, counted out from the stored graph; None for tasks that were added later."""
        graph = self.graph(run)
        start = 0
        for spec in graph.tasks if graph is not None else ():
            if start <= task < start + spec.width:
                return spec
            start += spec.width
        return None

    def tasks_of(self, run: RunKey, names: tuple[str, ...]) -> list[int]:
        """The numbers of all tasks with these names, among those of the stored graph."""
        graph = self.graph(run)
        found: list[int] = []
        start = 0
        for spec in graph.tasks if graph is not None else ():
            if spec.id in names:
                found.extend(range(start, start + spec.width))
            start += spec.width
        return found

    def has_past(self, run: RunKey) -> bool:
        """Whether tasks of a run depend on the run before."""
        graph = self.graph(run)
        return graph is not None and any(spec.depends_on_past for spec in graph.tasks)

    def move(self, run: RunKey, idx: int, to: TaskState, at: Millis, *, marked: bool = False) -> TaskModel:
        """P-TABLE: a task moves only as the table allows; a lease ends when its task leaves it."""
        model = self.task(run, idx)
        is_mark = (model.state, to) in TASK_MARKS and (model.state, to) not in TASK_MOVES
        if not can_transition(model.state, to) or (is_mark and not marked):
            raise Broken(f"P-TABLE: {run}/{idx} went from {model.state} to {to}")
        if model.state in LEASED and to not in LEASED:
            self.live.pop(model.fence, None)
            self.ended_at[model.fence] = at
            model.fence = NO_FENCE
        if to in (SUCCESS, SKIPPED) or model.state in (SUCCESS, SKIPPED):
            self.well[(*run, idx)] = None
        model.state = to
        if to is NEEDS_ATTENTION:
            self.facts.note("parked")
        elif to is QUEUED:
            spec = self.spec(run, idx)
            if spec is not None and self.facts.queue(run[0], spec.queue).pull:
                self.queued_at[run] = model.queued_at = (self.epoch, at)
        return model
