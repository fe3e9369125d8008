"""Moving tasks: the only place where a task changes state.

`move` keeps every countdown, index and sum in step, and refuses a move that the table does not list.
"""

from rota.core import changes as ch
from rota.core.live import LiveRun
from rota.core.records import Task
from rota.core.state import State
from rota.core.states import (
    BAD,
    COLUMN,
    NONE,
    QUEUED,
    SKIPPED,
    SUCCESS,
    TERMINAL,
    UPSTREAM_FAILED,
    TaskState,
    can_transition,
)


def move(state: State, run: LiveRun, task: Task, to: TaskState) -> None:
    """Change a task's state and everything that is counted from it."""
    here = task.state
    assert can_transition(here, to), f"no move from {here} to {to}"
    count_move(state, run, here, to)
    if here is QUEUED:
        state.withdraw(run, task)
    task.state = to
    if here is NONE:
        run.moving += 1
    elif here in TERMINAL:
        run.moving += 1
        run.ended -= 1
        count(run, task.idx, here, -1)
    if to in TERMINAL:
        run.moving -= 1
        run.ended += 1
        count(run, task.idx, to, 1)
        if run.after is not None:
            state.set_timer(0, "past", *run.after.key)
    elif to is NONE:
        run.moving -= 1
    elif to is QUEUED:
        state.offer(run, task)


def count_move(state: State, run: LiveRun, here: TaskState, to: TaskState) -> None:
    """Count a move, for metrics."""
    state.moves[here, to] += 1
    key = (run.row.name, here, to)
    state.moved[key] = state.moved.get(key, 0) + 1


def count(run: LiveRun, idx: int, to: TaskState, step: int) -> None:
    graph = run.graph
    node = graph.node(idx)
    if to in BAD and graph.leaf[node]:
        run.leaf_bad += step
    if to is UPSTREAM_FAILED:
        run.blocked += step
    downs = graph.downs[node]
    if not downs:
        return
    if to is SUCCESS:
        counts = run.success
    elif to is SKIPPED:
        counts = run.skipped
    elif to is UPSTREAM_FAILED:
        counts = run.upstream_failed
    else:
        counts = run.failed
    assert counts is not None, "a graph with edges has countdowns"
    for down in downs:
        counts[down] += step
    if node in run.sources:
        run.sources[node][COLUMN[to]] += step


def task_of(run: LiveRun, idx: int) -> Task:
    task = run.tasks.get(idx)
    if task is None:
        task = run.tasks[idx] = Task(run.row.tenant, run.row.id, idx)
    return task


def touch(state: State, run: LiveRun, task: Task) -> None:
    """Remember that a task's row must be written; the only task of a run lives in the run's row."""
    if run.is_solo:
        state.touched.runs[run.key] = run
    else:
        state.touched.tasks[id(task)] = task


def note(state: State, run: LiveRun, task: Task, change: ch.Change) -> None:
    """Remember that a task's row must be written, and tell what changed."""
    if not run.is_solo:
        state.touched.tasks[id(task)] = task
    tell(state, run, change)


def tell(state: State, run: LiveRun, change: ch.Change) -> None:
    stories = state.touched.stories
    story = stories.get(run.key)
    if story is None:
        stories[run.key] = [change]
        state.touched.runs[run.key] = run
    else:
        story.append(change)
