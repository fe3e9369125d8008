"""What changes about tasks without a lease do to the state."""

from rota.core import changes as ch
from rota.core.evolve.leases import end_lease
from rota.core.evolve.moves import count_move, move, note, task_of, tell, touch
from rota.core.ids import NO_FENCE, NO_WORKER
from rota.core.ladder import is_ours
from rota.core.live import LiveRun
from rota.core.records import Task
from rota.core.state import State
from rota.core.states import LEASED, NEEDS_ATTENTION, NONE, QUEUED, SCHEDULED, SUCCESS, TERMINAL


def tasks_scheduled(state: State, change: ch.TasksScheduled) -> None:
    run = state.runs[(change.tenant, change.run)]
    fired = run.fired
    graph = run.graph
    for idx in change.tasks:
        task = task_of(run, idx)
        task.eligible_at = change.at
        task.ended_at = 0
        node = graph.node(idx)
        fired[node] = 1
        if run.reset:
            forget_reset(run, node, idx)
        assert task.state is NONE, f"no move from {task.state} to {SCHEDULED}"
        run.moving += 1
        count_move(state, run, NONE, SCHEDULED)
        task.state = SCHEDULED
        move(state, run, task, QUEUED)
        touch(state, run, task)
    tell(state, run, change)


def tasks_settled(state: State, change: ch.TasksSettled) -> None:
    run = state.runs[(change.tenant, change.run)]
    for idx in change.tasks:
        task = task_of(run, idx)
        node = run.graph.node(idx)
        run.fired[node] = 1
        if run.reset:
            forget_reset(run, node, idx)
        forget_due(state, run, task)
        move(state, run, task, change.state)
        task.ended_at = change.at
        touch(state, run, task)
    tell(state, run, change)


def forget_due(state: State, run: LiveRun, task: Task) -> None:
    """A task that waited for its time waits for it no more."""
    if task.due_at:
        state.drop_timer("due", *run.key, task.idx)


def forget_reset(run: LiveRun, node: int, idx: int) -> None:
    waiting = run.reset.get(node)
    if waiting is not None:
        waiting.pop(idx, None)
        if not waiting:
            del run.reset[node]


def tasks_reset(state: State, change: ch.TasksReset) -> None:
    run = state.runs[(change.tenant, change.run)]
    for idx in change.tasks:
        task = run.tasks[idx]
        if task.state in LEASED:
            task.done_fence = task.fence
            end_lease(state, task.fence, change.at)
            task.attempt -= 1
        elif change.fresh:
            # Nothing is recorded of the lease that ended last: a report on it is late, whatever it says.
            task.done_fence = NO_FENCE
        if change.fresh:
            task.budget_from = task.attempt
            task.interruptions = task.losses = 0
        else:
            task.losses += task.state is SUCCESS
        forget_due(state, run, task)
        move(state, run, task, NONE)
        task.result = None
        task.failure = None
        task.error = ""
        task.avoid_tenant, task.avoid = "", NO_WORKER
        task.started_at = task.ended_at = task.due_at = 0
        task.cycles = task.tier = 0
        task.first_started_at = 0
        if is_ours(task.note):
            task.note = ""
        if task.skips:
            run.force(task.skips, -1)
            task.skips = ()
        run.put_back(run.graph.node(idx), idx)
        touch(state, run, task)
    run.mended = True
    tell(state, run, change)


def task_requeued(state: State, change: ch.TaskRequeued) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    task.eligible_at = change.at
    forget_due(state, run, task)
    task.due_at = 0
    if task.state is NEEDS_ATTENTION:
        task.interruptions = task.cycles = task.tier = 0
        task.avoid_tenant, task.avoid = "", NO_WORKER
    move(state, run, task, SCHEDULED)
    move(state, run, task, QUEUED)
    note(state, run, task, change)


def task_marked(state: State, change: ch.TaskMarked) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = task_of(run, change.task)
    node = run.graph.node(change.task)
    run.fired[node] = 1
    if run.reset:
        forget_reset(run, node, change.task)
    move(state, run, task, change.state)
    task.ended_at = change.at
    run.mended = True
    note(state, run, task, change)


def task_noted(state: State, change: ch.TaskNoted) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    task.note = change.note
    note(state, run, task, change)


def task_amended(state: State, change: ch.TaskAmended) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    state.withdraw(run, task)
    task.requires = change.requires
    state.offer(run, task)
    note(state, run, task, change)


def task_ended(state: State, change: ch.TaskEnded) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    move(state, run, task, change.state)
    task.failure = change.failure
    task.error = change.error
    if change.state in TERMINAL:
        task.ended_at = change.at
    note(state, run, task, change)


def task_starved(state: State, change: ch.TaskStarved) -> None:
    run = state.runs[(change.tenant, change.run)]
    task = run.tasks[change.task]
    task.cycles = change.cycles
    task.tier = change.tier
    if change.note and is_ours(task.note):
        task.note = change.note
    state.decided["starved"] += 1
    note(state, run, task, change)
