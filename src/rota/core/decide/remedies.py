"""Deciding what a person does about a run: clear, mark, retry now, note, move to another version, resolve.

All of them work on a run that has ended, too: it is opened again, and its tasks are judged when it starts. One that is
in history is taken out of it first (`revive`).
"""

from msgspec import structs

from rota.core import commands as cm
from rota.core.bounds import NAMES_PER_COMMAND_MAX, NOTE_CHARS_MAX, REMEDY_TASKS_MAX
from rota.core.changes import (
    Change,
    GraphPut,
    LeaseReturned,
    PendingSet,
    RunMoved,
    RunNoted,
    RunReopened,
    RunRevived,
    TaskAmended,
    TaskEnded,
    TaskMarked,
    TaskNoted,
    TaskRequeued,
    TasksReset,
)
from rota.core.decide.decision import Decision, clean_text, find_all, find_run, find_task
from rota.core.decide.growing import grown_by, let_go, stopped, to_let_go
from rota.core.decide.runs import check_labels, check_settled, check_specs, find_version, find_workflow
from rota.core.errors import Refused, Unavailable
from rota.core.graph import LiveGraph, below_of, check_number, check_spec
from rota.core.ids import Millis, RunId, ScheduleId, TaskId
from rota.core.live import LiveRun
from rota.core.model import NOTE
from rota.core.params import complete_params, zone_of
from rota.core.plan import Cascade
from rota.core.records import Growth, Slice
from rota.core.state import State
from rota.core.states import (
    BAD,
    CANCELLED,
    FAILED,
    LEASED,
    NEEDS_ATTENTION,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    TERMINAL,
    UP_FOR_RESCHEDULE,
    UP_FOR_RETRY,
    UPSTREAM_FAILED,
    WAITING,
    RunState,
    TaskState,
)


def clear(state: State, command: cm.ClearTasks, now: Millis) -> Decision:
    """Run ended tasks again, with everything after them unless told otherwise. Tasks at work are left alone."""
    run = _find_open(state, command.tenant, command.run)
    reset = to_clear(run, command.tasks, downstream=command.downstream, only_failed=command.only_failed)
    if not reset and command.tasks:
        chosen = find_all(run, command.tasks)
        fed = {run.graph.node(idx): None for idx in chosen if run.graph.node(idx) in run.graph.fed}
        _check_idle(run, chosen + grown_by(run, list(fed)))
    return Decision(_run_again(run, reset, now, anew=not command.only_failed), answer=command.run)


def _check_idle(run: LiveRun, tasks: list[int]) -> None:
    """Whoever asks for tasks at work to be run again is told what to do about them."""
    busy = [run.graph.task_id(idx) for idx in tasks if _state(run, idx) in LEASED]
    if busy:
        text = f"{busy[0]} is at work, and is left alone"
        raise Refused("run.at_work", text, "Wait for it, mark it, or cancel the run.", path="tasks")


def to_clear(run: LiveRun, names: tuple[TaskId, ...], *, downstream: bool, only_failed: bool) -> list[int]:
    """The tasks that clearing would run again. No names are all tasks.

    What comes right after them and waits for a worker, or for its next try, goes back to wait for them.
    """
    graph = run.graph
    chosen = find_all(run, names) if names else list(run.tasks)
    wanted = BAD if only_failed else TERMINAL
    tasks = {idx: None for idx in chosen if _state(run, idx) in wanted}
    if downstream and names:
        for node in below_of(graph, list({graph.node(idx): None for idx in chosen})):
            tasks.update({idx: None for idx in graph.tasks_of(node) if _state(run, idx) in wanted})
    if not only_failed:
        for node in _torn_down(run, list({graph.node(idx): None for idx in tasks})):
            tasks.update({idx: None for idx in graph.tasks_of(node) if _state(run, idx) in TERMINAL})
    tasks.update(dict.fromkeys(_waiting_for(run, list(tasks))))
    tasks.update(dict.fromkeys(grown_by(run, to_let_go(run, list(tasks), anew=not only_failed))))
    found = [idx for idx in tasks if idx not in graph.retired]
    check_number(len(found), 0, REMEDY_TASKS_MAX, "tasks")
    return found


