"""Deciding about workflows: deploy, pause, take away; and about backfills."""

from rota.core import commands as cm
from rota.core.bounds import BACKFILL_ACTIVE_RUNS_MAX, SCHEDULE_ID_CHARS_MAX, VERSIONS_KEPT_MAX
from rota.core.calendar import CONTINUOUS, ONCE, ScheduleSpec, next_slot
from rota.core.changes import Change, ScheduleDropped, SchedulePut, WorkflowDropped, WorkflowPut
from rota.core.decide.decision import Decision
from rota.core.decide.definitions import scheduled
from rota.core.decide.runs import find_workflow, stop_run, use_graph
from rota.core.errors import Refused
from rota.core.graph import check_id, check_number, check_text
from rota.core.ids import Millis
from rota.core.model import PriorityClass
from rota.core.params import check_declared, check_params
from rota.core.records import Schedule, Version, Workflow, copy
from rota.core.state import State
from rota.core.states import RUN_TERMINAL, RunState


def deploy(state: State, command: cm.DeployWorkflow, now: Millis) -> Decision:
    """A graph becomes the present version of its workflow. The same content is the same version, and changes nothing.

    Runs that exist keep the version they have. The calendar goes on where it was, unless it is another one now.
    """
    name = command.graph.name
    _check_name(name)
    check_text(command.source, "source")
    check_text(command.doc[:1000], "doc")
    check_declared(command.params)
    changes: list[Change] = []
    digest = use_graph(state, command.tenant, command.graph, "", now, changes)
    known = state.workflows.get((command.tenant, name))
    workflow = _next_version(known, command, digest, now)
    if known != workflow:
        changes.append(WorkflowPut(workflow, now))
    changes += _reschedule(state, command, workflow, now)
    return Decision(changes, answer=str(workflow.version))


def _check_name(name: str) -> None:
    check_id(name, "graph.name")
    if len(name) > SCHEDULE_ID_CHARS_MAX:
        text = f"a workflow's name of {len(name)} characters leaves no room for the ids of its runs"
        raise Refused("field.size", text, f"Use at most {SCHEDULE_ID_CHARS_MAX} characters.", path="graph.name")


def _next_version(known: Workflow | None, command: cm.DeployWorkflow, digest: str, now: Millis) -> Workflow:
    versions = () if known is None else known.versions
    found = next((version for version in versions if version.graph == digest), None)
    if found is None:
        number = 1 + max((version.number for version in versions), default=0)
        found = Version(number, digest, now, command.actor)
        versions = (*versions[1 - VERSIONS_KEPT_MAX :], found) if versions else (found,)
    paused = command.paused if command.paused is not None else known is not None and known.paused
    return Workflow(
        tenant=command.tenant,
        name=command.graph.name,
        version=found.number,
        graph=digest,
        params=command.params,
        versions=versions,
        paused=paused,
        source=command.source,
        doc=command.doc[:1000],
    )


def _reschedule(state: State, command: cm.DeployWorkflow, workflow: Workflow, now: Millis) -> list[Change]:
    key = (workflow.tenant, workflow.name)
    known = state.schedules.get(key)
    if command.schedule is None:
        return [] if known is None else [ScheduleDropped(*key, now)]
    try:
        params = check_params(workflow.params, b"")
    except Refused as refused:
        text = f"a workflow with a schedule must be able to run by itself: {refused.reason}"
        raise Refused("field.value", text, "Give every parameter a default.", path="params") from None
    schedule = scheduled(
        known,
        Schedule(
            tenant=workflow.tenant,
            id=workflow.name,
            graph=workflow.graph,
            spec=command.schedule,
            priority=command.priority,
            params=params,
            version=workflow.version,
        ),
        now,
    )
    return [] if known == schedule else [SchedulePut(schedule, now)]


def pause(state: State, command: cm.PauseWorkflow, now: Millis) -> Decision:
    """Pausing twice changes nothing. Slots that pass meanwhile are treated as after any other absence."""
    known = find_workflow(state, command.tenant, command.workflow)
    if known.paused == command.paused:
        return Decision([], answer=known.name)
    workflow = copy(known)
    workflow.paused = command.paused
    return Decision([WorkflowPut(workflow, now)], answer=known.name)


