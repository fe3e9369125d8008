"""From records to a state: what a coordinator does first, and again whenever memory and disk may differ."""

from collections.abc import Iterable

from rota.core.bounds import RECEIPTS_KEPT_MS, TimeLimits
from rota.core.evolve import begin_lease, count_scheduled, lay_out, limit_lease, load_revoked, stand_in_line
from rota.core.graph import LiveGraph
from rota.core.ids import Epoch, Millis, RunKey
from rota.core.live import LiveWorker
from rota.core.model import Pool, Queue, Tenant
from rota.core.records import GraphRecord, Growth, Pause, Receipt, Record, Run, Schedule, Task, Worker, Workflow
from rota.core.state import State
from rota.core.states import (
    LEASED,
    NEEDS_ATTENTION,
    QUEUED,
    RUN_TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    RunState,
)


def load(epoch: Epoch, limits: TimeLimits, records: Iterable[Record], now: Millis) -> State:
    """The state that these records describe. Every lease gets a full lease time before it can end."""
    state = State(epoch, limits, now)
    runs: list[Run] = []
    tasks: dict[RunKey, list[Task]] = {}
    growths: dict[RunKey, list[Growth]] = {}
    graphs: list[GraphRecord] = []
    receipts: list[Receipt] = []
    for record in records:
        if isinstance(record, GraphRecord):
            graphs.append(record)
        elif isinstance(record, Run):
            runs.append(record)
        elif isinstance(record, Task):
            tasks.setdefault((record.tenant, record.run), []).append(record)
        elif isinstance(record, Growth):
            growths.setdefault((record.tenant, record.run), []).append(record)
        elif isinstance(record, Receipt):
            receipts.append(record)
        else:
            _define(state, record, now)
    # Oldest first, the order in which they go.
    for receipt in sorted(receipts, key=lambda receipt: (receipt.at, receipt.tenant, receipt.command_id)):
        state.receipts[(receipt.tenant, receipt.command_id)] = receipt
    # Of versions with different limits the newest counts, after loading as before.
    for record in sorted(graphs, key=lambda record: (record.put_at, record.tenant, record.digest)):
        _define(state, record, now)
    for row in sorted(runs, key=lambda row: (row.created_at, row.tenant, row.id)):
        _load_run(state, row, tasks.get((row.tenant, row.id), []), growths.get((row.tenant, row.id), []))
    for run in state.runs.values():
        # Now that all of them are there.
        state.relate(run)
        run.is_held = state.is_held(run.row)
    for schedule in state.schedules.values():
        state.graphs[(schedule.tenant, schedule.graph)].users += 1
        state.set_timer(now, "schedule", schedule.tenant, schedule.id)
    for workflow in state.workflows.values():
        for version in workflow.versions:
            state.graphs[(workflow.tenant, version.graph)].users += 1
    _load_leases(state, now)
    state.reindex()
    _set_timers(state, now)
    return state


def _define(state: State, record: Record, now: Millis) -> None:
    match record:
        case GraphRecord():
            state.put_graph(LiveGraph(record.tenant, record.digest, record.graph, record.put_at), now)
        case Queue():
            state.put_queue(record)
        case Pool():
            state.put_pool(record, now)
        case Tenant():
            state.put_tenant(record)
        case Worker():
            state.workers[(record.tenant, record.id)] = LiveWorker(record, state.consumable, now)
        case Schedule():
            state.schedules[(record.tenant, record.id)] = record
        case Workflow():
            state.workflows[(record.tenant, record.name)] = record
        case Pause():
            state.pauses[(record.tenant, record.scope)] = record
        case _:
            raise AssertionError(f"a record of an unknown type: {type(record).__name__}")


def _load_run(state: State, row: Run, tasks: list[Task], growths: list[Growth]) -> None:
    run = state.make_run(row)
    if row.solo is not None:
        tasks = [row.solo]
        row.solo = None
    lay_out(run, run.graph, growths, tasks)
    state.list_run(run)
    if row.state not in RUN_TERMINAL:
        state.take_merge(run)
        count_scheduled(state, run, 1)
    name = run.admission
    if row.state is RunState.QUEUED:
        stand_in_line(state, run)
    elif row.state is RunState.RUNNING:
        state.active_runs[name] = state.active_runs.get(name, 0) + 1
        if row.pending:
            state.continues[run.key] = None


def _load_leases(state: State, now: Millis) -> None:
    for run in state.runs.values():
        for task in run.tasks.values():
            if task.revoked:
                load_revoked(state, run, task, now)
            if task.state not in LEASED:
                continue
            worker = state.workers[(task.worker_tenant, task.worker)]
            lease = begin_lease(state, run, task, worker, state.bucket_of(run, task), now)
            lease.confirmed = False
            lease.expires_at = now + max(state.limits.lease_ms, task.lease_ms)
            if task.started_at or worker.row.capacity.pull:
                limit_lease(state, lease, task.started_at or task.assigned_at, now)


def _set_timers(state: State, now: Millis) -> None:
    for worker in state.workers.values():
        if worker.leases or worker.revoked:
            worker.watched = True
            state.set_timer(now + state.limits.dispatch_ms, "worker", *worker.key)
        state.set_timer(now + state.silence_of(worker), "forget", *worker.key)
        if worker.row.quarantined_until > now:
            state.set_timer(worker.row.quarantined_until, "rested", *worker.key)
    for run in state.runs.values():
        if run.row.state in RUN_TERMINAL:
            state.set_timer(run.row.ended_at + state.retain_ms(run), "archive", *run.key)
        elif run.row.deadline_at:
            state.set_timer(run.row.deadline_at, "deadline", *run.key)
        if run.row.after:
            # One of them may have succeeded in the last commit before.
            state.set_timer(now, "after", *run.key)
        if run.before is not None:
            # Something there may have ended in the last commit before.
            state.set_timer(now, "past", *run.key)
        for task in run.tasks.values():
            if task.state in (UP_FOR_RETRY, UP_FOR_RESCHEDULE):
                state.set_timer(task.due_at, "due", *run.key, task.idx)
            elif task.state is NEEDS_ATTENTION:
                state.set_timer(now, "parked", *run.key, task.idx)
            elif task.state is QUEUED and run.is_runnable:
                state.watch_unserved(state.bucket_of(run, task), run, task)
    for graph in state.graphs.values():
        if not graph.users:
            state.set_timer(now + state.limits.retain_ended_ms, "graph", graph.tenant, graph.digest)
    for receipt in state.receipts.values():
        state.set_timer(receipt.at + RECEIPTS_KEPT_MS, "receipts")