def _waiting_for(run: LiveRun, tasks: list[int]) -> list[int]:
    """Tasks right after these that wait for a worker or for their next try: their rule has to be asked again."""
    graph = run.graph
    nodes = {graph.node(idx): None for idx in tasks}
    after = {down: None for node in nodes for down in (*graph.downs[node], *graph.setup_downs.get(node, ()))}
    return [idx for node in after for idx in graph.tasks_of(node) if _state(run, idx) in WAITING]


def _torn_down(run: LiveRun, nodes: list[int]) -> list[int]:
    """Setups that these nodes need and whose resource is gone already, with their teardowns: both run again."""
    graph = run.graph
    found: dict[int, None] = {}
    # The teardowns of each setup, if all have ended; none once it is found. Many nodes may need the same setup.
    ended: dict[int, dict[int, None]] = {}
    for node in nodes:
        direct = [up for up in graph.ups[node] if graph.specs[up].is_setup]
        for setup in (*direct, *graph.setups.get(node, ())):
            if setup not in ended:
                ends = [down for down in graph.downs[setup] if graph.specs[down].is_teardown]
                tasks = [idx for end in ends for idx in graph.tasks_of(end)]
                is_over = all(_state(run, idx) in TERMINAL for idx in tasks)
                ended[setup] = dict.fromkeys(ends) if tasks and is_over else {}
            if ended[setup] and node not in ended[setup]:
                found.update(dict.fromkeys((setup, *ended.pop(setup))))
                ended[setup] = {}
    return list(found)


def _find_open(state: State, tenant: str, name: RunId) -> LiveRun:
    """A run about which something may be decided: not in the middle of being stopped, or of a cascade."""
    run = find_run(state, tenant, name, may_have_ended=True)
    if run.row.state in RUN_TERMINAL and not run.row.started_at:
        why = run.row.reason or run.row.state
        text = f"run {name!r} ended before it started ({why}), so nothing of it can be done again"
        raise Refused("task.not_started", text, "Submit it again under another id.", path="run")
    if run.row.stopping is not None and run.row.state not in RUN_TERMINAL:
        raise Refused("run.ended", f"run {name!r} is being stopped", "Do it when it has ended.", path="run")
    check_settled(run)
    return run


def _state(run: LiveRun, idx: int) -> TaskState:
    task = run.tasks.get(idx)
    return NONE if task is None else task.state


def _run_again(run: LiveRun, tasks: list[int], now: Millis, *, anew: bool) -> list[Change]:
    """`anew`: a task that went on as others is planned again, and not only made of what they give."""
    if not tasks:
        return []
    fed = to_let_go(run, tasks, anew=anew)
    grown = grown_by(run, fed)
    reset = list(dict.fromkeys((*tasks, *grown)))
    changes = [*stopped(run, grown, now), TasksReset(*run.key, tuple(reset), now, "cleared", fresh=True)]
    cascade = Cascade(run, now)
    for idx in reset:
        cascade.task_reset(idx)
    let_go(cascade, fed)
    return [*changes, *_follow(run, cascade, now)]


def _follow(run: LiveRun, cascade: Cascade, now: Millis) -> list[Change]:
    """What follows in a running run; one that has ended waits for its graph's cap like a new one, to be judged then."""
    if run.row.state in RUN_TERMINAL:
        return [*cascade.grows, RunReopened(*run.key, now)]
    return cascade.settle() if run.row.state is RunState.RUNNING else cascade.grows


