"""Who gets what: which buckets suit which shapes, and the next task for a worker or worker for a task.

A task waits in the bucket of its signature. Workers whose queues, tenants, kinds and mentioned properties agree share a
shape, and which shapes suit a bucket is worked out once. So a decision looks at buckets and shapes, never at
tasks times workers (docs/decisions/0002). What is taken and freed is compared last, against one worker.

This is an index: it answers from the state alone and may tidy itself while it is read.
"""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from msgspec import Struct

from rota.core.bounds import OVERDUE_GRANTS, OVERDUE_MS
from rota.core.buckets import Age, Bucket, Flow, Shape, TenantLine, flow_key, place_in_line
from rota.core.demand import Demand, is_silent, score, static_reasons, total_reasons
from rota.core.fits import dynamic_reasons
from rota.core.ids import Millis, WorkerKey
from rota.core.live import LiveRun, LiveWorker
from rota.core.model import Allocation, PriorityClass
from rota.core.order import Books, LazyHeap
from rota.core.records import Task
from rota.core.states import QUEUED

# How many late keys one walk over a tenant's buckets corrects. Beyond it a run may be ahead of another run of the
# same tenant by at most one grant per signature it has waiting; classes and tenants are always exact.
PATIENCE = 8

# The five smallest of a heap are among so many at its beginning.
FEW_AGES = 31

# How many tasks that left a small bucket are remembered before it is tidied.
SPARE_AGES = 64

Held = Callable[[Bucket], bool]
Oldest = tuple[Millis, LiveRun, Task]
BucketOf = Callable[[LiveRun, Task], Bucket]


