"""Reading: what may be asked without changing anything, and what is answered.

A question is answered like a command, from memory, and the answer waits until everything it could have seen is
durable. Runs that moved to history are read from the store, and give the same views.
"""

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from rota.core.backlog import BacklogLine, GetScheduler, ListBacklog, SchedulerView, list_backlog, view_scheduler
from rota.core.decide.decision import find_all, find_run, find_task
from rota.core.decide.remedies import to_clear
from rota.core.decide.runs import find_workflow
from rota.core.errors import Refused
from rota.core.evolve import lay_out
from rota.core.graph import LiveGraph, check_number
from rota.core.ids import NO_WORKER, Fence, GraphDigest, Incarnation, Millis, RunId, ScheduleId, TaskId, WorkerId
from rota.core.live import LiveRun
from rota.core.model import (
    Approval,
    Capacity,
    FailureClass,
    Graph,
    Mood,
    Pairs,
    Pool,
    PriorityClass,
    Queue,
    Tenant,
    has_labels,
)
from rota.core.order import Books
from rota.core.overview import GetOverview, Overview, overview
from rota.core.question import Question
from rota.core.reasons import Reasons
from rota.core.records import Growth, Run, Task
from rota.core.state import State
from rota.core.states import NONE, PHASES, Phase, RunState, TaskState
from rota.core.sums import SumTasks, TaskSum, sum_tasks
from rota.core.tags import tag_of
from rota.core.why import explain
from rota.core.workflow_questions import (
    BackfillView,
    GetWorkflow,
    ListBackfills,
    ListWorkflows,
    WorkflowView,
    list_backfills,
    list_workflow,
    view_workflow,
)

PAGE_MAX = 10_000
HELD_SHOWN_MAX = 100


class GetRun(Question, frozen=True, kw_only=True, tag="GetRun"):
    """How a live run stands."""

    run: RunId


class ListRuns(Question, frozen=True, kw_only=True, tag="ListRuns"):
    """Live runs, the newest first, after `after` in that order. `find`: those that somebody means by these words."""

    name: str = ""
    states: tuple[RunState, ...] = ()
    after: str = ""
    limit: int = 100
    # Runs that have all of these.
    labels: Pairs = ()
    kind: str = ""
    find: str = ""


class ListTasks(Question, frozen=True, kw_only=True, tag="ListTasks"):
    """Tasks of a live run, by number, from `first` on; `names` asks for some of them only."""

    run: RunId
    names: tuple[TaskId, ...] = ()
    states: tuple[TaskState, ...] = ()
    first: int = 0
    limit: int = 1_000


class ListWorkers(Question, frozen=True, kw_only=True, tag="ListWorkers"):
    """All workers that may serve the tenant, or the one of the tenant's own that is named."""

    worker: WorkerId = NO_WORKER


class ListQueues(Question, frozen=True, kw_only=True, tag="ListQueues"):
    """The tenant's queues."""


class ListPools(Question, frozen=True, kw_only=True, tag="ListPools"):
    """The tenant's pools, and what is taken from each."""


class ListTenants(Question, frozen=True, kw_only=True, tag="ListTenants"):
    """Tenants that were given a weight, or that have runs."""


class PreviewClear(Question, frozen=True, kw_only=True, tag="PreviewClear"):
    """Which tasks `ClearTasks` with the same words would run again."""

    run: RunId
    tasks: tuple[TaskId, ...] = ()
    downstream: bool = True
    only_failed: bool = False


class ExplainTask(Question, frozen=True, kw_only=True, tag="ExplainTask"):
    """Why a task of a live run waits, or what it is doing."""

    run: RunId
    task: TaskId


class RunView(Struct, frozen=True, kw_only=True):
    """A run as its readers see it. `tasks` counts them by state; `story` is how many parts its story has so far.

    From `started_at` to `ended_at` it took `idle_ms` less: for so long it had ended, before it was opened again.
    """

    tenant: str
    id: RunId
    name: str
    kind: str
    graph: GraphDigest
    state: RunState
    priority: PriorityClass
    created_at: Millis
    started_at: Millis
    ended_at: Millis
    paused: bool
    reason: str
    fault: str
    schedule: ScheduleId
    slot_at: Millis
    parent: RunId
    params: bytes
    total: int
    tasks: dict[str, int]
    story: int
    version: int = 0
    backfill: bool = False
    merge: str = ""
    labels: Pairs = ()
    share: str = ""
    after: tuple[RunId, ...] = ()
    approval: Approval = Approval.NONE
    deadline_at: Millis = 0
    idle_ms: Millis = 0


class TaskView(Struct, frozen=True, kw_only=True):
    """A task as its readers see it."""

    run: RunId
    idx: int
    id: TaskId
    kind: str
    state: TaskState
    phase: Phase
    attempt: int
    interruptions: int
    worker: WorkerId
    fence: Fence
    eligible_at: Millis
    assigned_at: Millis
    started_at: Millis
    ended_at: Millis
    due_at: Millis
    failure: FailureClass | None
    error: str
    result: bytes | None
    note: str = ""
    # What it asks of a worker instead of what its graph says, if somebody has changed that.
    requires: Pairs | None = None


