"""A world of one coordinator: the real core, driven by hand with virtual time, for tests to be written with.

It does what the control loop does around the core and nothing else: decides, evolves, follows up, places, fires timers.
Nothing here takes a decision. Time starts well after 0, because a stamp of 0 means "never".
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from rota.core import commands as cm
from rota.core.bounds import TimeLimits
from rota.core.changes import Change, LeaseGranted
from rota.core.decide import Decision, decide
from rota.core.errors import Refused
from rota.core.evolve import evolve
from rota.core.graph import LiveGraph
from rota.core.images import all_records
from rota.core.live import LiveRun, LiveWorker
from rota.core.load import load
from rota.core.model import Capacity, Graph, Pool, PriorityClass, Queue, TaskSpec
from rota.core.place import place
from rota.core.plan import Cascade
from rota.core.presence import heard_from, renew_all, renew_one, went_away
from rota.core.rearm import rearm, take_starving
from rota.core.records import Key, Record, Task, key_of
from rota.core.state import State
from rota.core.states import NONE, QUEUED, RunState, TaskState

BEGIN = 1_000_000_000
TENANT = "t"
INCARNATION = "i1"

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def task(id: str, *upstream: str, **fields: object) -> TaskSpec:
    """A task after its upstreams."""
    return TaskSpec(id=id, upstream=upstream, **fields)


def graph(*tasks: TaskSpec, name: str = "g", **fields: object) -> Graph:
    """A graph of these tasks."""
    return Graph(name=name, tasks=tasks, **fields)


class World:
    """A coordinator's memory, its clock and the workers that speak to it."""

    def __init__(self, *, now: int = BEGIN, epoch: int = 1, limits: TimeLimits | None = None) -> None:
        self.now = now
        self.state = State(epoch, limits or TimeLimits(), now)
        self.changes: list[Change] = []
        self.beating: dict[tuple[str, str], None] = {}
        self.numbered = 0
        self.beat_at = now

    # Commands.

    def do(self, command: cm.Command) -> Decision:
        """Decide and evolve; what follows is left for `turn`."""
        decision = decide(self.state, command, self.now)
        for change in decision.changes:
            evolve(self.state, change)
        self.changes.extend(decision.changes)
        return decision

    def refusal(self, command: cm.Command) -> Refused:
        """The refusal of a command that must not be accepted and must not leave a trace."""
        before = image(self.state)
        with pytest.raises(Refused) as caught:
            decide(self.state, command, self.now)
        assert image(self.state) == before, "a refused command left something behind"
        return caught.value

    def next_id(self) -> str:
        """A command id that was not used before."""
        self.numbered += 1
        return f"c{self.numbered}"

    def submit(
        self,
        what: Graph | TaskSpec,
        run: str = "r",
        *,
        tenant: str = TENANT,
        priority: PriorityClass = PriorityClass.NORMAL,
        command_id: str = "",
        **fields: object,
    ) -> LiveRun:
        """Submit a run; a single task is a graph of its own."""
        whole = what if isinstance(what, Graph) else graph(what, name=what.id)
        command_id = command_id or self.next_id()
        self.do(cm.SubmitRun(tenant=tenant, command_id=command_id, run=run, graph=whole, priority=priority, **fields))
        return self.state.runs[(tenant, run)]

    def client(self, kind: type[cm.ClientCommand], *, tenant: str = TENANT, **fields: object) -> Decision:
        """A client's command under a fresh id."""
        return self.do(self.command(kind, tenant=tenant, **fields))

    def command(self, kind: type[cm.ClientCommand], *, tenant: str = TENANT, **fields: object) -> cm.ClientCommand:
        """The same, not yet carried out."""
        return kind(tenant=tenant, command_id=self.next_id(), **fields)

    def queue(self, name: str = "default", *, tenant: str = TENANT, **fields: object) -> None:
        """Define a queue."""
        queue = Queue(tenant=tenant, name=name, **fields)
        self.client(cm.PutQueue, tenant=tenant, queue=queue)

    def pool(self, name: str = "p", *, tenant: str = TENANT, **fields: int) -> None:
        """Define a pool."""
        self.client(cm.PutPool, tenant=tenant, pool=Pool(tenant=tenant, name=name, **fields))

    # Workers.

    def worker(
        self, name: str = "w", slots: int = 1, *, incarnation: str = INCARNATION, tenant: str = TENANT, **fields: object
    ) -> LiveWorker:
        """Register a worker that goes on beating."""
        capacity = Capacity(slots=slots, **fields)
        self.do(cm.RegisterWorker(tenant=tenant, worker=name, incarnation=incarnation, capacity=capacity))
        worker = self.state.workers[(tenant, name)]
        heard_from(self.state, worker, self.now)
        self.beating[worker.key] = None
        return worker

    def silence(self, name: str = "w", *, tenant: str = TENANT) -> None:
        """The worker stops beating."""
        self.beating.pop((tenant, name), None)

    def hear(self, name: str = "w", *, tenant: str = TENANT) -> None:
        """The worker speaks: it is present and its leases are renewed."""
        worker = self.state.workers[(tenant, name)]
        heard_from(self.state, worker, self.now)
        renew_all(self.state, worker, self.now)

    def disconnect(self, name: str = "w", *, tenant: str = TENANT, hung_up: bool = True) -> None:
        """The worker's stream is gone: it hung up, or we lost sight of it."""
        self.silence(name, tenant=tenant)
        went_away(self.state, self.state.workers[(tenant, name)], self.now, hung_up=hung_up)

    # What follows.

    def follow_up(self) -> None:
        """Start runs and go on with long cascades until nothing is left."""
        state = self.state
        while state.starts or state.continues:
            if state.starts:
                tenant, name = next(iter(state.starts))
                if not self.do(cm.StartRuns(tenant=tenant, name=name)).changes:
                    state.starts.pop((tenant, name), None)
            else:
                tenant, name = next(iter(state.continues))
                if not self.do(cm.ContinueRun(tenant=tenant, run=name)).changes:
                    state.continues.pop((tenant, name), None)

    def place_one(self) -> LeaseGranted | None:
        """The next grant, if any; tasks that have to wait once more are sent back on the way."""
        while placed := place(self.state, self.now):
            for change in placed:
                evolve(self.state, change)
            self.changes += placed
            if isinstance(placed[0], LeaseGranted):
                return placed[0]
            self.follow_up()
        return None

    def place(self) -> list[LeaseGranted]:
        """Every grant that can be made now."""
        granted: list[LeaseGranted] = []
        while (one := self.place_one()) is not None:
            granted.append(one)
        return granted

    def turn(self) -> list[LeaseGranted]:
        """Follow up, then place."""
        self.follow_up()
        return self.place()

    # Attempts.

    def report(self, granted: LeaseGranted, outcome: cm.Outcome, **fields: object) -> str:
        """The holder's word on its attempt; the answer is the judgement."""
        told: dict[str, object] = {
            "tenant": granted.tenant,
            "run": granted.run,
            "task": granted.task,
            "worker_tenant": granted.worker_tenant,
            "worker": granted.worker,
            "incarnation": granted.incarnation,
            "fence": granted.fence,
            "outcome": outcome,
        }
        return self.do(cm.Report(**{**told, **fields})).answer

    def start(self, granted: LeaseGranted) -> str:
        """The attempt started."""
        return self.report(granted, cm.Outcome.STARTED)

    def succeed(self, granted: LeaseGranted, **fields: object) -> str:
        """The attempt succeeded."""
        return self.report(granted, cm.Outcome.SUCCESS, **fields)

    def fail(self, granted: LeaseGranted, **fields: object) -> str:
        """The attempt failed."""
        return self.report(granted, cm.Outcome.FAILED, **fields)

    def interrupt(self, granted: LeaseGranted, cause: str = "its worker was lost") -> None:
        """The lease ends without an outcome."""
        self.do(cm.ReturnLease(tenant=granted.tenant, fence=granted.fence, cause=cause))

    # Time.

    def advance(self, ms: int) -> None:
        """Let time pass: beats, timers and what follows, each at its own instant. Nothing is placed."""
        end = self.now + ms
        while True:
            timer = self.state.timers[0][0] if self.state.timers else end + 1
            at = max(self.now, min(timer, self.beat_at))
            if at > end:
                break
            self.now = at
            if at >= self.beat_at:
                self._beat()
                self.beat_at = at + self.state.limits.beat_ms
            self.fire_due()
        self.now = end

    def _beat(self) -> None:
        for tenant, name in list(self.beating):
            if (tenant, name) in self.state.workers:
                self.hear(name, tenant=tenant)

    def fire_due(self) -> None:
        """Every timer that has come up."""
        while (timer := self.state.due_timer(self.now)) is not None:
            self.fire(*timer)
            self.follow_up()

    def fire(self, kind: str, key: tuple[object, ...]) -> None:
        """One timer, with what the loop does about it."""
        decision = self.do(cm.Tick(tenant="", kind=kind, key=key))
        rearm(self.state, kind, key, decision.detail, self.now)

    def sweep(self) -> None:
        """One cycle of the starvation ladder."""
        found = self.do(cm.Tick(tenant="", kind="sweep", key=())).detail
        assert isinstance(found, list), "a sweep lists the tasks it found"
        for key in take_starving(self.state, found):
            self.do(cm.Tick(tenant="", kind="starved", key=key))

    def renew(self, granted: LeaseGranted, lease_ms: int) -> None:
        """A pull worker renews its lease."""
        decision = self.do(
            cm.RenewLease(
                tenant=granted.worker_tenant,
                worker=granted.worker,
                incarnation=granted.incarnation,
                fence=granted.fence,
                lease_ms=lease_ms,
            )
        )
        fence, until = decision.detail
        renew_one(self.state, fence, until, self.now)

    # Looking.

    def run(self, run: str = "r", *, tenant: str = TENANT) -> LiveRun:
        """A live run."""
        return self.state.runs[(tenant, run)]

    def result(self, run: str = "r", *, tenant: str = TENANT) -> RunState:
        """Where a run stands."""
        return self.run(run, tenant=tenant).row.state

    def task(self, name: str, run: str = "r", *, tenant: str = TENANT) -> Task:
        """A task of a run by its name; one that was never touched is `none`."""
        live = self.run(run, tenant=tenant)
        for idx in range(live.graph.total):
            if task_name(live.graph, idx) == name:
                return live.tasks.get(idx) or Task(tenant, run, idx)
        raise AssertionError(f"run {run} has no task {name}")

    def states(self, run: str = "r", *, tenant: str = TENANT) -> dict[str, str]:
        """All tasks of a run by name."""
        live = self.run(run, tenant=tenant)
        return {task_name(live.graph, idx): state.value for idx, state in task_states(live).items()}

    def waiting(self) -> Iterator[tuple[LiveRun, Task]]:
        """Every task that waits for a worker and may have one."""
        for live in self.state.runs.values():
            if live.is_runnable:
                for row in live.tasks.values():
                    if row.state is QUEUED:
                        yield live, row

    def restarted(self, epoch: int | None = None) -> "World":
        """The world after a restart: what a new coordinator makes of the records."""
        other = World(now=self.now, epoch=epoch or self.state.epoch + 1, limits=self.state.limits)
        records = [msgspec.msgpack.decode(_encode(row), type=type(row)) for row in all_records(self.state)]
        other.state = load(other.state.epoch, self.state.limits, records, self.now)
        other.beating = dict(self.beating)
        other.numbered = self.numbered + 1_000_000
        return other


