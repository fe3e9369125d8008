"""What changes about workflows do to the state."""

from rota.core import changes as ch
from rota.core.evolve.definitions import leave_graph
from rota.core.evolve.runs import hold
from rota.core.live import LiveRun
from rota.core.records import Workflow, copy
from rota.core.state import State
from rota.core.states import RunState


def workflow_put(state: State, change: ch.WorkflowPut) -> None:
    workflow = copy(change.workflow)
    key = (workflow.tenant, workflow.name)
    old = state.workflows.get(key)
    state.workflows[key] = workflow
    for version in workflow.versions:
        state.graphs[(workflow.tenant, version.graph)].users += 1
    if old is not None:
        leave_versions(state, old, change.at)
    if (old is not None and old.paused) != workflow.paused:
        hold_runs(state, workflow.tenant, workflow.name)
        # Slots that came meanwhile are looked at now, and those that are made up for.
        if key in state.schedules:
            state.set_timer(0, "schedule", *key)
        for backfill in state.backfills_of(*key):
            state.set_timer(0, "schedule", backfill.tenant, backfill.id)
    state.touched.drops.pop(("Workflow", *key), None)
    state.touched.puts[("Workflow", *key)] = workflow


def leave_versions(state: State, workflow: Workflow, at: int) -> None:
    for version in workflow.versions:
        leave_graph(state, workflow.tenant, version.graph, at)


def hold_runs(state: State, tenant: str, name: str) -> None:
    """Take the runs of a workflow out of matching, or put them back, as it is paused or not."""
    for run in state.runs.values():
        if (run.row.tenant, run.row.name) == (tenant, name) and run.is_held != state.is_held(run.row):
            hold_or_let_go(state, run)


def hold_or_let_go(state: State, run: LiveRun) -> None:
    def flag() -> None:
        run.is_held = not run.is_held

    hold(state, run, flag)
    if not run.is_held and run.row.state is RunState.QUEUED:
        state.starts[run.admission] = None
    if not run.is_held and run.row.pending:
        state.continues[run.key] = None


def workflow_dropped(state: State, change: ch.WorkflowDropped) -> None:
    key = (change.tenant, change.workflow)
    workflow = state.workflows.pop(key)
    leave_versions(state, workflow, change.at)
    hold_runs(state, *key)
    state.touched.puts.pop(("Workflow", *key), None)
    state.touched.drops[("Workflow", *key)] = None