def mark(state: State, command: cm.MarkTasks, now: Millis) -> Decision:
    """Say what tasks came to. Whatever failed for want of them is judged again if they are said to be well."""
    run = _find_open(state, command.tenant, command.run)
    if not run.row.started_at:
        text = f"run {command.run!r} has not started, so nothing in it has come to anything"
        raise Refused("task.not_started", text, "Mark its tasks once it runs, or cancel it.", path="run")
    to = TaskState(command.to.value)
    chosen = [idx for idx in find_all(run, command.tasks) if _state(run, idx) is not to]
    check_number(len(chosen), 0, NAMES_PER_COMMAND_MAX, "tasks")
    if not chosen:
        return Decision([], answer=command.run)
    _check_whole(run, chosen)
    changes: list[Change] = []
    for idx in chosen:
        task = run.tasks.get(idx)
        if task is not None and task.state in LEASED:
            cause = f"marked as {to}" + (f": {clean_text(command.reason)}" if command.reason else "")
            changes.append(LeaseReturned(*run.key, idx, task.fence, CANCELLED, now, cause, counted=False))
    reset = [idx for idx in chosen if _state(run, idx) is not NONE]
    marked = dict.fromkeys(chosen)
    reset += [idx for idx in _waiting_for(run, chosen) if idx not in marked]
    if to is not FAILED:
        nodes = list({run.graph.node(idx): None for idx in chosen})
        below = [idx for node in below_of(run.graph, nodes) for idx in run.graph.tasks_of(node)]
        reset += [idx for idx in below if _state(run, idx) in (FAILED, UPSTREAM_FAILED) and idx not in marked]
    cascade = Cascade(run, now)
    if reset:
        changes.append(TasksReset(*run.key, tuple(reset), now, f"marked as {to}", fresh=True))
        for idx in reset:
            cascade.task_reset(idx)
    for idx in chosen:
        changes.append(TaskMarked(*run.key, idx, to, now))
        cascade.task_marked(idx, to)
    if to is not FAILED:
        _map_over_nothing(cascade, chosen)
    return Decision([*changes, *_follow(run, cascade, now)], answer=command.run)


def _map_over_nothing(cascade: Cascade, marked: list[int]) -> None:
    """Whoever says that tasks are well gives no output: what is mapped over it, is mapped over nothing.

    If it is mapped over another task, that one will say more.
    """
    graph, run = cascade.graph, cascade.run
    nodes = {graph.node(idx): None for idx in marked}
    for node in {down: None for up in nodes for down in graph.downs[up]}:
        if not graph.width[node]:
            number = run.row.grown + len(cascade.grows)
            cascade.grow(Growth(*run.key, number, (), graph.specs[node].id, 0))


def _check_whole(run: LiveRun, chosen: list[int]) -> None:
    """A group that has not been judged yet is marked as a whole: the rest of it would be judged as if none were."""
    asked = dict.fromkeys(chosen)
    for node in {run.graph.node(idx): None for idx in chosen}:
        if not run.fired[node] and any(idx not in asked for idx in run.graph.tasks_of(node)):
            name = run.graph.specs[node].id
            text = f"the group {name!r} has not started, so one of its tasks cannot be marked"
            raise Refused("task.not_started", text, "Mark the whole group, or wait until it has started.", path="tasks")


def retry(state: State, command: cm.RetryTasks, now: Millis) -> Decision:
    """Let tasks wait no longer; those that have failed for good are run again, with what failed because of them."""
    run = _find_open(state, command.tenant, command.run)
    chosen = find_all(run, command.tasks) if command.tasks else list(run.tasks)
    waiting = [idx for idx in chosen if _state(run, idx) in (UP_FOR_RETRY, UP_FOR_RESCHEDULE)]
    failed = [idx for idx in chosen if _state(run, idx) in BAD]
    if not waiting and not failed:
        here = ", ".join(f"{run.graph.task_id(idx)} is {_state(run, idx)}" for idx in chosen[:3])
        text = f"nothing of this has failed or waits for another try: {here or 'no task'}"
        raise Refused("task.not_waiting", text, "Clear what is to run again all the same.", path="tasks")
    changes: list[Change] = [TaskRequeued(*run.key, idx, now, "retry now") for idx in waiting]
    if failed:
        nodes = list({run.graph.node(idx): None for idx in failed})
        below = [idx for node in below_of(run.graph, nodes) for idx in run.graph.tasks_of(node)]
        reset = dict.fromkeys((*failed, *(idx for idx in below if _state(run, idx) in BAD)))
        changes += _run_again(run, list(reset), now, anew=False)
    return Decision(changes, answer=command.run)