def task_name(laid_out: LiveGraph, idx: int) -> str:
    """A task's name worked out from the ranges of the nodes alone."""
    for node, spec in enumerate(laid_out.specs):
        start, width = laid_out.start[node], laid_out.width[node]
        if width and start <= idx < start + width:
            is_group = width != 1 or spec.width != 1 or spec.expansion is not None
            return f"{spec.id}[{idx - start}]" if is_group else spec.id
    raise AssertionError(f"no node has task {idx}")


def task_states(run: LiveRun) -> dict[int, TaskState]:
    """Every task of a run, those without a row included."""
    return {idx: run.tasks[idx].state if idx in run.tasks else NONE for idx in range(run.graph.total)}


def image(state: State) -> dict[Key, bytes]:
    """All records, comparable."""
    return imaged(all_records(state))


def imaged(records: Iterable[Record]) -> dict[Key, bytes]:
    """Records by key, as bytes."""
    found: dict[Key, bytes] = {}
    for record in records:
        assert key_of(record) not in found, "two records have one key"
        found[key_of(record)] = _encode(record)
    return found


def derived(state: State) -> dict[str, object]:
    """What is kept in memory and can be worked out from the records."""
    return {
        "usage": {key: (u.taken, dict(u.by_key)) for key, u in sorted(state.usage.items()) if u.taken or u.by_key},
        "pools": dict(sorted(state.pools.items())),
        "active": dict(sorted(state.active_runs.items())),
        "waiting": {name: sorted(keys) for name, keys in sorted(state.waiting_runs.items())},
        "scheduled": {key: count for key, count in sorted(state.scheduled_runs.items()) if count},
        "users": {key: laid_out.users for key, laid_out in sorted(state.graphs.items())},
        "runs": {
            key: (
                run.ended,
                run.moving,
                run.leased,
                run.leaf_bad,
                run.blocked,
                [list(run.success or ()), list(run.failed or ()), list(run.skipped or ())],
                list(run.upstream_failed or ()),
                dict(sorted(run.sources.items())),
                {node: sorted(tasks) for node, tasks in sorted(run.reset.items()) if tasks},
                bytes(run.fired),
                dict(sorted(run.forced.items())),
                (run.before and run.before.key, run.after and run.after.key, run.is_held),
            )
            for key, run in sorted(state.runs.items())
        },
        "leases": {fence: (lease.run.key, lease.task.idx, lease.worker.key) for fence, lease in state.leases.items()},
        "revoked": {fence: (lease.run.key, lease.task.idx, lease.worker.key) for fence, lease in state.revoked.items()},
        "free": {key: (worker.slots_free, worker.free) for key, worker in sorted(state.workers.items())},
        "queued": state.index.queued,
        "buckets": {
            repr(bucket.demand): {(*run.key, row.idx): None for run, row in sorted_tasks(bucket.tasks())}
            for bucket in state.index.buckets.values()
            if bucket.live
        },
    }


def sorted_tasks(found: Iterable[tuple[LiveRun, Task]]) -> list[tuple[LiveRun, Task]]:
    """Tasks in an order that does not depend on how they came to wait."""
    return sorted(found, key=lambda pair: (*pair[0].key, pair[1].idx))


def usage_from_leases(state: State) -> dict[tuple[str, str], tuple[int, dict[str, int]]]:
    """What live and revoked leases take from pools, added up from nothing."""
    taken: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}
    for lease in (*state.leases.values(), *state.revoked.values()):
        live = lease.run
        for need in live.graph.signature(live.graph.node(lease.task.idx)).pools:
            total, by_key = taken.setdefault((live.row.tenant, need.pool), (0, {}))
            if need.key:
                by_key[need.key] = by_key.get(need.key, 0) + need.amount
            taken[(live.row.tenant, need.pool)] = (total + need.amount, by_key)
    return taken


@contextmanager
def short_slices(tasks: int) -> Iterator[None]:
    """Cascades that must be continued after so few tasks; the rule is the same as with a thousand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cascade, "slice_tasks", tasks)
        yield
