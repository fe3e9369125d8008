"""What changes about runs do to the state."""

from collections.abc import Callable, Iterable

from rota.core import changes as ch
from rota.core.evolve.definitions import keep_receipt, leave_buckets, leave_graph
from rota.core.evolve.moves import count, tell, touch
from rota.core.evolve.tasks import forget_due
from rota.core.graph import LiveGraph
from rota.core.ids import Millis
from rota.core.live import LiveRun
from rota.core.model import NOTE, Approval
from rota.core.reap import reaper_of
from rota.core.records import Growth, Receipt, Task, copy
from rota.core.state import State
from rota.core.states import NONE, QUEUED, TERMINAL, RunState, can_transition_run


def run_submitted(state: State, change: ch.RunSubmitted) -> None:
    # The change keeps its own row: what happened does not change with what happens later.
    row = copy(change.row)
    run = state.make_run(row)
    state.list_run(run)
    state.relate(run)
    state.take_merge(run)
    hold_parts(state, run)
    if row.deadline_at:
        state.set_timer(row.deadline_at, "deadline", *run.key)
    if row.state is RunState.RUNNING:
        count_scheduled(state, run, 1)
        begin(state, run, row.started_at)
    else:
        wait_to_start(state, run)
    tell(state, run, change)


def count_scheduled(state: State, run: LiveRun, step: int) -> None:
    """Keep the number of unfinished runs that a schedule made."""
    if run.row.schedule:
        key = (run.row.tenant, run.row.schedule)
        left = state.scheduled_runs.get(key, 0) + step
        if left:
            state.scheduled_runs[key] = left
        else:
            state.scheduled_runs.pop(key, None)


def wait_to_start(state: State, run: LiveRun) -> None:
    count_scheduled(state, run, 1)
    stand_in_line(state, run)


def stand_in_line(state: State, run: LiveRun) -> None:
    """A run waits for its turn to start, unless something has to happen first."""
    if not run.is_gated:
        name = run.admission
        state.waiting_runs.setdefault(name, {})[run.key] = None
        state.starts[name] = None


def leave_line(state: State, run: LiveRun) -> None:
    """A run does not wait for its turn to start any more."""
    name = run.admission
    waiting = state.waiting_runs.get(name, {})
    if waiting.pop(run.key, run) is None and not waiting:
        del state.waiting_runs[name]


def run_unblocked(state: State, change: ch.RunUnblocked) -> None:
    run = state.runs[(change.tenant, change.run)]
    state.stop_waiting(run, change.after)
    run.row.after = tuple(name for name in run.row.after if name != change.after)
    stand_in_line(state, run)
    tell(state, run, change)


def run_noted(state: State, change: ch.RunNoted) -> None:
    run = state.runs[(change.tenant, change.run)]
    others = tuple(label for label in run.row.labels if label[0] != NOTE)
    run.row.labels = (*others, (NOTE, change.note)) if change.note else others
    tell(state, run, change)


def run_approved(state: State, change: ch.RunApproved) -> None:
    run = state.runs[(change.tenant, change.run)]
    run.row.approval = Approval.APPROVED if change.approved else Approval.REJECTED
    if change.approved:
        stand_in_line(state, run)
    tell(state, run, change)


def run_started(state: State, change: ch.RunStarted) -> None:
    run = state.runs[(change.tenant, change.run)]
    row = run.row
    name = run.admission
    waiting = state.waiting_runs[name]
    del waiting[run.key]
    if not waiting:
        del state.waiting_runs[name]
        state.starts.pop(name, None)
    check_run_move(row.state, RunState.RUNNING)
    row.state = RunState.RUNNING
    row.started_at = row.started_at or change.at
    row.ended_at = 0
    begin(state, run, change.at)
    tell(state, run, change)


def begin(state: State, run: LiveRun, at: Millis) -> None:
    """A run counts as active, and its time begins."""
    row = run.row
    name = run.admission
    state.active_runs[name] = state.active_runs.get(name, 0) + 1
    timeout_ms = run.graph.graph.run_timeout_ms
    if timeout_ms:
        row.deadline_at = min(row.deadline_at or at + timeout_ms, at + timeout_ms)
        state.set_timer(row.deadline_at, "deadline", *run.key)


def check_run_move(here: RunState, there: RunState) -> None:
    assert can_transition_run(here, there), f"no move of a run from {here} to {there}"