def release(state: State, command: cm.ReleaseTasks, now: Millis) -> Decision:
    """Take tasks from whoever has them. Nothing is charged: it was not the work's fault, nor the worker's."""
    run = find_run(state, command.tenant, command.run)
    chosen = find_all(run, command.tasks) if command.tasks else list(run.tasks)
    held = [idx for idx in chosen if _state(run, idx) in LEASED]
    if not held:
        here = ", ".join(f"{run.graph.task_id(idx)} is {_state(run, idx)}" for idx in chosen[:3])
        raise Refused("lease.none", f"nobody has this: {here or 'no task'}", path="tasks")
    check_number(len(held), 0, NAMES_PER_COMMAND_MAX, "tasks")
    cause = f"taken back by {command.actor or 'somebody'}" + (f": {command.reason}" if command.reason else "")
    return Decision(
        [
            LeaseReturned(*run.key, idx, run.tasks[idx].fence, QUEUED, now, clean_text(cause), counted=False)
            for idx in held
        ],
        answer=command.run,
    )


def put_note(state: State, command: cm.NoteTask, now: Millis) -> Decision:
    """Keep what somebody has to say about a task, or about a run; nothing takes it away again."""
    run = find_run(state, command.tenant, command.run, may_have_ended=True)
    if not command.task:
        return _note_run(run, command, now)
    idx = find_task(run, command.task)
    if len(command.note) > NOTE_CHARS_MAX:
        text = f"a note of {len(command.note):,} characters is too long"
        raise Refused("field.value", text, f"Use at most {NOTE_CHARS_MAX:,} characters.", path="note")
    task = run.tasks.get(idx)
    if task is None:
        text = f"task {command.task!r} has not been scheduled, so there is nothing to say about it yet"
        raise Refused("task.not_started", text, path="task")
    note = clean_text(command.note)
    if task.note == note:
        return Decision([], answer=command.run)
    return Decision([TaskNoted(*run.key, idx, note, now)], answer=command.run)


def _note_run(run: LiveRun, command: cm.NoteTask, now: Millis) -> Decision:
    """A note of a run is a label, so that the run is found by it."""
    others = tuple(label for label in run.row.labels if label[0] != NOTE)
    note = clean_text(command.note)
    wanted = (*others, (NOTE, note)) if note else others
    check_labels(wanted)
    if wanted == run.row.labels:
        return Decision([], answer=command.run)
    return Decision([RunNoted(*run.key, note, now)], answer=command.run)


def resolve(state: State, command: cm.ResolveTask, now: Millis) -> Decision:
    """A person decides about a parked task; nothing is charged for it."""
    run = find_run(state, command.tenant, command.run)
    idx = find_task(run, command.task)
    task = run.tasks.get(idx)
    if task is None or task.state is not NEEDS_ATTENTION:
        here = NONE if task is None else task.state
        raise Refused("task.not_parked", f"task {command.task!r} is {here}, not parked", path="task")
    changes: list[Change] = []
    if command.exit is cm.Exit.REQUEUE:
        if command.requires is not None:
            spec = structs.replace(run.graph.spec(idx), requires=command.requires)
            check_spec(spec, "requires")
            check_specs(state, command.tenant, (spec,), "requires")
            changes.append(TaskAmended(*run.key, idx, command.requires, now))
        changes.append(TaskRequeued(*run.key, idx, now, "resolved"))
        return Decision(changes, answer=command.run)
    to = FAILED if command.exit is cm.Exit.FAIL else CANCELLED
    changes.append(TaskEnded(*run.key, idx, to, now, None, f"{command.exit}ed by a person"))
    cascade = Cascade(run, now)
    cascade.task_ended(idx, to)
    return Decision([*changes, *cascade.settle()], answer=command.run)


