"""Planning one run from a snapshot: which tasks move now, and whether the run has ended.

Pure functions over a picture of a run. The live engine plans incrementally with countdowns; this is the same judgement
made from scratch, and the oracle that the engine is tested against.

A run's result is read off its leaves, as in Airflow: a failed task whose `all_done` clean-up leaf succeeded is a
successful run. Three decisions differ from the planner this grew out of. A decision feeds the later ones of the same
call, so a failure travels the whole graph at once. Only a running run is planned: a queued one has not been admitted,
an ended one stays as it ended. And a run that cannot move is not left hanging: it fails, and the tasks that can never
be decided are named.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rota.core.ids import Millis, RunId, TaskId
from rota.core.states import (
    BAD,
    FAILED,
    NONE,
    QUEUED,
    RUN_TERMINAL,
    SCHEDULED,
    SKIPPED,
    SUCCESS,
    TERMINAL,
    UP_FOR_RETRY,
    UPSTREAM_FAILED,
    RunState,
    TaskState,
)
from rota.core.trigger import TriggerRule, Verdict, evaluate_trigger_rule

_NOT_RUN: dict[Verdict, TaskState] = {Verdict.SKIP: SKIPPED, Verdict.UPSTREAM_FAILED: UPSTREAM_FAILED}


class Node(Protocol):
    """A task as far as setups, teardowns and rules are concerned: a `SnapshotTask` here, a graph's task elsewhere."""

    @property
    def id(self) -> TaskId: ...
    @property
    def upstream(self) -> tuple[TaskId, ...]: ...
    @property
    def trigger_rule(self) -> TriggerRule: ...
    @property
    def is_setup(self) -> bool: ...
    @property
    def is_teardown(self) -> bool: ...


class SnapshotTask(msgspec.Struct, frozen=True):
    """One task of the picture.

    The teardowns of a setup are the teardowns directly downstream of it. `on_failure_fail_run` lets a teardown's own
    failure count for the run. `over` are those of the upstreams whose output the task is mapped over; one that
    `is_empty` is mapped over an empty list.
    """

    id: TaskId
    upstream: tuple[TaskId, ...] = ()
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS
    is_setup: bool = False
    is_teardown: bool = False
    on_failure_fail_run: bool = False
    over: tuple[TaskId, ...] = ()
    is_empty: bool = False


class RunSnapshot(msgspec.Struct, frozen=True):
    """A run at one moment.

    A task absent from `states` is `none`. A task absent from `tries` or `max_tries` has no retry left, one absent from
    `ended_at` or `retry_delay_s` needs no cooling down. `now` None skips the cooldown gate.
    """

    run_id: RunId
    graph_id: str
    tenant: str
    tasks: tuple[SnapshotTask, ...]
    state: RunState = RunState.RUNNING
    states: dict[TaskId, TaskState] = {}
    tries: dict[TaskId, int] = {}
    max_tries: dict[TaskId, int] = {}
    ended_at: dict[TaskId, Millis | None] = {}
    retry_delay_s: dict[TaskId, int] = {}
    now: Millis | None = None
    # What successful branches decided to skip, and tasks that wait for the run before this one.
    skips: dict[TaskId, tuple[TaskId, ...]] = {}
    held: tuple[TaskId, ...] = ()


class PlannedTransition(NamedTuple):
    """One decided move. `none` is a retry's fresh start: whoever applies it counts one try more."""

    task_id: TaskId
    to: TaskState


def plan_run(run: RunSnapshot) -> list[PlannedTransition]:
    """Every move the run is due, in an order in which they can be applied.

    Retries come first, in task order, one step each: `failed` with tries left becomes `up_for_retry`, from whose
    recording the cooldown runs; `up_for_retry` that has cooled down becomes `none` and is planned again below. Both
    count as active, so nothing downstream takes a retriable failure for an end. A task that failed upstream before a
    branch left it out becomes `none` too, with what failed because of it.

    Then the rest, upstreams before downstreams, to a fixed point. Each task is judged by the states its upstreams have
    after this very call, so the outcome does not depend on the order in which tasks are listed.
    """
    if run.state is not RunState.RUNNING:
        return []
    states = {task.id: run.states.get(task.id, NONE) for task in run.tasks}
    moves: list[PlannedTransition] = []

    def move(task_id: TaskId, to: TaskState) -> None:
        states[task_id] = to
        moves.append(PlannedTransition(task_id, to))

    retried: dict[TaskId, None] = {}
    for task in run.tasks:
        if states[task.id] is FAILED and _has_try_left(run, task.id):
            move(task.id, UP_FOR_RETRY)
        elif states[task.id] is UP_FOR_RETRY and _has_cooled_down(run, task.id):
            move(task.id, NONE)
            retried[task.id] = None
    branches = (names for branch, names in run.skips.items() if states.get(branch) is SUCCESS)
    # A task that had started before a branch left it out goes on.
    forced = {name: None for names in branches for name in names if name not in retried}
    overruled = [name for name in forced if states.get(name) is UPSTREAM_FAILED]
    for name in _reach(overruled, _downstream(run.tasks)) if overruled else ():
        if states[name] is UPSTREAM_FAILED:
            move(name, NONE)
    _settle(run, states, forced, move)
    return moves


