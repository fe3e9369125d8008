"""Deciding about tasks that go on as others, and that are done with it.

One that was planned ends its attempt with the tasks it goes on as. It goes back to `none` and waits for the last of
them like for any upstream; then it is offered again, with what that one gave. If it is run anew it is planned anew:
what it went on as is let go.
"""

from rota.core.changes import Change, LeaseReturned, TasksReset
from rota.core.decide.runs import check_specs
from rota.core.growing import check_fed, check_growth, inherited
from rota.core.ids import Millis
from rota.core.live import Lease, LiveRun
from rota.core.model import TaskSpec
from rota.core.plan import Cascade
from rota.core.records import Growth
from rota.core.state import State
from rota.core.states import CANCELLED, LEASED, NONE, QUEUED


def go_on(state: State, lease: Lease, specs: tuple[TaskSpec, ...], now: Millis) -> list[Change]:
    """A task goes on as others. The attempt costs nothing; nothing of it is left but what it has planned."""
    run, task = lease.run, lease.task
    node = run.graph.node(task.idx)
    fed = run.graph.specs[node]
    check_fed(run.graph, node, specs)
    growth = Growth(*run.key, run.row.grown, inherited(fed, specs), feeds=fed.id)
    check_growth(run.graph, growth)
    check_specs(state, run.row.tenant, growth.specs, "grows")
    if run.row.pending or run.row.stopping is not None:
        # What is left of a cascade is told by the order of nodes, which would be another one.
        cause = "it was planned while its run was busy"
        return [LeaseReturned(*run.key, task.idx, lease.fence, QUEUED, now, cause, counted=False)]
    count = sum(spec.width for spec in specs)
    cascade = Cascade(run, now)
    cascade.task_reset(task.idx)
    cascade.grow(growth)
    text = f"it goes on as {count} task" + ("s" if count != 1 else "")
    return [TasksReset(*run.key, (task.idx,), now, text, fresh=False), *cascade.settle()]


def to_let_go(run: LiveRun, tasks: list[int], *, anew: bool) -> list[int]:
    """Nodes that would be planned anew if these tasks are run again: something that they are planned from is.

    And those that are themselves run again, if that is to be done from the beginning (`anew`).
    """
    graph = run.graph
    if not graph.fed:
        return []
    nodes = {graph.node(idx): None for idx in tasks}
    return [
        fed
        for fed, stages in graph.fed.items()
        if (anew and fed in nodes) or any(up in nodes for up in graph.ups[fed] if up not in stages)
    ]


def grown_by(run: LiveRun, fed: list[int]) -> list[int]:
    """All tasks that these nodes went on as, and that have begun."""
    stages = (stage for node in fed for stage in run.graph.fed[node])
    tasks = (run.tasks.get(idx) for stage in stages for idx in run.graph.tasks_of(stage))
    return [task.idx for task in tasks if task is not None and task.state is not NONE]


def stopped(run: LiveRun, tasks: list[int], now: Millis) -> list[Change]:
    """Those of these that are at work are taken from their workers."""
    cause = "what it is a part of is planned anew"
    return [
        LeaseReturned(*run.key, idx, run.tasks[idx].fence, CANCELLED, now, cause, counted=False)
        for idx in tasks
        if run.tasks[idx].state in LEASED
    ]


def let_go(cascade: Cascade, fed: list[int]) -> None:
    """These wait no more for what they went on as, none of which is left at work or with an end."""
    run = cascade.run
    for node in fed:
        number = run.row.grown + len(cascade.grows)
        cascade.grow(Growth(*run.key, number, feeds=run.graph.specs[node].id))
