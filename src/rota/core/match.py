"""Who gets what: buckets of interchangeable tasks, shapes of interchangeable workers.

A task waits in the bucket of its signature. Workers whose queues, tenants, kinds and mentioned properties agree share a
shape, and which shapes suit a bucket is worked out once. So a decision looks at buckets and shapes, never at
tasks times workers (docs/decisions/0002). What is taken and freed is compared last, against one worker.

This is an index: it answers from the state alone and may tidy itself while it is read.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from rota.core.bounds import OVERDUE_GRANTS, OVERDUE_MS
from rota.core.demand import Demand, free_reasons, is_silent, score, static_reasons, total_reasons
from rota.core.ids import Millis, RunKey, WorkerKey
from rota.core.live import LiveRun, LiveWorker
from rota.core.model import Allocation, PriorityClass
from rota.core.order import CLASSES, ESTIMATE_MS, Books, LazyHeap
from rota.core.reasons import Reason, Reasons, reason
from rota.core.records import Task
from rota.core.states import QUEUED

# How many late keys one walk over a tenant's buckets corrects. Beyond it a run may be ahead of another run of the
# same tenant by at most one grant per signature it has waiting; classes and tenants are always exact.
PATIENCE = 8

Held = Callable[["Bucket"], bool]
BucketOf = Callable[[LiveRun, Task], "Bucket"]


class Flow:
    """The tasks of one run that wait in one bucket, by priority inside the run, then age."""

    __slots__ = ("gone", "live", "run", "tasks")

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.tasks: list[tuple[int, Millis, int]] = []
        self.gone: set[tuple[int, Millis, int]] = set()
        self.live = 0

    def head(self) -> Task:
        """The task whose turn it is."""
        tasks = self.tasks
        while self.gone and tasks[0] in self.gone:
            self.gone.discard(heappop(tasks))
        return self.run.tasks[tasks[0][2]]


def _flow_key(flow: Flow) -> int | None:
    return flow.run.account.used if flow.live else None


class Bucket:
    """All waiting tasks with one signature."""

    __slots__ = ("ages", "demand", "estimate_ms", "flows", "lines", "live", "shapes", "users", "waiting")

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.flows: dict[RunKey, Flow] = {}
        self.lines: dict[PriorityClass, LazyHeap[Flow]] = {}
        self.waiting: dict[PriorityClass, int] = dict.fromkeys(CLASSES, 0)
        self.live = 0
        self.shapes: list[tuple[int, Shape]] = []
        self.ages: deque[tuple[Millis, LiveRun, int]] = deque()
        self.estimate_ms = ESTIMATE_MS
        self.users = 0

    def head(self, priority: PriorityClass) -> tuple[int, Flow] | None:
        """The run whose turn it is in this bucket and class, with what it has used."""
        line = self.lines.get(priority)
        return line.head(_flow_key) if line is not None else None

    def learn(self, took_ms: Millis) -> None:
        """Remember how long work of this signature takes: a moving average over about eight leases."""
        self.estimate_ms = max(1, (self.estimate_ms * 7 + took_ms) // 8)

    def tasks(self) -> Iterator[tuple[LiveRun, Task]]:
        """Waiting tasks, in no order that matters; for the ladder, `why` and `validate`."""
        for flow in self.flows.values():
            for entry in flow.tasks:
                if entry not in flow.gone:
                    yield flow.run, flow.run.tasks[entry[2]]


class TenantLine:
    """A tenant's waiting buckets, as one shape sees them."""

    __slots__ = ("buckets", "live", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.buckets: LazyHeap[Bucket] = LazyHeap()
        self.live = 0


class Shape:
    """Workers that no waiting task can tell apart, quantities aside."""

    __slots__ = ("grants", "idle", "key", "lines", "tenants", "totals", "waiting", "workers")

    def __init__(self, key: tuple[object, ...]) -> None:
        self.key = key
        self.workers: dict[WorkerKey, LiveWorker] = {}
        self.idle: dict[tuple[object, ...], OrderedDict[WorkerKey, LiveWorker]] = {}
        self.totals: dict[tuple[tuple[str, int], ...], int] = {}
        self.tenants: dict[tuple[PriorityClass, str], TenantLine] = {}
        self.lines: dict[PriorityClass, LazyHeap[TenantLine]] = {name: LazyHeap() for name in CLASSES}
        self.waiting: dict[Bucket, int] = {}
        self.grants = 0

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

    def park(self, worker: LiveWorker, *, never_used: bool = False) -> None:
        """Keep a worker with a free slot in the group of those with the same free quantities, oldest use first."""
        self.unpark(worker)
        if worker.slots_free <= 0 or not worker.present or worker.row.draining:
            return
        vector = (worker.slots_free, *worker.free.items())
        group = self.idle.get(vector)
        if group is None:
            group = self.idle[vector] = OrderedDict()
        group[worker.key] = worker
        worker.vector = vector
        if never_used:
            group.move_to_end(worker.key, last=False)

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


def dynamic_reasons(demand: Demand, worker: LiveWorker, now: Millis, *, alone: bool = False) -> Reasons:
    """What holds this worker back at the moment. `alone`: no other worker could take the work instead."""
    row = worker.row
    if (
        worker.present
        and worker.slots_free > 0
        and not row.draining
        and row.quarantined_until <= now
        and not demand.signature.avoid
        and not is_silent(demand, worker.seen_at, now)
    ):
        return free_reasons(demand, worker.free) if demand.minimum else ()
    found: list[Reason] = []
    if not worker.present:
        found.append(reason("worker.absent", "is registered but away", worker=row.id))
    elif is_silent(demand, worker.seen_at, now):
        found.append(reason("worker.silent", f"has not spoken for {now - worker.seen_at} ms", worker=row.id))
    if row.draining:
        found.append(reason("worker.draining", "takes no new work", worker=row.id))
    if row.quarantined_until > now:
        found.append(reason("worker.quarantined", f"rests for {row.quarantined_until - now} ms", worker=row.id))
    if demand.signature.avoid == row.id and not alone:
        found.append(reason("worker.avoided", "lost this task before", worker=row.id))
    if worker.slots_free <= 0:
        found.append(reason("worker.slots", f"holds {len(worker.leases)} leases", worker=row.id))
    return (*found, *free_reasons(demand, worker.free))


def fits(demand: Demand, worker: LiveWorker, now: Millis, *, alone: bool = False) -> Reasons:
    """Why this worker may not have the work now; nothing means it may. The one predicate of matching and of why."""
    return (
        *static_reasons(demand, worker.row.capacity, worker.values),
        *total_reasons(demand, worker.totals),
        *dynamic_reasons(demand, worker, now, alone=alone),
    )


class Index:
    """Buckets, shapes and who should be looked at next."""

    def __init__(self, books: Books, bucket_of: BucketOf) -> None:
        self.books = books
        self.bucket_of = bucket_of
        self.buckets: dict[object, Bucket] = {}
        self.shapes: dict[tuple[object, ...], Shape] = {}
        self.mentioned: dict[str, int] = {}
        self.by_pair: dict[tuple[str, str], dict[Bucket, None]] = {}
        self.unpaired: dict[Bucket, None] = {}
        self.fresh: dict[Bucket, None] = {}
        self.hungry: dict[LiveWorker, None] = {}
        self.queued = 0

    # Buckets and shapes: which suit which.

    def add_bucket(self, demand: Demand) -> Bucket:
        """The bucket of a demand; its shapes are worked out here, once."""
        bucket = Bucket(demand)
        self.buckets[demand.signature] = bucket
        unknown = [name for name, _ in (*demand.exact, *demand.loose, *demand.soft) if name not in self.mentioned]
        for name, _ in (*demand.exact, *demand.loose, *demand.soft):
            self.mentioned[name] = self.mentioned.get(name, 0) + 1
        if unknown:
            self._reshape()
        home = self.by_pair.setdefault(demand.exact[0], {}) if demand.exact else self.unpaired
        home[bucket] = None
        for shape in self.shapes.values():
            self._introduce(bucket, shape)
        return bucket

    def drop_bucket(self, bucket: Bucket) -> None:
        """Forget an empty bucket that no live graph uses."""
        demand = bucket.demand
        del self.buckets[demand.signature]
        self.fresh.pop(bucket, None)
        if demand.exact:
            home = self.by_pair[demand.exact[0]]
            del home[bucket]
            if not home:
                del self.by_pair[demand.exact[0]]
        else:
            del self.unpaired[bucket]
        for name, _ in (*demand.exact, *demand.loose, *demand.soft):
            self.mentioned[name] -= 1
            if not self.mentioned[name]:
                del self.mentioned[name]

    def _introduce(self, bucket: Bucket, shape: Shape) -> None:
        worker = next(iter(shape.workers.values()))
        if static_reasons(bucket.demand, worker.row.capacity, worker.values):
            return
        bucket.shapes.append((score(bucket.demand, worker.values), shape))
        bucket.shapes.sort(key=lambda pair: -pair[0])
        for priority, waiting in bucket.waiting.items():
            if waiting:
                self._open(bucket, priority, shape)

    def _open(self, bucket: Bucket, priority: PriorityClass, shape: Shape) -> None:
        head = bucket.head(priority)
        used = self.books.tenant(priority, bucket.demand.signature.tenant).used
        shape.opened(bucket, priority, used, head[0] if head else 0)

    def _shape_key(self, worker: LiveWorker) -> tuple[object, ...]:
        capacity = worker.row.capacity
        mentioned = tuple((name, values) for name, values in worker.values.items() if name in self.mentioned)
        return (capacity.queues, capacity.tenants, capacity.kinds, capacity.pull, mentioned)

    def _reshape(self) -> None:
        workers = [worker for shape in self.shapes.values() for worker in shape.workers.values()]
        self.shapes = {}
        for bucket in self.buckets.values():
            bucket.shapes = []
        for worker in workers:
            worker.shape = worker.vector = None
        for worker in sorted(workers, key=lambda worker: worker.used):
            self.join(worker)

    # Workers.

    def join(self, worker: LiveWorker) -> None:
        """A worker is registered, or changed what it says of itself."""
        key = self._shape_key(worker)
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(key)
            shape.workers[worker.key] = worker
            for bucket in self._candidates(worker):
                self._introduce(bucket, shape)
        shape.workers[worker.key] = worker
        totals = tuple(worker.totals.items())
        shape.totals[totals] = shape.totals.get(totals, 0) + 1
        worker.shape = shape
        shape.park(worker, never_used=worker.used == 0)
        self.hungry[worker] = None

    def part(self, worker: LiveWorker) -> None:
        """A worker is forgotten, or about to describe itself anew."""
        shape = worker.shape
        if shape is None:
            return
        shape.unpark(worker)
        del shape.workers[worker.key]
        totals = tuple(worker.totals.items())
        shape.totals[totals] -= 1
        if not shape.totals[totals]:
            del shape.totals[totals]
        worker.shape = None
        self.hungry.pop(worker, None)
        if not shape.workers:
            del self.shapes[shape.key]
            for bucket in self._candidates(worker):
                bucket.shapes = [pair for pair in bucket.shapes if pair[1] is not shape]

    def _candidates(self, worker: LiveWorker) -> Iterator[Bucket]:
        yield from self.unpaired
        for name, values in worker.values.items():
            for value in values:
                yield from self.by_pair.get((name, value), ())

    def touch(self, worker: LiveWorker, *, freed: bool) -> None:
        """A worker's capacity or standing changed; `freed`: it may be able to take more."""
        if worker.shape is not None:
            worker.shape.park(worker)
            if freed:
                self.hungry[worker] = None

    # Tasks.

    def enqueue(self, bucket: Bucket, run: LiveRun, task: Task, priority_in_run: int) -> None:
        """A task begins to wait in its bucket."""
        priority = run.row.priority
        self.books.enter(priority, run.row.tenant, run.account)
        flow = bucket.flows.get(run.key)
        if flow is None:
            flow = bucket.flows[run.key] = Flow(run)
            line = bucket.lines.get(priority)
            if line is None:
                line = bucket.lines[priority] = LazyHeap()
            line.push(run.account.used, flow)
        entry = (-priority_in_run, task.eligible_at, task.idx)
        if entry in flow.gone:
            flow.gone.discard(entry)
        else:
            heappush(flow.tasks, entry)
        flow.live += 1
        self.queued += 1
        bucket.live += 1
        bucket.waiting[priority] += 1
        if bucket.waiting[priority] == 1:
            for _, shape in bucket.shapes:
                self._open(bucket, priority, shape)
        self._remember_age(bucket, run, task)
        # A bucket that had waiting tasks before has been looked at since; one more task changes nothing for it.
        if bucket.live == 1:
            self.fresh[bucket] = None

    def dequeue(self, bucket: Bucket, run: LiveRun, task: Task, priority_in_run: int) -> None:
        """A task waits no more: granted, cancelled, parked, paused or withdrawn."""
        priority = run.row.priority
        flow = bucket.flows[run.key]
        entry = (-priority_in_run, task.eligible_at, task.idx)
        if flow.tasks[0] == entry:
            heappop(flow.tasks)
        else:
            flow.gone.add(entry)
        flow.live -= 1
        self.queued -= 1
        bucket.live -= 1
        bucket.waiting[priority] -= 1
        if flow.live == 0:
            del bucket.flows[run.key]
        if bucket.waiting[priority] == 0:
            for _, shape in bucket.shapes:
                shape.closed(bucket, priority)
        self.books.leave(priority, run.row.tenant, run.account)

    def _remember_age(self, bucket: Bucket, run: LiveRun, task: Task) -> None:
        ages = bucket.ages
        while ages and not self._is_waiting(bucket, ages[0]):
            ages.popleft()
        ages.append((task.eligible_at, run, task.idx))

    def _is_waiting(self, bucket: Bucket, entry: tuple[Millis, LiveRun, int]) -> bool:
        eligible_at, run, idx = entry
        task = run.tasks.get(idx)
        return (
            task is not None
            and task.state is QUEUED
            and task.eligible_at == eligible_at
            and run.key in bucket.flows
            and self.bucket_of(run, task) is bucket
        )

    def oldest(self, bucket: Bucket) -> tuple[Millis, LiveRun, Task] | None:
        """The task that has waited longest in a bucket."""
        ages = bucket.ages
        while ages and not self._is_waiting(bucket, ages[0]):
            ages.popleft()
        if not ages:
            return None
        eligible_at, run, idx = ages[0]
        return eligible_at, run, run.tasks[idx]

    # Choosing.

    def is_alone(self, bucket: Bucket) -> bool:
        """Whether the worker to avoid is all this bucket has, so that avoiding it would mean waiting for ever."""
        avoid = bucket.demand.signature.avoid
        for _, shape in bucket.shapes:
            for worker in shape.workers.values():
                row = worker.row
                if row.id != avoid and worker.present and not row.draining:
                    if not total_reasons(bucket.demand, worker.totals):
                        return False
        return True

    def is_servable(self, bucket: Bucket) -> bool:
        """Whether some registered worker, idle and present or not, could ever run the work."""
        need = bucket.demand.minimum
        for _, shape in bucket.shapes:
            for totals in shape.totals:
                have = dict(totals)
                if all(have.get(name, -1) >= amount for name, amount in need):
                    return True
        return False

    def pick_worker(self, bucket: Bucket, now: Millis) -> LiveWorker | None:
        """The best worker for a bucket: most soft preferences met, then by the queue's allocation strategy."""
        best: LiveWorker | None = None
        best_score = -1
        newest = bucket.demand.allocation is Allocation.MOST_RECENTLY_USED
        alone = bool(bucket.demand.signature.avoid) and self.is_alone(bucket)
        for points, shape in bucket.shapes:
            if best is not None and points < best_score:
                break
            for group in shape.idle.values():
                for worker in reversed(group.values()) if newest else group.values():
                    held = dynamic_reasons(bucket.demand, worker, now, alone=alone)
                    if not held:
                        if best is None or (worker.used > best.used) == newest:
                            best, best_score = worker, points
                        break
                    if any(item.code == "worker.capacity" for item in held):
                        break
        return best

    def pick_task(self, worker: LiveWorker, now: Millis, is_held: Held) -> tuple[Bucket, LiveRun, Task] | None:
        """The task whose turn it is on this worker: by class, tenant, run, priority inside the run, age.

        Every so often the oldest overdue task goes first, whatever the shares say.
        """
        shape = worker.shape
        if shape is None or not shape.waiting:
            return None
        if shape.grants >= OVERDUE_GRANTS - 1:
            overdue = self._pick_overdue(shape, worker, now, is_held)
            if overdue is not None:
                return overdue
        books = self.books
        for priority in sorted(CLASSES, key=lambda name: books.classes[name].used):

            def used(line: TenantLine, priority: PriorityClass = priority) -> int | None:
                return books.tenant(priority, line.tenant).used if line.live else None

            def turn(bucket: Bucket, priority: PriorityClass = priority) -> int | None:
                head = bucket.head(priority)
                return head[0] if head is not None else None

            for line in shape.lines[priority].walk(used):
                for bucket in line.buckets.walk(turn, PATIENCE):
                    if self._may_take(bucket, worker, now, is_held):
                        head = bucket.head(priority)
                        assert head is not None, "a bucket without a head was offered"
                        return bucket, head[1].run, head[1].head()
        return None

    def _pick_overdue(
        self, shape: Shape, worker: LiveWorker, now: Millis, is_held: Held
    ) -> tuple[Bucket, LiveRun, Task] | None:
        best: tuple[Millis, Bucket, LiveRun, Task] | None = None
        for bucket in shape.waiting:
            oldest = self.oldest(bucket)
            if oldest is None or now - oldest[0] < OVERDUE_MS or (best is not None and oldest[0] >= best[0]):
                continue
            if self._may_take(bucket, worker, now, is_held):
                best = (oldest[0], bucket, oldest[1], oldest[2])
        return best[1:] if best is not None else None

    def _may_take(self, bucket: Bucket, worker: LiveWorker, now: Millis, is_held: Held) -> bool:
        demand = bucket.demand
        alone = bool(demand.signature.avoid) and self.is_alone(bucket)
        return not dynamic_reasons(demand, worker, now, alone=alone) and not (
            demand.signature.pools and is_held(bucket)
        )