def finalize_run(run: RunSnapshot) -> tuple[RunState | None, bool]:
    """The run's end and whether it has come: `(state, True)` or `(None, False)`.

    Not while a task is active, may be tried again or is about to be moved by `plan_run`; teardowns are tasks like any
    other here, so a run outlives its work until its resources are gone. Then the run failed if a leaf is failed,
    upstream_failed or cancelled, and succeeded otherwise, also when everything was skipped. Teardowns that do not fail
    the run are taken away before leaves are looked for. A deadlocked run failed.
    """
    if run.state in RUN_TERMINAL:
        return run.state, True
    if _can_still_move(run):
        return None, False
    is_deadlocked = any(run.states.get(task.id, NONE) is NONE for task in run.tasks)
    if is_deadlocked or any(run.states.get(leaf) in BAD for leaf in _leaves(run.tasks)):
        return RunState.FAILED, True
    return RunState.SUCCESS, True


def deadlocked_tasks(run: RunSnapshot) -> tuple[TaskId, ...]:
    """The tasks that will never be decided, when that is all that is left of the run; else none.

    Rules always decide once every upstream has ended, so what waits with nothing active waits for itself (a circle)
    or for a task that is not in the run.
    """
    if run.state is not RunState.RUNNING or _can_still_move(run):
        return ()
    return tuple(task.id for task in run.tasks if run.states.get(task.id, NONE) is NONE)


def effective_rule(task: Node) -> TriggerRule:
    """The rule a task is judged by: a teardown's is not for users to choose, as in Airflow."""
    return TriggerRule.ALL_DONE_SETUP_SUCCESS if task.is_teardown else task.trigger_rule


def relevant_setups(tasks: Iterable[Node]) -> dict[TaskId, tuple[TaskId, ...]]:
    """For each task, the setups further up than its direct upstreams without which it must not run.

    Airflow's rule: a setup S above T is relevant if one of S's teardowns is below T, that is, if T lies between
    resource and clean-up; a setup without a teardown is relevant to everything below it. What comes after the clean-up
    does not need the resource. Direct upstreams are left out because T's trigger rule sees them itself, and a teardown
    has none, because it judges its own setups by its own rule.
    """
    listed = tuple(tasks)
    upstream = {task.id: task.upstream for task in listed}
    downstream = _downstream(listed)
    teardowns = {task.id for task in listed if task.is_teardown}
    found: dict[TaskId, tuple[TaskId, ...]] = {task.id: () for task in listed}
    for setup in listed:
        if not setup.is_setup:
            continue
        scope = _reach(downstream[setup.id], downstream)
        ends = [task_id for task_id in downstream[setup.id] if task_id in teardowns]
        if ends:
            needed = _reach([above for end in ends for above in upstream[end]], upstream)
            scope = [task_id for task_id in scope if task_id in needed]
        for task_id in scope:
            if task_id not in teardowns and setup.id not in upstream[task_id]:
                found[task_id] += (setup.id,)
    return found


def with_transitions(run: RunSnapshot, moves: Iterable[PlannedTransition]) -> RunSnapshot:
    """The snapshot after `moves`: what applying a plan means, retry counts included."""
    states = dict(run.states)
    tries = dict(run.tries)
    for task_id, to in moves:
        if to is NONE and states.get(task_id) is UP_FOR_RETRY:
            tries[task_id] = tries.get(task_id, 0) + 1
        states[task_id] = to
    return msgspec.structs.replace(run, states=states, tries=tries)


def _has_try_left(run: RunSnapshot, task_id: TaskId) -> bool:
    tries = run.tries.get(task_id)
    return tries is not None and tries < run.max_tries.get(task_id, 0)