class Picked(Struct, frozen=True):
    """The task whose turn it is; `overdue` if it came before its turn because it had waited too long."""

    bucket: Bucket
    run: LiveRun
    task: Task
    overdue: bool = False


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
        # Buckets of work that is claimed, of which somebody should be told.
        self.stirred: dict[Bucket, None] = {}
        self.queued = 0
        # Whether anything is paused, so that every bucket has to be asked.
        self.has_pauses = False
        self._number = 0

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
        self.stirred.pop(bucket, None)
        for _, shape in bucket.shapes:
            shape.forget_bucket(bucket)
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

    def forget_tenant(self, priority: PriorityClass, tenant: str) -> None:
        """A tenant has no run of a class any more: no shape needs a place for it."""
        for shape in self.shapes.values():
            shape.forget_tenant(priority, tenant)

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
        if worker.claims:
            shape.claimants[worker.key] = worker
        shape.park(worker)
        self.hungry[worker] = None

    def part(self, worker: LiveWorker) -> None:
        """A worker is forgotten, or about to describe itself anew."""
        shape = worker.shape
        if shape is None:
            return
        shape.unpark(worker)
        shape.claimants.pop(worker.key, None)
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
        self.wake_avoiders()

    def wake_avoiders(self) -> None:
        """Whoever avoids a worker may have nobody else left now: look at them again."""
        for bucket in self.buckets.values():
            if bucket.live and bucket.demand.signature.avoid:
                self.fresh[bucket] = None

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

    def enqueue(self, bucket: Bucket, run: LiveRun, task: Task) -> None:
        """A task begins to wait in its bucket."""
        priority = run.row.priority
        self.books.enter(run.purse)
        flow = bucket.flows.get(run.account)
        if flow is None:
            flow = bucket.flows[run.account] = Flow(run.account)
            self._join_line(bucket, run, flow)
        entry = place_in_line(run, task)
        if flow.gone and entry in flow.gone:
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
        if bucket.demand.pull:
            self.stirred[bucket] = None
        elif bucket.live == 1:
            # A bucket that had waiting tasks before has been looked at since; one more task changes nothing for it.
            self.fresh[bucket] = None

    def _join_line(self, bucket: Bucket, run: LiveRun, flow: Flow) -> None:
        priority = run.row.priority
        line = bucket.lines.get(priority)
        if line is None:
            line = bucket.lines[priority] = LazyHeap(returning=False)
        head = bucket.head(priority)
        used = flow.account.used
        line.push(used, flow)
        if head is not None and used < head[0]:
            # A lighter run joined: the bucket's turn comes sooner than its shapes believe.
            for _, shape in bucket.shapes:
                tenant_line = shape.tenants.get((priority, run.row.tenant))
                if tenant_line is not None:
                    tenant_line.buckets.lower(used, bucket)

    def dequeue(self, bucket: Bucket, run: LiveRun, task: Task) -> None:
        """A task waits no more: granted, cancelled, parked, paused or withdrawn."""
        priority = run.row.priority
        flow = bucket.flows[run.account]
        head = flow.tasks[0]
        if head[3] == task.idx and head[4] is run:
            heappop(flow.tasks)
        else:
            entry = place_in_line(run, task)
            if flow.gone is None:
                flow.gone = {entry}
            else:
                flow.gone.add(entry)
        bucket.left.add((task.eligible_at, run.number, task.idx))
        flow.live -= 1
        self.queued -= 1
        bucket.live -= 1
        bucket.waiting[priority] -= 1
        if flow.live == 0:
            del bucket.flows[run.account]
            bucket.lines[priority].sweep(len(bucket.flows), flow_key)
        if bucket.waiting[priority] == 0:
            for _, shape in bucket.shapes:
                shape.closed(bucket, priority)
        run.purse.leave()

    def _remember_age(self, bucket: Bucket, run: LiveRun, task: Task) -> None:
        before = (task.eligible_at, run.number, task.idx)
        if before in bucket.left:
            bucket.left.discard(before)
            return
        priority = run.row.priority
        ages = bucket.ages.get(priority)
        if ages is None:
            ages = bucket.ages[priority] = []
        if len(ages) > 2 * bucket.waiting[priority] + SPARE_AGES:
            # Whoever left is forgotten now and then, so that the cost of it is shared by those who came.
            kept: list[Age] = []
            for entry in ages:
                if self.is_waiting(bucket, entry):
                    kept.append(entry)
                else:
                    bucket.left.discard((entry[0], entry[3].number, entry[4]))
            ages[:] = kept
            heapify(ages)
        self._number += 1
        heappush(ages, (task.eligible_at, run.row.id, self._number, run, task.idx))

    def is_waiting(self, bucket: Bucket, entry: Age) -> bool:
        """Whether what is remembered of a task's age is still so."""
        eligible_at, _, _, run, idx = entry
        task = run.tasks.get(idx)
        return (
            task is not None
            and task.state is QUEUED
            and task.eligible_at == eligible_at
            and run.is_runnable
            and self.bucket_of(run, task) is bucket
        )

    def oldest_of(self, bucket: Bucket, priority: PriorityClass) -> Oldest | None:
        """The task of one class that has waited longest in a bucket; of those that came together the first by name."""
        ages = bucket.ages.get(priority, ())
        while ages and not self.is_waiting(bucket, ages[0]):
            eligible_at, _, _, run, idx = heappop(ages)
            bucket.left.discard((eligible_at, run.number, idx))
        if not ages:
            return None
        eligible_at, _, _, run, idx = ages[0]
        return eligible_at, run, run.tasks[idx]

    def oldest(self, bucket: Bucket) -> Oldest | None:
        """The task that has waited longest in a bucket."""
        found = [one for priority in bucket.ages if (one := self.oldest_of(bucket, priority)) is not None]
        return min(found, key=lambda one: (one[0], one[1].number)) if found else None

    def oldest_few(self, bucket: Bucket) -> list[tuple[Millis, int, LiveRun, Task]]:
        """A few of those that have waited longest in a bucket, the longest first, each with the order of its coming.

        They are at the beginning of the heaps, so no more is looked at, however many wait.
        """
        self.oldest(bucket)
        first = [entry for ages in bucket.ages.values() for entry in ages[:FEW_AGES]]
        waiting = sorted((at, number, run, idx) for at, _, number, run, idx in first if run.is_runnable)
        return [
            (at, number, run, run.tasks[idx])
            for at, number, run, idx in waiting
            if self.is_waiting(bucket, (at, run.row.id, number, run, idx))
        ]

    # Choosing.

    def is_alone(self, bucket: Bucket, now: Millis) -> bool:
        """Whether the worker to avoid is all this bucket has, so that avoiding it would mean waiting for ever."""
        return not self.has_other(bucket, bucket.demand.signature.avoid, now)

    def has_other(self, bucket: Bucket, avoid: WorkerKey | tuple[()], now: Millis) -> bool:
        """Whether a worker other than that one is there and could run the work, now or when others have ended."""
        for _, shape in bucket.shapes:
            for worker in shape.workers.values():
                row = worker.row
                if worker.key == avoid or not worker.present or row.draining or row.quarantined_until > now:
                    continue
                if is_silent(bucket.demand, worker.seen_at, now):
                    continue
                if not total_reasons(bucket.demand, worker.totals):
                    return True
        return False

    def alone_at(self, bucket: Bucket) -> Millis:
        """When the worker to avoid would be all that is left, if none of the others is heard from again."""
        demand = bucket.demand
        others = [
            worker.seen_at
            for _, shape in bucket.shapes
            for worker in shape.workers.values()
            if worker.present and worker.key != demand.signature.avoid
        ]
        return max(others) + demand.worker_timeout_ms + 1 if others and demand.worker_timeout_ms else 0

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
        alone = bool(bucket.demand.signature.avoid) and self.is_alone(bucket, now)
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

    def pick_only(self, bucket: Bucket, worker: LiveWorker) -> Picked | None:
        """The next task of a bucket that has its worker's shape to itself, if fair order is all there is to ask."""
        shape = worker.shape
        if shape is None or len(shape.waiting) > 1 or shape.grants >= self._overdue_after():
            return None
        return self._pick_first(bucket)

    def _pick_first(self, bucket: Bucket) -> Picked | None:
        for priority in self.books.order():
            if bucket.waiting[priority]:
                return self._picked(bucket, priority)
        return None

    def _overdue_after(self) -> int:
        """Grants of one shape before it looks for overdue tasks; a task may suit several shapes."""
        return max(1, OVERDUE_GRANTS // len(self.shapes) - 1)

    def pick_task(self, worker: LiveWorker, now: Millis, is_held: Held) -> Picked | None:
        """The task whose turn it is on this worker: by class, tenant, run, priority inside the run, age.

        Every so often the oldest overdue task goes first, whatever the shares say.
        """
        shape = worker.shape
        if shape is None or not shape.waiting:
            return None
        overdue = self.pick_overdue(shape, worker, now, is_held)
        if overdue is not None:
            return overdue
        if len(shape.waiting) == 1:
            only = next(iter(shape.waiting))
            return self._pick_first(only) if self._may_take(only, worker, now, is_held) else None
        books = self.books
        for priority in books.order():

            def used(line: TenantLine, priority: PriorityClass = priority) -> int | None:
                return books.tenant(priority, line.tenant).used if line.live else None

            def turn(bucket: Bucket, priority: PriorityClass = priority) -> int | None:
                head = bucket.head(priority)
                return head[0] if head is not None else None

            first = shape.lines[priority].head(used)
            if first is None:
                continue
            found = first[1].buckets.head(turn, PATIENCE)
            if found is not None and self._may_take(found[1], worker, now, is_held):
                return self._picked(found[1], priority)
            for line in shape.lines[priority].walk(used):
                for bucket in line.buckets.walk(turn, PATIENCE):
                    if self._may_take(bucket, worker, now, is_held):
                        return self._picked(bucket, priority)
        return None

    @staticmethod
    def _picked(bucket: Bucket, priority: PriorityClass) -> Picked:
        head = bucket.head(priority)
        assert head is not None, "a bucket without a head was offered"
        return Picked(bucket, *head[1].head())

    def pick_overdue(self, shape: Shape, worker: LiveWorker, now: Millis, is_held: Held) -> Picked | None:
        """The oldest overdue task, if it is time for one."""
        if shape.grants < self._overdue_after():
            return None
        overdue = self._pick_overdue(shape, worker, now, is_held)
        if overdue is None:
            shape.grants = 0
        return overdue

    def _pick_overdue(self, shape: Shape, worker: LiveWorker, now: Millis, is_held: Held) -> Picked | None:
        best: tuple[Millis, Bucket, LiveRun, Task] | None = None
        for bucket in shape.waiting:
            oldest = self.oldest(bucket)
            if oldest is None or now - oldest[0] < OVERDUE_MS or (best is not None and oldest[0] >= best[0]):
                continue
            if self._may_take(bucket, worker, now, is_held):
                best = (oldest[0], bucket, oldest[1], oldest[2])
        return Picked(best[1], best[2], best[3], overdue=True) if best is not None else None

    def may_take(self, bucket: Bucket, worker: LiveWorker, now: Millis) -> bool:
        """Whether a worker that suits a bucket may have a task of it at the moment."""
        demand = bucket.demand
        alone = bool(demand.signature.avoid) and self.is_alone(bucket, now)
        return not dynamic_reasons(demand, worker, now, alone=alone)

    def _may_take(self, bucket: Bucket, worker: LiveWorker, now: Millis, is_held: Held) -> bool:
        return self.may_take(bucket, worker, now) and not (self.may_be_held(bucket) and is_held(bucket))

    def may_be_held(self, bucket: Bucket) -> bool:
        """Whether it has to be asked at all what holds a bucket back."""
        return self.has_pauses or bool(bucket.demand.signature.pools)
