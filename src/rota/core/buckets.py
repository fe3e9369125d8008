"""Buckets of interchangeable tasks and shapes of interchangeable workers, with the order kept inside each.

These are the parts that `rota.core.match` is built of; what is waiting is kept ordered here, who suits whom there.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop

from rota.core.bounds import OVERDUE_GRANTS
from rota.core.demand import Demand
from rota.core.ids import Millis, WorkerKey
from rota.core.live import LiveRun, LiveWorker
from rota.core.model import PriorityClass
from rota.core.order import CLASSES, Account, LazyHeap
from rota.core.records import Task

# A waiting task: by its priority, then since when it may run, then the order of runs; the first two are of the task.
Waiting = tuple[int, Millis, int, int, LiveRun]
# Since when a task may run, the name of its run, the order of coming, and which task it is.
Age = tuple[Millis, str, int, LiveRun, int]


def place_in_line(run: LiveRun, task: Task) -> Waiting:
    """The place of a task among those that are charged on the same account."""
    return (-run.graph.spec(task.idx).priority, task.eligible_at, run.number, task.idx, run)


class Flow:
    """The tasks of one account, a run's or a share's, that wait in one bucket: by their priority, then by age."""

    __slots__ = ("account", "gone", "live", "tasks")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.tasks: list[Waiting] = []
        # Entries that left without being at the head; most flows never have one.
        self.gone: set[Waiting] | None = None
        self.live = 0

    def head(self) -> tuple[LiveRun, Task]:
        """The task whose turn it is, with its run."""
        tasks = self.tasks
        while self.gone and tasks[0] in self.gone:
            self.gone.discard(heappop(tasks))
        *_, idx, run = tasks[0]
        return run, run.tasks[idx]


def flow_key(flow: Flow) -> int | None:
    """What the account of a flow has used; None once none of its tasks waits."""
    return flow.account.used if flow.live else None


class Bucket:
    """All waiting tasks with one signature."""

    __slots__ = (
        "ages",
        "claimed_at",
        "demand",
        "flows",
        "left",
        "lines",
        "live",
        "opened_at",
        "shapes",
        "users",
        "waiting",
    )

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.flows: dict[Account, Flow] = {}
        self.lines: dict[PriorityClass, LazyHeap[Flow]] = {}
        self.waiting: dict[PriorityClass, int] = dict.fromkeys(CLASSES, 0)
        self.live = 0
        self.shapes: list[tuple[int, Shape]] = []
        # By the time since which a task may run; a task that was returned keeps its age.
        self.ages: dict[PriorityClass, list[Age]] = {}
        # Whose age is still there although they left; whoever comes back with the same age takes its old place.
        self.left: set[tuple[Millis, int, int]] = set()
        self.users = 0
        # When a pull worker last claimed a task of this bucket.
        self.claimed_at: Millis = 0
        # When a pool that held it back had room again: earlier wakes for its tasks say nothing any more.
        self.opened_at: Millis = 0

    def head(self, priority: PriorityClass) -> tuple[int, Flow] | None:
        """The run or share whose turn it is in this bucket and class, with what it has used."""
        line = self.lines.get(priority)
        return line.head(flow_key) if line is not None else None

    def tasks(self) -> Iterator[tuple[LiveRun, Task]]:
        """Waiting tasks, in no order that matters; for the ladder, `why` and `validate`."""
        for flow in self.flows.values():
            for entry in flow.tasks:
                if not flow.gone or entry not in flow.gone:
                    *_, idx, run = entry
                    yield run, run.tasks[idx]


class TenantLine:
    """A tenant's waiting buckets, as one shape sees them."""

    __slots__ = ("buckets", "live", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.buckets: LazyHeap[Bucket] = LazyHeap(returning=True)
        self.live = 0


class Shape:
    """Workers that no waiting task can tell apart, quantities aside."""

    __slots__ = ("claimants", "grants", "idle", "key", "lines", "tenants", "totals", "waiting", "workers")

    def __init__(self, key: tuple[object, ...]) -> None:
        self.key = key
        self.workers: dict[WorkerKey, LiveWorker] = {}
        self.idle: dict[tuple[object, ...], OrderedDict[WorkerKey, LiveWorker]] = {}
        self.totals: dict[tuple[tuple[str, int], ...], int] = {}
        self.tenants: dict[tuple[PriorityClass, str], TenantLine] = {}
        self.lines: dict[PriorityClass, LazyHeap[TenantLine]] = {name: LazyHeap(returning=True) for name in CLASSES}
        self.waiting: dict[Bucket, int] = {}
        # Workers with a claim that waits, in the order in which they began to wait.
        self.claimants: dict[WorkerKey, LiveWorker] = {}
        # Grants since the last overdue task; a new shape looks for one at once.
        self.grants = OVERDUE_GRANTS

    def opened(self, bucket: Bucket, priority: PriorityClass, used: int, key: int) -> None:
        """A bucket this shape suits has work of this class again."""
        tenant = bucket.demand.signature.tenant
        line = self.tenants.get((priority, tenant))
        if line is None:
            line = self.tenants[(priority, tenant)] = TenantLine(tenant)
        line.live += 1
        line.buckets.push(key, bucket)
        self.lines[priority].push(used, line)
        self.waiting[bucket] = self.waiting.get(bucket, 0) + 1

    def closed(self, bucket: Bucket, priority: PriorityClass) -> None:
        """The bucket has no more work of this class."""
        self.tenants[(priority, bucket.demand.signature.tenant)].live -= 1
        left = self.waiting[bucket] - 1
        if left:
            self.waiting[bucket] = left
        else:
            del self.waiting[bucket]

    def forget_bucket(self, bucket: Bucket) -> None:
        """A bucket is gone for good."""
        tenant = bucket.demand.signature.tenant
        for priority in CLASSES:
            line = self.tenants.get((priority, tenant))
            if line is not None:
                line.buckets.discard(bucket)

    def forget_tenant(self, priority: PriorityClass, tenant: str) -> None:
        """A tenant has no run of this class any more."""
        line = self.tenants.pop((priority, tenant), None)
        if line is not None:
            self.lines[priority].discard(line)

    def park(self, worker: LiveWorker) -> None:
        """Keep a worker with a free slot in the group of those with the same free quantities, oldest use first."""
        if worker.slots_free <= 0 or not worker.present or worker.row.draining:
            self.unpark(worker)
            return
        vector = (worker.slots_free, *worker.free.items()) if worker.free else (worker.slots_free,)
        if worker.vector == vector and worker.parked_use == worker.used:
            return
        self.unpark(worker)
        group = self.idle.get(vector)
        if group is None:
            group = self.idle[vector] = OrderedDict()
        newest = next(reversed(group.values())) if group else None
        group[worker.key] = worker
        worker.vector = vector
        worker.parked_use = worker.used
        if newest is not None and newest.used > worker.used:
            # Rare: a worker comes back that was last used long ago.
            self.idle[vector] = OrderedDict(sorted(group.items(), key=lambda item: item[1].used))

    def unpark(self, worker: LiveWorker) -> None:
        """Take a worker out of its group."""
        vector = worker.vector
        if vector is None:
            return
        group = self.idle[vector]
        del group[worker.key]
        if not group:
            del self.idle[vector]
        worker.vector = None
