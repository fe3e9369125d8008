"""The coordinator's memory: all live records of its epoch and the indexes over them.

Only `evolve` changes it. `decide` reads it. It is dropped and loaded again whenever the coordinator cannot be sure that
memory and disk agree.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heappush

from rota.core.bounds import BEAT_MS_LEAST, TASK_RETRIES, TimeLimits
from rota.core.buckets import Bucket
from rota.core.changes import Change
from rota.core.cycle import CycleSettings
from rota.core.demand import Demand, Signature, read_demand
from rota.core.errors import Refused
from rota.core.graph import LiveGraph, graph_pool
from rota.core.ids import CommandId, Epoch, Fence, GraphKey, Millis, RunId, RunKey, ScheduleKey, WorkerKey, make_fence
from rota.core.limits import PoolKey, Usage, next_token_at, pool_reasons
from rota.core.live import Lease, LiveRun, LiveWorker
from rota.core.match import Index
from rota.core.model import (
    AGENT_PROPERTIES,
    AGENTS_QUEUE,
    DEFAULT_QUEUE_PROPERTIES,
    QUERIES_QUEUE,
    QUERY_PROPERTIES,
    Allocation,
    Graph,
    Pool,
    PropertyRule,
    Queue,
    Tenant,
    Unservable,
)
from rota.core.order import Books
from rota.core.pauses import pause_reasons, pauses_of
from rota.core.prepared_graph import PreparedGraph
from rota.core.reasons import Reasons
from rota.core.records import Audit, Key, Pause, Receipt, Record, Run, Schedule, Task, Worker, Workflow
from rota.core.relations import Relations
from rota.core.states import MOVES, QUEUED, TaskState
from rota.core.wakes import WakeMemory

DEFAULT_QUEUE = "default"
UNREADABLE = "a readable requirement"
SILENCE_MS = Queue(tenant="", name="").worker_timeout_ms
# Timers of which the earliest counts, because whoever looks sets the next one; of the others the latest counts.
_EARLIEST = frozenset({"schedule", "worker", "rate", "alone", "receipts", "starved", "sweep", "step"})
# What is counted beside moves of tasks.
DECIDED = ("create_run", "missed_slot", "run_error", "starved", "wake", "agent_lost", "dispatch_lost", "orphan_reaped")
# Why no registered worker could ever run something, by the codes of the reasons.
UNSERVABLE = ("queue.gone", "worker.none_match", "worker.none_registered")
# How often tasks moved, by the name of their graph, from where and to where.
GraphMoves = dict[tuple[str, TaskState, TaskState], int]
# How many entries of timers that were dropped or moved may lie in the heap, beside as many as there are timers.
TIMERS_SLACK = 64


class Touched:
    """What the open batch has changed: whose image to write, what to drop, what to tell."""

    __slots__ = ("archives", "audits", "drops", "puts", "revives", "runs", "stories", "tasks")

    def __init__(self) -> None:
        self.runs: dict[RunKey, LiveRun] = {}
        self.tasks: dict[int, Task] = {}
        self.puts: dict[Key, Record] = {}
        self.drops: dict[Key, None] = {}
        self.stories: dict[RunKey, list[Change]] = {}
        self.archives: dict[RunKey, None] = {}
        self.revives: list[tuple[str, RunId, Millis]] = []
        self.audits: list[Audit] = []


class State(Relations):
    """Everything the coordinator knows."""

    def __init__(self, epoch: Epoch, limits: TimeLimits, now: Millis) -> None:
        self.epoch = epoch
        self.limits = limits
        self.task_retries = TASK_RETRIES
        # How sessions are told of work, and which of it climbs the ladder.
        self.wake_settings = CycleSettings(starve_ms=limits.starve_ms)
        self.born_at = now
        self.lease_number = 0
        # Time during which the coordinator did not run; deadlines that punish are kept in now - stalled_ms.
        self.stalled_ms = 0
        self.uses = 0
        # From when on some queue may have stopped giving work to a silent worker: the least patient one decides.
        self.silence_ms = SILENCE_MS
        # The longest time for which a queue keeps its ended runs.
        self.retain_ms_most: Millis = 0
        self.graphs: dict[GraphKey, LiveGraph] = {}
        # The large graph of the command that is being decided, if it was prepared.
        self.prepared: PreparedGraph | None = None
        self.runs: dict[RunKey, LiveRun] = {}
        self.run_number = 0
        self.by_command: dict[tuple[str, CommandId], RunKey] = {}
        # Runs that have not ended, by tenant and key: whoever submits another with that key joins them.
        self.merging: dict[tuple[str, str], LiveRun] = {}
        self.workers: dict[WorkerKey, LiveWorker] = {}
        self.leases: dict[Fence, Lease] = {}
        self.revoked: dict[Fence, Lease] = {}
        self.queues: dict[tuple[str, str], Queue] = {}
        self.pools: dict[PoolKey, Pool] = {}
        self.usage: dict[PoolKey, Usage] = {}
        self.tenants: dict[str, Tenant] = {}
        self.schedules: dict[ScheduleKey, Schedule] = {}
        self.workflows: dict[tuple[str, str], Workflow] = {}
        # By tenant and scope; those that were lifted, too.
        self.pauses: dict[tuple[str, str], Pause] = {}
        self.wakes = WakeMemory()
        # Oldest first.
        self.receipts: OrderedDict[tuple[str, CommandId], Receipt] = OrderedDict()
        self.active_runs: dict[tuple[str, str], int] = {}
        self.waiting_runs: dict[tuple[str, str], dict[RunKey, None]] = {}
        self.scheduled_runs: dict[ScheduleKey, int] = {}
        # Of graphs whose runs depend on the past, the run that is about the latest moment.
        self.lineages: dict[tuple[str, str], LiveRun] = {}
        self.parts: dict[RunKey, dict[RunKey, LiveRun]] = {}
        self.books = Books()
        self.index = Index(self.books, self.bucket_of)
        self.consumable: dict[str, int] = {}
        self.pool_waiters: dict[PoolKey, dict[Bucket, None]] = {}
        # How often tasks made each move, and how often started work was interrupted: for whoever measures.
        # `moved` is the same by graph, since the loop last took it.
        self.moved: GraphMoves = {}
        self.moves: dict[tuple[TaskState, TaskState], int] = dict.fromkeys(MOVES, 0)
        self.interruptions = 0
        # And of what else was decided, how much of each sort.
        self.decided: dict[str, int] = dict.fromkeys(DECIDED, 0)
        # How often a task was queued that no registered worker could run, by the code of the reason.
        self.undispatchable: dict[str, int] = dict.fromkeys(UNSERVABLE, 0)
        self.touched = Touched()
        # Timers: (when, order of arrival, kind, key). An entry whose cause has passed is ignored when it comes up.
        self.timers: list[tuple[Millis, int, str, tuple[object, ...]]] = []
        self.timer_number = 0
        self.armed: dict[tuple[object, ...], Millis] = {}
        # Follow-up work, in the order in which it arose.
        self.continues: dict[RunKey, None] = {}
        self.starts: dict[tuple[str, str], None] = {}
        # What is left of a round of the starvation sweep.
        self.starving: list[tuple[str, RunId, int]] = []
        self._count_consumable(DEFAULT_QUEUE_PROPERTIES)

    # Look-ups.

    def next_fence(self) -> Fence:
        """The fence the next grant will carry."""
        return make_fence(self.epoch, self.lease_number + 1)

    def queue(self, tenant: str, name: str) -> Queue | None:
        """A tenant's queue; the default one exists without being defined, and so do those of agents and of queries."""
        queue = self.queues.get((tenant, name))
        if queue is None and name == DEFAULT_QUEUE:
            return Queue(tenant=tenant, name=name, properties=DEFAULT_QUEUE_PROPERTIES)
        if queue is None and name == AGENTS_QUEUE:
            return Queue(tenant=tenant, name=name, properties=AGENT_PROPERTIES, pull=True)
        if queue is None and name == QUERIES_QUEUE:
            return Queue(
                tenant=tenant,
                name=name,
                properties=QUERY_PROPERTIES,
                allocation=Allocation.NEAREST_INPUTS,
                unservable=Unservable.FAIL,
            )
        return queue

    def queue_of(self, run: LiveRun, task: Task) -> Queue:
        """The queue of a task. One that is gone is taken for one of which nothing was said."""
        name = run.graph.spec(task.idx).queue
        return self.queue(run.row.tenant, name) or Queue(tenant=run.row.tenant, name=name)

    def retain_ms(self, run: LiveRun) -> Millis:
        """How long a run stays alive after its end: as long as its queues say, or as all do where one says nothing."""
        usual_ms = self.limits.retain_ended_ms
        if not self.retain_ms_most:
            return usual_ms
        names = dict.fromkeys(spec.queue for spec in run.graph.specs)
        found = (self.queues.get((run.row.tenant, name)) for name in names)
        return max(usual_ms if each is None else each.retain_completed_for_ms or usual_ms for each in found)

    def silence_of(self, worker: LiveWorker) -> Millis:
        """After how long a silence a worker is struck off. Who claims its work has no stream: only its beat tells."""
        capacity = worker.row.capacity
        if not capacity.pull:
            return self.limits.forget_worker_ms
        return capacity.silence_ms or self.limits.lease_ms

    @property
    def beat_ms(self) -> Millis:
        """How often workers speak: three times within the patience of the least patient queue, and not less often."""
        return min(self.limits.beat_ms, max(self.silence_ms // 3, BEAT_MS_LEAST))

    def bucket_of(self, run: LiveRun, task: Task) -> Bucket:
        """Where a task waits: the bucket of its node, unless the task has needs of its own."""
        graph = run.graph
        node = task.idx if graph.node_of is None else graph.node_of[task.idx]
        if task.requires is None and not task.avoid:
            bucket = graph.buckets[node]
            if bucket is None:
                bucket = graph.buckets[node] = self.bucket(graph.signature(node))
                bucket.users += 1
            return bucket
        plain = graph.signature(node)
        requires = plain.requires if task.requires is None else task.requires
        avoid = (task.avoid_tenant, task.avoid) if task.avoid else ()
        return self.bucket(Signature(plain.tenant, plain.queue, plain.kind, requires, plain.pools, avoid))

    def bucket(self, signature: Signature) -> Bucket:
        """The bucket of a signature, made on first use."""
        bucket = self.index.buckets.get(signature)
        return bucket if bucket is not None else self.index.add_bucket(self.demand(signature))

    def demand(self, signature: Signature) -> Demand:
        """A signature as its queue reads it. A queue that is gone is replaced by one that no worker can serve."""
        queue = self.queue(signature.tenant, signature.queue)
        if queue is not None:
            try:
                return read_demand(signature, queue)
            except Refused:
                # The queue's rules changed under a task that was accepted: it can be compared with nothing now.
                return Demand(signature, exact=signature.requires, minimum=((UNREADABLE, 1),), pull=queue.pull)
        return Demand(signature, minimum=((UNREADABLE, 1),))

    def is_held(self, row: Run) -> bool:
        """Whether a run's workflow is paused, or a run that it is part of."""
        workflow = self.workflows.get((row.tenant, row.name)) if row.version else None
        if workflow is not None and workflow.paused:
            return True
        return bool(row.parent) and self.paused_above(row) is not None

    def schedules_of(self, tenant: str, workflow: str) -> list[Schedule]:
        """The calendar of a workflow and its backfills."""
        return [
            schedule
            for schedule in self.schedules.values()
            if schedule.version
            and schedule.tenant == tenant
            and self.graphs[(tenant, schedule.graph)].graph.name == workflow
        ]

    def hold_reasons(self, bucket: Bucket, now: Millis) -> Reasons:
        """What keeps everybody from a bucket's tasks: pauses and pools. Nothing means that nothing does."""
        paused = pause_reasons(self.pauses, bucket.demand.signature) if self.index.has_pauses else ()
        return (*paused, *self.pool_reasons(bucket, now))

    def waits_since(self, bucket: Bucket, eligible_at: Millis) -> Millis:
        """Since when a task could have had a worker: the time during which it was paused does not count."""
        if not self.pauses:
            return eligible_at
        return max([eligible_at, *(pause.at for pause in pauses_of(self.pauses, bucket.demand.signature))])

    def claimable_since(self, bucket: Bucket, run: LiveRun, idx: int, eligible_at: Millis) -> Millis:
        """Since when a task could have been claimed: not while it was paused, nor while a session had it."""
        return max(self.waits_since(bucket, eligible_at), run.returned.get(idx, 0))

    def unservable_code(self, bucket: Bucket) -> str:
        """The code of the reason why no registered worker could ever run a bucket's tasks; empty if one could."""
        if self.index.is_servable(bucket):
            return ""
        signature = bucket.demand.signature
        if self.queue(signature.tenant, signature.queue) is None:
            return "queue.gone"
        return "worker.none_match" if self.workers else "worker.none_registered"

    def pool_reasons(self, bucket: Bucket, now: Millis) -> Reasons:
        """Why pools hold a bucket back; nothing means they do not."""
        tenant = bucket.demand.signature.tenant
        found: Reasons = ()
        for need in bucket.demand.signature.pools:
            key = (tenant, need.pool)
            found += pool_reasons(need, self.pools.get(key), self.usage.get(key), now)
        return found

    def pool_opens_at(self, bucket: Bucket, now: Millis) -> Millis:
        """When the rates of a bucket's pools will allow a start; `now` if no rate holds it."""
        tenant = bucket.demand.signature.tenant
        at = now
        for need in bucket.demand.signature.pools:
            pool = self.pools.get((tenant, need.pool))
            usage = self.usage.get((tenant, need.pool))
            if pool is not None and usage is not None and pool.starts_per_minute:
                at = max(at, next_token_at(pool, usage, now))
        return at

    # Timers.

    def set_timer(self, at: Millis, kind: str, *key: object) -> None:
        """Look at something again at `at`; one timer for each thing."""
        armed = self.armed.get((kind, *key))
        if armed == at or (armed is not None and armed < at and kind in _EARLIEST):
            return
        self.armed[(kind, *key)] = at
        self.timer_number += 1
        heappush(self.timers, (at, self.timer_number, kind, key))
        self._tidy_timers()

    def drop_timer(self, kind: str, *key: object) -> None:
        """What was to be looked at has ended."""
        if self.armed.pop((kind, *key), None) is not None:
            self._tidy_timers()

    def _tidy_timers(self) -> None:
        """Take entries that will be ignored off the heap, once they are more than half of it."""
        if len(self.timers) > 2 * len(self.armed) + TIMERS_SLACK:
            armed = self.armed
            self.timers = [entry for entry in self.timers if armed.get((entry[2], *entry[3])) == entry[0]]
            heapify(self.timers)

    def due_timer(self, now: Millis) -> tuple[str, tuple[object, ...]] | None:
        """The next timer that has come up, taken off the heap."""
        while self.timers and self.timers[0][0] <= now:
            at, _, kind, key = heappop(self.timers)
            if self.armed.get((kind, *key)) == at:
                del self.armed[(kind, *key)]
                return kind, key
        return None

    # Definitions that change how others are read.

    def _count_consumable(self, properties: tuple[tuple[str, PropertyRule], ...]) -> None:
        for name, rule in properties:
            if rule is PropertyRule.MINIMUM:
                self.consumable[name] = self.consumable.get(name, 0) + 1

    def put_queue(self, queue: Queue) -> None:
        """A queue's rules changed: read every waiting task and every worker again."""
        self.queues[(queue.tenant, queue.name)] = queue
        self.consumable = {}
        self._count_consumable(DEFAULT_QUEUE_PROPERTIES)
        # The default queue exists without being defined, so its patience always counts.
        self.silence_ms = SILENCE_MS
        self.retain_ms_most = max(each.retain_completed_for_ms for each in self.queues.values())
        for each in self.queues.values():
            self._count_consumable(each.properties)
            if each.worker_timeout_ms:
                self.silence_ms = min(self.silence_ms, each.worker_timeout_ms)
        self.reindex()

    def put_pool(self, pool: Pool, now: Millis) -> None:
        """A pool is defined or changed; whoever waited for it is looked at again."""
        key = (pool.tenant, pool.name)
        self.pools[key] = pool
        self.usage.setdefault(key, Usage(now))
        for bucket in self.pool_waiters.pop(key, {}):
            self.open_bucket(bucket, now)

    def open_bucket(self, bucket: Bucket, now: Millis) -> None:
        """A pool that held a bucket back may have room again."""
        bucket.opened_at = now
        self.index.fresh[bucket] = None

    def put_graph(self, graph: LiveGraph, now: Millis) -> None:
        """A graph becomes usable; its own limit is a pool like any other."""
        self.graphs[(graph.tenant, graph.digest)] = graph
        if graph.graph.max_active_tasks:
            self.cap_tasks(graph, now)

    def prepared_graph(self, tenant: str, graph: Graph) -> PreparedGraph | None:
        """What was prepared of this very graph, if anything was."""
        found = self.prepared
        return found if found is not None and found.live.graph is graph and found.live.tenant == tenant else None

    def put_pause(self, pause: Pause) -> None:
        """Work of a scope is paused or resumed; whatever waited for that is looked at again."""
        self.pauses[(pause.tenant, pause.scope)] = pause
        self.index.has_pauses = any(each.paused for each in self.pauses.values())
        if not pause.paused:
            for item in [item for item in self.wakes.offered if item[0] == pause.tenant]:
                self.wakes.forget_item(item)
            for bucket in self.index.buckets.values():
                if bucket.live and bucket.demand.signature.tenant == pause.tenant:
                    self.index.fresh[bucket] = None

    def put_tenant(self, tenant: Tenant) -> None:
        """Remember a tenant's share, and charge by it from now on."""
        self.tenants[tenant.tenant] = tenant
        self.books.weigh(tenant.tenant, tenant.weight)

    def cap_tasks(self, graph: LiveGraph, now: Millis) -> None:
        """A graph's limit on tasks holds for all versions of its name that have one."""
        name = graph_pool(graph.graph.name)
        self.put_pool(Pool(tenant=graph.tenant, name=name, slots=graph.graph.max_active_tasks), now)

    def reindex(self) -> None:
        """Build the matching index anew from the records: after loading, and when a queue's rules change."""
        self.index = Index(self.books, self.bucket_of)
        self.index.has_pauses = any(pause.paused for pause in self.pauses.values())
        self.pool_waiters = {}
        for graph in (*self.graphs.values(), *(run.graph for run in self.runs.values())):
            graph.buckets = [None] * len(graph.specs)
        for account in (*self.books.classes.values(), *self.books.tenants.values()):
            account.waiting = 0
        for run in self.runs.values():
            run.account.waiting = 0
        for lease in (*self.leases.values(), *self.revoked.values()):
            lease.bucket = self.bucket_of(lease.run, lease.task)
        for worker in self.workers.values():
            worker.shape = worker.vector = None
            worker.describe(self.consumable)
            if not worker.row.gone_at:
                self.index.join(worker)
        for run in self.runs.values():
            for task in run.tasks.values():
                if task.state is QUEUED and run.is_runnable:
                    self.index.enqueue(self.bucket_of(run, task), run, task)

    def offer(self, run: LiveRun, task: Task) -> None:
        """Put a queued task of a runnable run where workers are found for it. Wakes for its run count no longer."""
        if task.state is QUEUED and run.is_runnable:
            bucket = self.bucket_of(run, task)
            if bucket.demand.pull:
                self.wakes.forget_item(run.key)
            self.index.enqueue(bucket, run, task)
            code = self.unservable_code(bucket)
            if code:
                self.undispatchable[code] += 1
                self.watch_unserved(bucket, run, task)

    def watch_unserved(self, bucket: Bucket, run: LiveRun, task: Task) -> None:
        """Look at a task that no worker could run when its queue's patience is over, if it is to fail then."""
        queue = self.queues.get((run.row.tenant, bucket.demand.signature.queue))
        if queue is not None and queue.unservable is Unservable.FAIL and not self.index.is_servable(bucket):
            due_at = self.waits_since(bucket, task.eligible_at) + queue.unservable_ms
            self.set_timer(due_at, "starved", *run.key, task.idx)

    def withdraw(self, run: LiveRun, task: Task) -> None:
        """Take a queued task of a runnable run back out."""
        if task.state is QUEUED and run.is_runnable:
            bucket = self.bucket_of(run, task)
            self.index.dequeue(bucket, run, task)
            if not bucket.live and not bucket.users:
                self.forget_bucket(bucket)

    def forget_bucket(self, bucket: Bucket) -> None:
        """Nobody waits in a bucket and no graph uses it: it goes, from wherever it waited itself."""
        self.index.drop_bucket(bucket)
        signature = bucket.demand.signature
        for need in signature.pools:
            waiters = self.pool_waiters.get((signature.tenant, need.pool))
            if waiters is not None and bucket in waiters:
                del waiters[bucket]
                if not waiters:
                    del self.pool_waiters[(signature.tenant, need.pool)]
        self.drop_timer("rate", signature)

    def forget_pool(self, key: PoolKey) -> None:
        """A pool is gone; what it counted goes with the last lease that uses it."""
        self.pools.pop(key, None)
        self.forget_usage(key)

    def forget_usage(self, key: PoolKey) -> None:
        """Drop the account of a pool that is gone and not used any more."""
        usage = self.usage.get(key)
        if usage is not None and not usage.taken and key not in self.pools:
            del self.usage[key]

    def make_run(self, row: Run) -> LiveRun:
        """A run in memory, with the accounts that it is charged on. It is not listed yet."""
        graph = self.graphs[(row.tenant, row.graph)]
        graph.users += 1
        self.run_number += 1
        return LiveRun(row, graph, self.books.purse(row.priority, row.tenant, row.share), self.run_number)

    def list_run(self, run: LiveRun) -> None:
        """Have a run found by its id, by its command, and by its neighbours in time."""
        row = run.row
        self.runs[run.key] = run
        run.is_held = self.is_held(row)
        self.join_lineage(run)
        if row.command_id:
            self.by_command[(row.tenant, row.command_id)] = run.key

    def take_merge(self, run: LiveRun) -> None:
        """A run that has not ended may be joined by its key. One that was opened again gives up a key that is taken."""
        row = run.row
        if row.merge and self.merging.setdefault((row.tenant, row.merge), run) is not run:
            row.merge = ""

    def leave_merge(self, run: LiveRun) -> None:
        """A run has ended: whoever submits its key now makes another."""
        if run.row.merge:
            del self.merging[(run.row.tenant, run.row.merge)]

    def forget_run(self, run: LiveRun) -> None:
        """A run moved to history: its tenant's accounts go with the last run of its class."""
        row = run.row
        if row.parent:
            self.leave_parent(run)
        if self.books.leave(row.priority, row.tenant, row.share):
            self.index.forget_tenant(row.priority, row.tenant)

    def add_worker(self, row: Worker, now: Millis) -> LiveWorker:
        """Make room for a worker that registered."""
        worker = LiveWorker(row, self.consumable, now)
        self.workers[worker.key] = worker
        if not row.gone_at:
            self.index.join(worker)
        return worker
