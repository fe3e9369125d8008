"""What the coordinator holds in memory about runs, workers and leases.

A record plus what can be worked out from records: countdowns, free capacity, accounts. All of it is rebuilt by loading;
`rota.core.invariants` recomputes it and compares. The end of a lease is the one thing that is memory only.
"""

from array import array
from typing import TYPE_CHECKING

from msgspec import Struct

from rota.core.demand import property_values, totals_of
from rota.core.ids import Fence, Millis, RunId, RunKey, TaskId, WorkerKey
from rota.core.model import CLASS_WEIGHT, Approval, Mood, Pairs, PriorityClass
from rota.core.order import Purse
from rota.core.records import Growth, Run, Task, Worker
from rota.core.states import RUN_TERMINAL

if TYPE_CHECKING:
    from rota.core.buckets import Bucket, Shape
    from rota.core.graph import LiveGraph


class Lease:
    """A worker's timed right to one attempt; one that was revoked only counts against limits."""

    __slots__ = (
        "begun_at",
        "bucket",
        "charged",
        "confirmed",
        "expires_at",
        "fence",
        "granted_at",
        "overruns_at",
        "run",
        "share",
        "task",
        "unheard_at",
        "worker",
    )

    def __init__(
        self, fence: Fence, run: "LiveRun", task: Task, worker: "LiveWorker", bucket: "Bucket", begun_at: Millis
    ) -> None:
        self.fence = fence
        self.run = run
        self.task = task
        self.worker = worker
        self.bucket = bucket
        self.granted_at: Millis = task.assigned_at
        # When this coordinator first knew of it, in time during which it ran.
        self.begun_at = begun_at
        self.expires_at: Millis = 0
        # When an attempt is ended whose worker does not keep its time limit; 0: it has none, or has not begun.
        self.overruns_at: Millis = 0
        # When it is taken back unless its worker says something about it; 0: never, or it has not begun.
        self.unheard_at: Millis = 0
        self.confirmed = True
        self.charged = 0
        self.share = 0

    @property
    def limit_at(self) -> Millis:
        """When the first of its two limits is reached; 0 if it has none."""
        return min(self.overruns_at or self.unheard_at, self.unheard_at or self.overruns_at)


class WaitingClaim(Struct, frozen=True, kw_only=True):
    """A claim that found nothing and waits until an instant; the other fields are those of `ClaimTask`."""

    until: Millis
    least: PriorityClass
    where: Pairs
    run: RunId

    def accepts(self, run: RunKey, requires: Pairs, weight: int) -> bool:
        """Whether the claim asks for a task of this run, with these requirements and this weight."""
        if self.run and self.run != run[1]:
            return False
        return weight >= CLASS_WEIGHT[self.least] and all(pair in requires for pair in self.where)


class LiveWorker:
    """A registered worker with what it has free."""

    __slots__ = (
        "claims",
        "free",
        "has_spoken",
        "key",
        "leases",
        "mood",
        "parked_use",
        "present",
        "revoked",
        "row",
        "seen_at",
        "shape",
        "slots_free",
        "stalled_ms",
        "strikes",
        "totals",
        "used",
        "values",
        "vector",
        "watched",
    )

    def __init__(self, row: Worker, consumable: dict[str, int], now: Millis) -> None:
        self.row = row
        self.key: WorkerKey = (row.tenant, row.id)
        self.leases: dict[Fence, Lease] = {}
        # Taken from it before their end, and not over yet.
        self.revoked: dict[Fence, Lease] = {}
        self.present = False
        self.has_spoken = False
        # What a pull worker says that it is up to.
        self.mood = Mood.IDLE
        # The claim with which it waits for work, if it does.
        # Claims that wait, by their command ids, the oldest first.
        self.claims: dict[str, WaitingClaim] = {}
        self.seen_at = now
        # For how long the coordinator had not run when it was last heard: that time is not its silence.
        self.stalled_ms = 0
        self.shape: Shape | None = None
        self.vector: tuple[object, ...] | None = None
        self.used = 0
        self.parked_use = 0
        self.strikes = 0
        self.watched = False
        self.values: dict[str, tuple[str, ...]] = {}
        self.totals: dict[str, int] = {}
        self.free: dict[str, int] = {}
        self.slots_free = 0
        self.describe(consumable)

    def describe(self, consumable: dict[str, int]) -> None:
        """Read the worker's own words again: after registration, and when a queue changes what is counted."""
        self.values = property_values(self.row.capacity)
        self.totals = totals_of(self.values, consumable)
        self.free = dict(self.totals)
        self.slots_free = self.row.capacity.slots
        for lease in (*self.leases.values(), *self.revoked.values()):
            self.take(lease.bucket)

    def take(self, bucket: "Bucket") -> None:
        """A lease begins."""
        self.slots_free -= 1
        for name, need in bucket.demand.minimum:
            if name in self.free:
                self.free[name] -= need

    def give_back(self, bucket: "Bucket") -> None:
        """A lease ended."""
        self.slots_free += 1
        for name, need in bucket.demand.minimum:
            if name in self.free:
                self.free[name] += need