def drop(state: State, command: cm.DropWorkflow, now: Millis) -> Decision:
    """Take a workflow away with its schedule; its runs go on with what they were made of, and its backfills end."""
    workflow = find_workflow(state, command.tenant, command.workflow)
    key = (workflow.tenant, workflow.name)
    changes: list[Change] = []
    if key in state.schedules:
        changes.append(ScheduleDropped(*key, now))
    changes += [ScheduleDropped(each.tenant, each.id, now) for each in state.backfills_of(*key)]
    return Decision([*changes, WorkflowDropped(*key, now)], answer=workflow.name)


def start_backfill(state: State, command: cm.StartBackfill, now: Millis) -> Decision:
    """Go through the slots of a stretch of the past: a schedule of its own that ends with its last slot."""
    workflow = find_workflow(state, command.tenant, command.workflow)
    check_id(command.backfill, "backfill")
    check_number(len(command.backfill), 1, SCHEDULE_ID_CHARS_MAX, "backfill")
    check_number(command.max_active_runs, 1, BACKFILL_ACTIVE_RUNS_MAX, "max_active_runs")
    if (command.tenant, command.backfill) in state.schedules:
        text = f"there is a backfill or schedule {command.backfill!r} already"
        raise Refused("backfill.exists", text, "Choose another id.", path="backfill")
    known = state.schedules.get((command.tenant, workflow.name))
    spec = backfill_spec(known.spec if known is not None else None, workflow.name, command, now)
    schedule = Schedule(
        tenant=command.tenant,
        id=command.backfill,
        graph=workflow.graph,
        spec=spec,
        priority=PriorityClass.LOW,
        params=check_params(workflow.params, command.params),
        version=workflow.version,
        backfill=True,
    )
    return Decision([SchedulePut(schedule, now)], answer=command.backfill)


def backfill_spec(spec: ScheduleSpec | None, name: str, command: cm.StartBackfill, now: Millis) -> ScheduleSpec:
    """The calendar of a workflow between two instants of the past."""
    if spec is None or spec.cron in (ONCE, CONTINUOUS):
        text = f"workflow {name!r} has no calendar whose slots could be made up for"
        raise Refused("backfill.no_slots", text, "Trigger a run with a date instead.", path="workflow")
    # An interval counts from its beginning: from a slot of its own it hits the same instants.
    first = next_slot(spec, command.start_at - 1) if command.start_at > 0 else next_slot(spec, -1)
    end_at = min(command.end_at, now)
    if first is None or first > end_at:
        text = f"no slot of workflow {name!r} falls between those instants, or all of them are still to come"
        raise Refused("backfill.no_slots", text, "See its schedule: rota workflows NAME.", path="start_at")
    return ScheduleSpec(
        cron=spec.cron,
        every_ms=spec.every_ms,
        zone=spec.zone,
        start_at=first,
        end_at=end_at,
        catch_up=True,
        max_active_runs=command.max_active_runs,
    )


def cancel_backfill(state: State, command: cm.CancelBackfill, now: Millis) -> Decision:
    """Make no more of its runs, and end those that have not ended."""
    schedule = state.schedules.get((command.tenant, command.backfill))
    if schedule is None or not schedule.backfill:
        text = f"there is no backfill {command.backfill!r} that is not over"
        raise Refused("backfill.unknown", text, "List them: rota backfills.", path="backfill")
    changes: list[Change] = [ScheduleDropped(schedule.tenant, schedule.id, now)]
    for run in state.runs.values():
        row = run.row
        is_its = (row.tenant, row.schedule) == (schedule.tenant, schedule.id)
        if is_its and row.state not in RUN_TERMINAL and row.stopping is None:
            changes += stop_run(run, RunState.CANCELLED, "its backfill was cancelled", now)
    return Decision(changes, answer=command.backfill)