def _has_cooled_down(run: RunSnapshot, task_id: TaskId) -> bool:
    ended_at = run.ended_at.get(task_id)
    delay_s = run.retry_delay_s.get(task_id, 0)
    return run.now is None or ended_at is None or delay_s <= 0 or run.now >= ended_at + delay_s * 1000


def _settle(
    run: RunSnapshot,
    states: dict[TaskId, TaskState],
    forced: dict[TaskId, None],
    move: Callable[[TaskId, TaskState], None],
) -> None:
    """Judge every `none` task until a pass decides nothing; the first pass suffices unless the graph has a circle."""
    tasks = run.tasks
    setups = relevant_setups(tasks)
    direct_setups = {task.id for task in tasks if task.is_setup}
    waiting = _upstreams_first(tasks)
    decided = True
    while decided:
        decided = False
        undecided: list[SnapshotTask] = []
        for task in waiting:
            if states[task.id] is NONE:
                verdict = _judge(task, states, setups[task.id], direct_setups)
                if task.id in forced:
                    verdict = Verdict.SKIP
                if verdict is Verdict.WAIT or (verdict is Verdict.SCHEDULE and task.id in run.held):
                    undecided.append(task)
                    continue
                decided = True
                if verdict is Verdict.SCHEDULE and task.is_empty:
                    verdict = Verdict.SKIP
                move(task.id, SCHEDULED if verdict is Verdict.SCHEDULE else _NOT_RUN[verdict])
            if states[task.id] is SCHEDULED:
                move(task.id, QUEUED)
        waiting = undecided


def _judge(
    task: SnapshotTask, states: dict[TaskId, TaskState], indirect_setups: tuple[TaskId, ...], direct_setups: set[TaskId]
) -> Verdict:
    """The rule's verdict; an upstream that is not in the run counts as one that never ends."""
    rule = effective_rule(task)
    if rule is TriggerRule.ALL_DONE_SETUP_SUCCESS:
        concerned = [task_id for task_id in task.upstream if task_id in direct_setups]
    else:
        concerned = indirect_setups
    return evaluate_trigger_rule(
        rule,
        [states.get(task_id, NONE) for task_id in task.upstream],
        setup_states=[states[task_id] for task_id in concerned],
        source_states=[states.get(task_id, NONE) for task_id in task.over],
    )


def _can_still_move(run: RunSnapshot) -> bool:
    if run.state is not RunState.RUNNING:
        return run.state is RunState.QUEUED
    standing = {task.id: run.states.get(task.id, NONE) for task in run.tasks}
    if any(state is not NONE and state not in TERMINAL for state in standing.values()):
        return True
    # What waits for the run before is not stuck, however long that takes.
    return any(standing.get(name) is NONE for name in run.held) or bool(plan_run(run))


def _leaves(tasks: tuple[SnapshotTask, ...]) -> list[TaskId]:
    """The tasks whose ends are the run's end; in a graph of nothing but teardowns, those without downstreams."""
    counted = [task for task in tasks if not task.is_teardown or task.on_failure_fail_run] or tasks
    inner = {above for task in counted for above in task.upstream}
    return [task.id for task in counted if task.id not in inner]


def _downstream(tasks: Sequence[Node]) -> dict[TaskId, list[TaskId]]:
    below: dict[TaskId, list[TaskId]] = {task.id: [] for task in tasks}
    for task in tasks:
        for above in task.upstream:
            if above in below:
                below[above].append(task.id)
    return below


def _reach(
    starts: Iterable[TaskId], edges: dict[TaskId, list[TaskId]] | dict[TaskId, tuple[TaskId, ...]]
) -> dict[TaskId, None]:
    """Everything reachable from `starts`, them included, in the order found."""
    found = dict.fromkeys(starts)
    frontier = list(found)
    while frontier:
        for task_id in edges.get(frontier.pop(), ()):
            if task_id not in found:
                found[task_id] = None
                frontier.append(task_id)
    return found


def _upstreams_first(tasks: tuple[SnapshotTask, ...]) -> list[SnapshotTask]:
    """The tasks, each after all its upstreams, otherwise as listed; members of a circle come last."""
    by_id = {task.id: task for task in tasks}
    downstream = _downstream(tasks)
    unmet = {task.id: sum(above in by_id for above in task.upstream) for task in tasks}
    ready = [task for task in tasks if unmet[task.id] == 0]
    for task in ready:
        for below in downstream[task.id]:
            unmet[below] -= 1
            if unmet[below] == 0:
                ready.append(by_id[below])
    return ready + [task for task in tasks if unmet[task.id] > 0]