# Shared by the many runs in which nothing ever goes back to `none`, and nothing branches; never changed.
_NONE_RESET: dict[int, dict[int, None]] = {}
_NONE_FORCED: dict[int, int] = {}
# Shared by the many runs in which nothing is mapped over the output of another task; never changed.
_NO_SOURCES: dict[int, list[int]] = {}
# Shared by the many runs that nobody waits for; never changed.
_NO_RUNS: dict[RunKey, "LiveRun"] = {}
# Shared by the many runs of which no task came back from a session; never changed.
_NONE_RETURNED: dict[int, Millis] = {}
_NO_MAKERS: dict[int, tuple[WorkerKey, str]] = {}


class LiveRun:
    """A run with its tasks and countdowns.

    `success`, `failed`, `skipped` and `upstream_failed` count, per node of the graph, how many upstream tasks ended
    that way; they exist only in graphs with edges. `sources` counts the same of the tasks of each node over whose
    output another is mapped. `fired` marks nodes whose trigger rule has been answered, `reset` the tasks of such
    nodes that went back to `none` and wait for a second answer. `forced` counts, per node, the branches that
    decided to skip it. `before` and `after` are its neighbours in a graph whose runs depend on the past, in the
    order of what they are about; `is_held` says that its workflow is paused or a run it is part of, `revived_at`
    when it left history. `waiters` are the runs that wait for it to succeed. `makers` remembers, where a queue
    cares, which worker in which incarnation made a task's output, and `returned` when tasks that sessions claim came
    back without an outcome; a new coordinator does not know either. `number` is the order in which runs came into
    memory.
    """

    __slots__ = (
        "account",
        "after",
        "before",
        "blocked",
        "ended",
        "failed",
        "fired",
        "forced",
        "graph",
        "growths",
        "is_held",
        "is_solo",
        "key",
        "leaf_bad",
        "leased",
        "makers",
        "mended",
        "moving",
        "number",
        "purse",
        "reset",
        "returned",
        "revived_at",
        "row",
        "skipped",
        "sources",
        "success",
        "tasks",
        "told",
        "upstream_failed",
        "waiters",
    )

    def __init__(self, row: Run, graph: "LiveGraph", purse: Purse, number: int = 0) -> None:
        self.row = row
        self.number = number
        self.key: RunKey = (row.tenant, row.id)
        self.graph = graph
        self.tasks: dict[int, Task] = {}
        self.purse = purse
        self.account = purse.of_run
        self.leased = 0
        self.told = 0
        self.growths: tuple[Growth, ...] = ()
        self.before: LiveRun | None = None
        self.after: LiveRun | None = None
        self.is_held = False
        self.waiters: dict[RunKey, LiveRun] = _NO_RUNS
        self.makers = _NO_MAKERS
        # Something was put back or marked, so what waits for a worker may have been overtaken by that.
        self.mended = False
        self.revived_at: Millis = 0
        self.start_over(graph)

    def start_over(self, graph: "LiveGraph") -> None:
        """Count from nothing, over this graph."""
        self.ended = 0
        self.moving = 0
        self.leaf_bad = 0
        # How many of its tasks are `upstream_failed`.
        self.blocked = 0
        self.reset = _NONE_RESET
        self.returned = _NONE_RETURNED
        self.forced = _NONE_FORCED
        self.allot(graph)

    def allot(self, graph: "LiveGraph") -> None:
        """Make room for the countdowns of `graph`, keeping what was counted so far."""
        self.graph = graph
        # Whether the run's one task is stored inside the run's row.
        self.is_solo = graph.total == 1 and not graph.unknown and not self.row.grown
        size = len(graph.specs)
        # In the order of the four countdowns.
        self.sources = {node: [0, 0, 0, 0] for node in graph.sources} if graph.sources else _NO_SOURCES
        if not graph.has_edges:
            self.success = self.failed = self.skipped = self.upstream_failed = None
            self.fired = bytearray(size)
            return
        empty = array("I", bytes(4 * size))
        self.success: array[int] | None = empty
        self.failed: array[int] | None = empty[:]
        self.skipped: array[int] | None = empty[:]
        self.upstream_failed: array[int] | None = empty[:]
        self.fired = bytearray(size)

    def came_back(self, idx: int, at: Millis) -> None:
        """A task that sessions claim begins to wait anew, at the place in the order that it had."""
        if self.returned is _NONE_RETURNED:
            self.returned = {}
        self.returned[idx] = at

    def put_back(self, node: int, idx: int) -> None:
        """A task whose node had its answer is at `none` again and waits for a second one."""
        if self.reset is _NONE_RESET:
            self.reset = {}
        self.reset.setdefault(node, {})[idx] = None

    def force(self, names: tuple[TaskId, ...], step: int) -> None:
        """A branch decided to skip these nodes, or is asked again."""
        if self.forced is _NONE_FORCED:
            self.forced = {}
        for name in names:
            node = self.graph.index.get(name)
            if node is not None:
                left = self.forced.get(node, 0) + step
                if left:
                    self.forced[node] = left
                else:
                    self.forced.pop(node, None)

    @property
    def logical_at(self) -> Millis:
        """What the run is about: its slot, or the moment it was made."""
        return self.row.slot_at or self.row.created_at

    @property
    def line(self) -> tuple[str, str]:
        """Among which runs it has its neighbours: those of its schedule, of its backfill, or those made by hand."""
        return (self.row.tenant, f"{self.row.name}\0{self.row.schedule}")

    @property
    def is_kept(self) -> bool:
        """Whether a later run depends, or may yet depend, on how this one went."""
        if self.waiters:
            return True
        return bool(self.graph.past) and (self.after is None or self.after.row.state not in RUN_TERMINAL)

    @property
    def admission(self) -> tuple[str, str]:
        """Under which cap the run starts: that of its graph, or none where its backfill has one of its own."""
        row = self.row
        return (row.tenant, f"\0{row.schedule}" if row.backfill else row.name)

    @property
    def is_gated(self) -> bool:
        """Whether it may not even start: it waits for other runs, or for a person's word."""
        return bool(self.row.after) or self.row.approval is Approval.PENDING

    def made_by(self, idx: int, worker: "LiveWorker") -> None:
        """A worker has made the output of a task."""
        if self.makers is _NO_MAKERS:
            self.makers = {}
        self.makers[idx] = (worker.key, worker.row.incarnation)

    def await_end(self, waiter: "LiveRun") -> None:
        """Another run waits for this one."""
        if self.waiters is _NO_RUNS:
            self.waiters = {}
        self.waiters[waiter.key] = waiter

    @property
    def is_runnable(self) -> bool:
        """Whether tasks of this run may be given to workers now."""
        row = self.row
        return not (row.paused or self.is_held or row.fault or row.stopping is not None)