class TasksPage(Struct, frozen=True):
    """Some tasks, and the number from which to go on; -1 if there are no more."""

    tasks: tuple[TaskView, ...]
    next: int = -1


class RunsPage(Struct, frozen=True):
    """Some runs, and after which to go on; empty if there are no more."""

    runs: tuple[RunView, ...]
    next: str = ""


class WorkerView(Struct, frozen=True, kw_only=True):
    """A worker as its readers see it."""

    tenant: str
    id: WorkerId
    incarnation: Incarnation
    capacity: Capacity
    present: bool
    draining: bool
    quarantined_until: Millis
    seen_at: Millis
    leases: int
    mood: Mood = Mood.IDLE
    registered_at: Millis = 0
    # After how long without a word it is struck off.
    silence_ms: int = 0
    # Why it rests, while it does.
    quarantine_cause: str = ""
    # What it holds, by run.
    held: tuple[tuple[str, Fence], ...] = ()


class PoolView(Struct, frozen=True, kw_only=True):
    """A pool as its readers see it. `taken` is what live leases hold of it, `by_key` what they hold for each key."""

    pool: Pool
    taken: int
    by_key: dict[str, int]


Reading = (
    RunView
    | RunsPage
    | TasksPage
    | Reasons
    | tuple[WorkerView, ...]
    | tuple[Queue, ...]
    | tuple[PoolView, ...]
    | tuple[Tenant, ...]
    | tuple[str, ...]
    | WorkflowView
    | tuple[WorkflowView, ...]
    | tuple[BackfillView, ...]
    | SchedulerView
    | tuple[BacklogLine, ...]
    | Overview
    | dict[TaskId, TaskSum]
)


def answer(state: State, question: Question, now: Millis) -> Reading:
    """What a question is answered. Raises `Refused` when it asks for something that is not there."""
    match question:
        case GetRun():
            run = find_run(state, question.tenant, question.run, may_have_ended=True)
            return view_run(run.row, run.graph, run.tasks.values())
        case ListRuns():
            return _list_runs(state, question)
        case ListTasks():
            return _list_tasks(find_run(state, question.tenant, question.run, may_have_ended=True), question)
        case SumTasks():
            run = find_run(state, question.tenant, question.run, may_have_ended=True)
            return sum_tasks(run.graph, run.tasks, question.names)
        case ExplainTask():
            run = find_run(state, question.tenant, question.run, may_have_ended=True)
            return explain(state, run, find_task(run, question.task), now)
        case ListWorkers():
            return _list_workers(state, question)
        case ListQueues():
            return tuple(queue for queue in state.queues.values() if queue.tenant == question.tenant)
        case ListTenants():
            return _list_tenants(state)
        case ListPools():
            return _list_pools(state, question)
        case GetWorkflow():
            return view_workflow(state, find_workflow(state, question.tenant, question.workflow))
        case ListWorkflows():
            found = [
                each for each in state.workflows.values() if each.tenant == question.tenant and not each.is_dropped
            ]
            return tuple(list_workflow(state, each) for each in sorted(found, key=lambda each: each.name))
        case ListBackfills():
            return list_backfills(state, question, now)
        case GetScheduler():
            return view_scheduler(state, question, now)
        case GetOverview():
            return overview(state, question, now)
        case ListBacklog():
            return list_backlog(state, question, now)
        case PreviewClear():
            return _preview(find_run(state, question.tenant, question.run, may_have_ended=True), question)
        case _:
            raise Refused("field.type", f"{tag_of(question)} is no question")


def view_run(row: Run, graph: LiveGraph, tasks: Iterable[Task]) -> RunView:
    """A run from its records."""
    counts: dict[str, int] = {}
    known = 0
    for task in tasks:
        if task.idx not in graph.retired:
            counts[task.state] = counts.get(task.state, 0) + 1
            known += 1
    if graph.to_end > known:
        counts[NONE] = counts.get(NONE, 0) + graph.to_end - known
    return RunView(
        tenant=row.tenant,
        id=row.id,
        name=row.name,
        kind=row.kind,
        graph=row.graph,
        state=row.state,
        priority=row.priority,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        paused=row.paused,
        reason=row.reason,
        fault=row.fault,
        schedule=row.schedule,
        slot_at=row.slot_at,
        parent=row.parent,
        params=row.params,
        total=graph.to_end,
        tasks=counts,
        story=row.story,
        version=row.version,
        backfill=row.backfill,
        merge=row.merge,
        labels=row.labels,
        share=row.share,
        after=row.after,
        approval=row.approval,
        deadline_at=row.deadline_at,
        idle_ms=row.idle_ms,
    )