def run_ended(state: State, change: ch.RunEnded) -> None:
    run = state.runs[(change.tenant, change.run)]
    row = run.row
    name = run.admission
    if row.state is RunState.RUNNING:
        free_run_slot(state, name)
    else:
        leave_line(state, run)
        state.unrelate(run)
        row.after = ()
    check_run_move(row.state, change.state)
    row.state = change.state
    row.ended_at = change.at
    row.reason = change.reason
    if change.reason and change.state is RunState.FAILED and reaper_of(change.reason):
        state.decided["orphan_reaped"] += 1
    row.pending = ()
    state.continues.pop(run.key, None)
    state.leave_merge(run)
    state.set_timer(change.at + state.retain_ms(run), "archive", *run.key)
    if run.before is not None:
        # It was kept for the sake of this one.
        state.set_timer(change.at + state.limits.retain_ended_ms, "archive", *run.before.key)
    count_scheduled(state, run, -1)
    if row.paused:
        hold_parts(state, run)
    for waiter in run.waiters:
        state.set_timer(0, "after", *waiter)
    if row.deadline_at:
        state.drop_timer("deadline", *run.key)
    if (row.tenant, row.schedule) in state.schedules:
        state.set_timer(change.at, "schedule", row.tenant, row.schedule)
    tell(state, run, change)


def free_run_slot(state: State, name: tuple[str, str]) -> None:
    left = state.active_runs[name] - 1
    if left:
        state.active_runs[name] = left
    else:
        del state.active_runs[name]
    if name in state.waiting_runs:
        state.starts[name] = None


def run_reopened(state: State, change: ch.RunReopened) -> None:
    run = state.runs[(change.tenant, change.run)]
    check_run_move(run.row.state, RunState.QUEUED)
    run.row.state = RunState.QUEUED
    run.row.stopping = None
    run.row.reason = ""
    run.row.idle_ms += max(0, change.at - run.row.ended_at)
    run.row.ended_at = 0
    # Whoever runs it again does so in spite of its deadline; a time limit begins anew.
    run.row.deadline_at = 0
    state.drop_timer("archive", *run.key)
    state.take_merge(run)
    wait_to_start(state, run)
    hold_parts(state, run)
    tell(state, run, change)


def hold(state: State, run: LiveRun, set_flag: Callable[[], None]) -> None:
    """Change whether a run may have workers, taking its queued tasks out of matching or putting them back."""
    was = run.is_runnable
    queued = [task for task in run.tasks.values() if task.state is QUEUED]
    if was:
        for task in queued:
            state.withdraw(run, task)
    set_flag()
    if run.is_runnable:
        for task in queued:
            state.offer(run, task)


def run_paused(state: State, change: ch.RunPaused) -> None:
    run = state.runs[(change.tenant, change.run)]

    def flag() -> None:
        run.row.paused = change.paused
        if not change.paused:
            run.row.fault = ""
            if run.row.pending:
                state.continues[run.key] = None
            if run.row.state is RunState.QUEUED:
                state.starts[run.admission] = None

    hold(state, run, flag)
    hold_parts(state, run)
    tell(state, run, change)


def hold_parts(state: State, run: LiveRun) -> None:
    """A run came, went, was paused or resumed, and with it all that is part of it. Nothing of that is written."""
    ahead, seen = [run.key], {run.key: None}
    while ahead:
        for key, part in state.parts.get(ahead.pop(), {}).items():
            if key in seen:
                continue
            seen[key] = None
            ahead.append(key)
            if part.is_held != state.is_held(part.row):
                hold(state, part, lambda part=part: setattr(part, "is_held", not part.is_held))
                if not part.is_held and part.row.state is RunState.QUEUED:
                    state.starts[part.admission] = None


def run_stopping(state: State, change: ch.RunStopping) -> None:
    run = state.runs[(change.tenant, change.run)]

    def flag() -> None:
        run.row.stopping = change.state
        run.row.reason = change.reason

    hold(state, run, flag)
    tell(state, run, change)


def run_faulted(state: State, change: ch.RunFaulted) -> None:
    run = state.runs[(change.tenant, change.run)]
    state.decided["run_error"] += 1

    def flag() -> None:
        run.row.fault = change.fault

    hold(state, run, flag)
    state.continues.pop(run.key, None)
    tell(state, run, change)


def pending_set(state: State, change: ch.PendingSet) -> None:
    run = state.runs[(change.tenant, change.run)]
    run.row.pending = change.pending
    if change.pending:
        state.continues[run.key] = None
    else:
        state.continues.pop(run.key, None)
    tell(state, run, change)


def run_grew(state: State, change: ch.RunGrew) -> None:
    run = state.runs[(change.tenant, change.run)]
    was_solo = run.is_solo
    if run.row.grown:
        leave_buckets(state, run.graph)
    run.row.grown += 1
    grow(run, run.graph.grown(change.growth))
    run.growths = (*run.growths, change.growth)
    state.touched.puts[("Growth", change.tenant, change.run, change.growth.number)] = change.growth
    if was_solo:
        for task in run.tasks.values():
            touch(state, run, task)
    tell(state, run, change)