def revive(state: State, command: cm.ReviveRun, now: Millis) -> Decision:
    """Take a run out of history. One that lives is left alone."""
    key = (command.row.tenant, command.row.id)
    if key in state.runs:
        return Decision([])
    if key in state.touched.archives:
        raise Unavailable("run.busy", f"run {command.row.id!r} is moving to history", retry_after_ms=100)
    check_number(len(command.tasks), 0, REMEDY_TASKS_MAX, "tasks")
    changes: list[Change] = []
    if (command.row.tenant, command.row.graph) not in state.graphs:
        changes.append(GraphPut(command.row.tenant, command.row.graph, command.graph, now))
    row = command.row
    if state.depth_above(row) is None:
        # Meanwhile what it was part of has become part of it.
        row = structs.replace(row, parent="")
    changes.append(RunRevived(row, command.tasks, command.growths, now))
    return Decision(changes, answer=command.row.id)


def move(state: State, command: cm.MoveRun, now: Millis) -> Decision:
    """Give a run another version of its workflow. What it did is kept for the tasks that the new version has, too."""
    run = _find_open(state, command.tenant, command.run)
    if not run.row.version:
        text = f"run {command.run!r} is not of a deployed workflow"
        raise Refused("run.no_workflow", text, "Submit the new graph as a run of its own.", path="run")
    version = find_version(find_workflow(state, command.tenant, run.row.name), command.version)
    if version.graph == run.row.graph:
        return Decision([], answer=str(version.number))
    if run.leased:
        text = f"{run.leased} tasks of run {command.run!r} are at work"
        raise Refused("run.at_work", text, "Pause the run and wait for them, or cancel it first.", path="run")
    if any(growth.specs for growth in run.growths):
        raise Refused("run.at_work", f"run {command.run!r} was given tasks that no version knows", path="run")
    check_number(len(run.tasks), 0, REMEDY_TASKS_MAX, "tasks")
    graph = state.graphs[(command.tenant, version.graph)]
    growths, kept = _carried_over(run, graph)
    zone = zone_of(version, state.schedules.get((command.tenant, ScheduleId(run.row.name))))
    params = complete_params(version.params, run.row.params, run.logical_at, zone)
    if params == run.row.params:
        params = None
    changes: list[Change] = [RunMoved(*run.key, version.graph, version.number, growths, kept, now, params)]
    if run.row.state in RUN_TERMINAL:
        changes.append(RunReopened(*run.key, now))
    elif run.row.state is RunState.RUNNING:
        # Every node of the other graph is judged, in one of the next turns.
        changes.append(PendingSet(*run.key, (Slice(NONE, 0, len(graph.specs)),)))
    return Decision(changes, answer=str(version.number))


def _carried_over(run: LiveRun, graph: LiveGraph) -> tuple[tuple[Growth, ...], tuple[tuple[int, int], ...]]:
    """The widths that the other graph needs to be told as well, and the tasks that are in both."""
    growths: list[Growth] = []
    # Of a node that was expanded more than once the last time counts.
    for growth in {growth.expands: growth for growth in run.growths}.values():
        node = graph.index.get(growth.expands)
        if node is not None and not graph.width[node]:
            growths.append(structs.replace(growth, number=len(growths)))
            graph = graph.grown(growths[-1])
    # Only a task that runs says over how many others are mapped that nobody has counted yet.
    counting = {up: None for node, width in enumerate(graph.width) if not width for up in graph.ups[node]}
    kept: list[tuple[int, int]] = []
    for node, spec in enumerate(run.graph.specs):
        there = graph.index.get(spec.id)
        if there is None or there in counting:
            continue
        tasks, others = run.graph.tasks_of(node), graph.tasks_of(there)
        if len(tasks) == len(others):
            kept += [(old, new) for old, new in zip(tasks, others, strict=True) if old in run.tasks]
    return tuple(growths), tuple(kept)