def view_task(task: Task, graph: LiveGraph) -> TaskView:
    """A task from its record."""
    return TaskView(
        run=task.run,
        idx=task.idx,
        id=graph.task_id(task.idx),
        kind=graph.spec(task.idx).kind,
        state=task.state,
        phase=PHASES[task.state],
        attempt=task.attempt,
        interruptions=task.interruptions,
        worker=task.worker,
        fence=task.fence or task.done_fence,
        eligible_at=task.eligible_at,
        assigned_at=task.assigned_at,
        started_at=task.started_at,
        ended_at=task.ended_at,
        due_at=task.due_at,
        failure=task.failure,
        error=task.error,
        result=task.result,
        note=task.note,
        requires=task.requires,
    )


def _list_runs(state: State, question: ListRuns) -> RunsPage:
    check_number(question.limit, 1, PAGE_MAX, "limit")
    chosen: list[LiveRun] = []
    past = not question.after
    # A run is put at the end when it is submitted, so the newest come last.
    for key in reversed(state.runs):
        run = state.runs[key]
        if key[0] != question.tenant:
            continue
        if not past:
            past = key[1] == question.after
            continue
        if question.name not in ("", run.row.name) or (question.states and run.row.state not in question.states):
            continue
        if question.kind not in ("", run.row.kind) or not has_labels(run.row.labels, question.labels):
            continue
        if not is_meant(question.find, run.row):
            continue
        if len(chosen) == question.limit:
            return RunsPage(tuple(map(_view, chosen)), chosen[-1].row.id)
        chosen.append(run)
    return RunsPage(tuple(map(_view, chosen)))


def is_meant(words: str, run: Run) -> bool:
    """Whether somebody who looks for these words may mean a run: each is in its id or name, or begins a label."""
    labels = [text.lower() for name, value in run.labels for text in (value, f"{name}={value}")]
    return all(
        word in run.id.lower() or word in run.name.lower() or any(label.startswith(word) for label in labels)
        for word in words.lower().split()
    )


def _view(run: LiveRun) -> RunView:
    return view_run(run.row, run.graph, run.tasks.values())


def _list_tasks(run: LiveRun, question: ListTasks) -> TasksPage:
    check_number(question.limit, 1, PAGE_MAX, "limit")
    check_number(question.first, 0, run.graph.total, "first")
    numbers: Iterable[int] = range(question.first, run.graph.total)
    if question.names:
        numbers = sorted(idx for idx in find_all(run, question.names) if idx >= question.first)
    found: list[TaskView] = []
    for idx in numbers:
        task = run.tasks.get(idx)
        if idx in run.graph.retired or (question.states and (task.state if task else NONE) not in question.states):
            continue
        if len(found) == question.limit:
            return TasksPage(tuple(found), idx)
        found.append(view_task(task or Task(*run.key, idx), run.graph))
    return TasksPage(tuple(found))


def _list_workers(state: State, question: ListWorkers) -> tuple[WorkerView, ...]:
    workers = list(state.workers.values())
    if question.worker:
        found = state.workers.get((question.tenant, question.worker))
        workers = [] if found is None else [found]
    return tuple(
        WorkerView(
            tenant=worker.row.tenant,
            id=worker.row.id,
            incarnation=worker.row.incarnation,
            capacity=worker.row.capacity,
            present=worker.present,
            draining=worker.row.draining,
            quarantined_until=worker.row.quarantined_until,
            seen_at=worker.seen_at,
            leases=len(worker.leases),
            mood=worker.mood,
            registered_at=worker.row.registered_at,
            silence_ms=state.silence_of(worker),
            quarantine_cause=worker.row.quarantine_cause,
            held=tuple((lease.run.row.id, fence) for fence, lease in islice(worker.leases.items(), HELD_SHOWN_MAX)),
        )
        for worker in workers
        if not worker.row.gone_at
        and (not worker.row.capacity.tenants or question.tenant in worker.row.capacity.tenants)
    )


def _list_pools(state: State, question: ListPools) -> tuple[PoolView, ...]:
    views: list[PoolView] = []
    for key, pool in state.pools.items():
        # The system's own pools, the caps of graphs, are told by the graphs.
        if pool.tenant == question.tenant and not pool.name.startswith("@"):
            usage = state.usage.get(key)
            taken, by_key = (usage.taken, dict(usage.by_key)) if usage is not None else (0, {})
            views.append(PoolView(pool=pool, taken=taken, by_key=by_key))
    return tuple(views)


def _preview(run: LiveRun, question: PreviewClear) -> tuple[TaskId, ...]:
    tasks = to_clear(run, question.tasks, downstream=question.downstream, only_failed=question.only_failed)
    return tuple(run.graph.task_id(idx) for idx in tasks)


def preview_clear(
    row: Run, tasks: tuple[Task, ...], growths: tuple[Growth, ...], graph: Graph, question: PreviewClear
) -> tuple[TaskId, ...]:
    """The same for a run in history."""
    whole = LiveGraph(row.tenant, row.graph, graph)
    run = LiveRun(row, whole, Books().purse(row.priority, row.tenant))
    lay_out(run, whole, growths, tasks)
    return _preview(run, question)


def _list_tenants(state: State) -> tuple[Tenant, ...]:
    names = dict.fromkeys(state.tenants) | dict.fromkeys(tenant for tenant, _ in state.runs)
    return tuple(state.tenants.get(name) or Tenant(tenant=name) for name in names)