def grow(run: LiveRun, graph: LiveGraph) -> None:
    """Lay a run out over a larger graph: countdowns are counted again from the tasks that have ended."""
    fired = run.fired
    run.allot(graph)
    run.fired[: len(fired)] = fired
    for idx, node in graph.retired.items():
        # The one that stood for all of them has made room: its node is judged again.
        if idx in run.reset.get(node, {}):
            del run.reset[node]
            run.fired[node] = 0
    run.leaf_bad = run.blocked = 0
    for idx, task in run.tasks.items():
        if task.state in TERMINAL:
            count(run, idx, task.state, 1)


def lay_out(run: LiveRun, graph: LiveGraph, growths: Iterable[Growth], tasks: Iterable[Task]) -> None:
    """Make a run of its records: whatever can be worked out from them is worked out."""
    run.growths = tuple(sorted(growths, key=lambda growth: growth.number))
    for growth in run.growths:
        graph = graph.grown(growth)
    run.start_over(graph)
    # Nobody has written down whether it was; asking once more than needed does no harm.
    run.mended = True
    run.tasks = {task.idx: task for task in sorted(tasks, key=lambda task: task.idx)}
    for idx, task in run.tasks.items():
        if idx in graph.retired:
            continue
        node = graph.node(idx)
        run.fired[node] = 1
        if task.skips:
            run.force(task.skips, 1)
        if task.state in TERMINAL:
            run.ended += 1
            count(run, idx, task.state, 1)
        elif task.state is NONE:
            run.put_back(node, idx)
        else:
            run.moving += 1


def run_revived(state: State, change: ch.RunRevived) -> None:
    row = copy(change.row)
    tasks = [copy(task) for task in change.tasks]
    row.solo = None
    run = state.make_run(row)
    lay_out(run, run.graph, change.growths, tasks)
    state.list_run(run)
    state.relate(run)
    hold_parts(state, run)
    run.revived_at = change.at
    state.set_timer(change.at + state.limits.retain_ended_ms, "archive", *run.key)
    state.touched.revives.append((row.tenant, row.id, row.created_at))
    # Written again: history may have forgotten it since it was read there.
    state.touched.runs[run.key] = run
    for growth in run.growths:
        state.touched.puts[("Growth", row.tenant, row.id, growth.number)] = growth
    for task in run.tasks.values():
        touch(state, run, task)


def run_moved(state: State, change: ch.RunMoved) -> None:
    run = state.runs[(change.tenant, change.run)]
    old_graph, old_tasks, was_solo = run.row.graph, run.tasks, run.is_solo
    for task in old_tasks.values():
        state.withdraw(run, task)
        forget_due(state, run, task)
        state.touched.tasks.pop(id(task), None)
    if run.row.grown:
        leave_buckets(state, run.graph)
    for growth in run.growths:
        key = ("Growth", *run.key, growth.number)
        state.touched.puts.pop(key, None)
        state.touched.drops[key] = None
    run.row.graph, run.row.version, run.row.grown = change.graph, change.version, len(change.growths)
    if change.params is not None:
        run.row.params = change.params
    for growth in change.growths:
        key = ("Growth", *run.key, growth.number)
        state.touched.drops.pop(key, None)
        state.touched.puts[key] = growth
    state.leave_lineage(run)
    graph = state.graphs[(change.tenant, change.graph)]
    graph.users += 1
    lay_out(run, graph, change.growths, [renumbered(old_tasks[old], new) for old, new in change.tasks])
    leave_graph(state, change.tenant, old_graph, change.at)
    state.join_lineage(run)
    kept = {} if run.is_solo else run.tasks
    for idx in {} if was_solo else old_tasks:
        if idx not in kept:
            state.touched.drops[("Task", *run.key, idx)] = None
    for task in run.tasks.values():
        state.touched.drops.pop(("Task", *run.key, task.idx if kept else -1), None)
        touch(state, run, task)
        state.offer(run, task)
        if task.due_at:
            state.set_timer(task.due_at, "due", *run.key, task.idx)
    tell(state, run, change)


def renumbered(task: Task, idx: int) -> Task:
    """The same task under another number."""
    kept = copy(task)
    kept.idx = idx
    return kept


def run_archived(state: State, change: ch.RunArchived) -> None:
    key = (change.tenant, change.run)
    run = state.runs.pop(key)
    row = run.row
    if row.command_id:
        state.by_command.pop((row.tenant, row.command_id), None)
        receipt = Receipt(row.tenant, row.command_id, 0, row.id, change.at)
        keep_receipt(state, receipt)
    if row.grown:
        leave_buckets(state, run.graph)
    leave_graph(state, row.tenant, row.graph, change.at)
    state.leave_lineage(run)
    state.forget_run(run)
    hold_parts(state, run)
    state.drop_timer("archive", *key)
    state.wakes.forget_item(key)
    tell(state, run, change)
    state.touched.archives[key] = None
