"""Deciding about workflows: deploy, pause, take away; and about backfills."""

from hashlib import sha256

from msgspec import structs

from rota.core import commands as cm
from rota.core.bounds import (
    BACKFILL_ACTIVE_RUNS_MAX,
    SCHEDULE_ID_CHARS_MAX,
    VERSIONS_KEPT_MAX,
    VERSIONS_KEPT_MIN,
    VERSIONS_PARAMS_BYTES_MAX,
    VERSIONS_TASKS_MAX,
)
from rota.core.calendar import CONTINUOUS, ONCE, ScheduleSpec, check_zone, next_slot
from rota.core.changes import Change, ScheduleDropped, SchedulePut, WorkflowPut
from rota.core.decide.decision import Decision
from rota.core.decide.definitions import scheduled
from rota.core.decide.runs import find_workflow, stop_run, use_graph
from rota.core.errors import Refused
from rota.core.graph import check_id, check_number, check_text, graph_digest
from rota.core.ids import NO_GRAPH, Millis, ScheduleId
from rota.core.model import Param, PriorityClass
from rota.core.params import UTC, check_declared, check_params
from rota.core.records import Schedule, Version, Workflow, copy
from rota.core.state import State
from rota.core.states import RUN_TERMINAL, RunState

_PARAM_BYTES = 200


def deploy(state: State, command: cm.DeployWorkflow, now: Millis) -> Decision:
    """A graph becomes the present version of its workflow. The same content is the same version, and changes nothing.

    A version keeps the bundle that it was first deployed with; files that it does not use may differ in the new one.
    Runs that exist keep the version they have. The calendar goes on where it was, unless it is another one now.
    """
    name = command.graph.name
    _check_name(name)
    check_text(command.source, "source")
    check_text(command.doc[:1000], "doc")
    check_declared(command.params)
    check_text(command.code, "code")
    zone = _zone_of(command)
    changes: list[Change] = []
    known = state.workflows.get((command.tenant, name))
    content = _content_of(command)
    same = next((each for each in known.versions if each.content == content), None) if known and content else None
    digest = same.graph if same is not None else use_graph(state, command.tenant, command.graph, NO_GRAPH, now, changes)
    deployed = _next_version(
        state, known, command, Version(0, digest, now, command.actor, command.params, zone, content)
    )
    calendar, workflow = _reschedule(_own_schedule(state, command.tenant, name), command, deployed, now)
    if known != workflow:
        changes.append(WorkflowPut(workflow, now))
    return Decision([*changes, *calendar], answer=str(workflow.version))


def _check_name(name: str) -> None:
    check_id(name, "graph.name")
    if len(name) > SCHEDULE_ID_CHARS_MAX:
        text = f"a workflow's name of {len(name)} characters leaves no room for the ids of its runs"
        raise Refused("field.size", text, f"Use at most {SCHEDULE_ID_CHARS_MAX} characters.", path="graph.name")


def _zone_of(command: cm.DeployWorkflow) -> str:
    """The time zone of the workflow's dates, checked."""
    of_schedule = UTC if command.schedule is None else command.schedule.zone
    zone = command.zone or of_schedule
    check_zone(zone)
    if command.schedule is not None and zone != of_schedule:
        text = f"the workflow is in time zone {zone}, and its schedule in {of_schedule}"
        raise Refused("field.value", text, "Give both the same, or leave the workflow's out.", path="zone")
    return zone


def _content_of(command: cm.DeployWorkflow) -> str:
    """The digest of a workflow's code, and of its graph without the bundle, which may have files it does not use."""
    if not command.code:
        return ""
    graph = graph_digest(structs.replace(command.graph, bundle=None))
    return sha256(f"{command.code} {graph}".encode()).hexdigest()


def _next_version(state: State, known: Workflow | None, command: cm.DeployWorkflow, wanted: Version) -> Workflow:
    """The workflow with this version, which has the number of the one with the same graph, or the next one."""
    versions = () if known is None else known.versions
    latest = 0 if known is None else known.latest
    found = next((each for each in versions if each.graph == wanted.graph), None)
    if found is None:
        latest += 1
        found = structs.replace(wanted, number=latest)
        versions = _kept_versions(state, command, (*versions, found))
    else:
        content = wanted.content or found.content
        found = structs.replace(found, params=wanted.params, zone=wanted.zone, content=content)
        versions = tuple(found if each.number == found.number else each for each in versions)
    paused = command.paused if command.paused is not None else known is not None and known.paused
    return Workflow(
        tenant=command.tenant,
        name=command.graph.name,
        version=found.number,
        graph=found.graph,
        versions=versions,
        paused=paused,
        source=command.source,
        doc=command.doc[:1000],
        latest=latest,
        spec=None if known is None else known.spec,
        cursor=None if known is None else known.cursor,
    )


def _kept_versions(state: State, command: cm.DeployWorkflow, versions: tuple[Version, ...]) -> tuple[Version, ...]:
    """The versions that are kept: the newest ones, and those that backfills make runs of."""
    backfilled = [each.version for each in state.schedules_of(command.tenant, command.graph.name) if each.backfill]
    tasks = params_bytes = 0
    kept: list[Version] = []
    for age, version in enumerate(reversed(versions)):
        graph = state.graphs.get((command.tenant, version.graph))
        tasks += len(command.graph.tasks if graph is None else graph.graph.tasks)
        params_bytes += sum(_size_of(param) for param in version.params)
        is_small = tasks <= VERSIONS_TASKS_MAX and params_bytes <= VERSIONS_PARAMS_BYTES_MAX
        is_new = age < VERSIONS_KEPT_MIN or (age < VERSIONS_KEPT_MAX and is_small)
        if is_new or version.number in backfilled:
            kept.append(version)
    return tuple(reversed(kept))


def _size_of(param: Param) -> int:
    """About how many bytes a declared parameter takes in the workflow's record: its values and texts, and the rest."""
    values = len(param.default or b"") + sum(len(choice) for choice in param.choices)
    return values + len(param.doc) + len(param.pattern) + _PARAM_BYTES


def _own_schedule(state: State, tenant: str, name: str) -> Schedule | None:
    """The calendar of a workflow. Refuses if something else has its name."""
    known = state.schedules.get((tenant, ScheduleId(name)))
    if known is not None and (known.backfill or not known.version):
        text = f"there is a backfill or schedule {name!r} that is not this workflow's"
        raise Refused("backfill.exists", text, "Rename the workflow, or end that first.", path="graph.name")
    return known


def _reschedule(
    known: Schedule | None, command: cm.DeployWorkflow, workflow: Workflow, now: Millis
) -> tuple[list[Change], Workflow]:
    """What becomes of the calendar, and the workflow that remembers one that was taken away."""
    if command.schedule is None:
        if known is None:
            return [], workflow
        remembered = structs.replace(workflow, spec=known.spec, cursor=known.cursor)
        return [ScheduleDropped(known.tenant, known.id, now)], remembered
    try:
        params = check_params(workflow.params, b"")
    except Refused as refused:
        text = f"a workflow with a schedule must be able to run by itself: {refused.reason}"
        raise Refused("field.value", text, "Give every parameter a default.", path="params") from None
    schedule = Schedule(
        tenant=workflow.tenant,
        id=ScheduleId(workflow.name),
        graph=workflow.graph,
        spec=command.schedule,
        priority=command.priority,
        params=params,
        version=workflow.version,
    )
    earlier = known
    if known is None and workflow.spec is not None and workflow.cursor is not None:
        # It had one before: what that has decided stays decided. Without catch-up it begins now, like a new one.
        cursor = workflow.cursor if command.schedule.catch_up else max(workflow.cursor, now)
        earlier = structs.replace(schedule, spec=workflow.spec, cursor=cursor)
    schedule = scheduled(earlier, schedule, now)
    return [] if known == schedule else [SchedulePut(schedule, now)], workflow


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
    known = find_workflow(state, command.tenant, command.workflow)
    calendars = state.schedules_of(known.tenant, known.name)
    own = next((each for each in calendars if not each.backfill), None)
    workflow = structs.replace(known, versions=(), paused=False, is_dropped=True, graph=NO_GRAPH)
    if own is not None:
        workflow = structs.replace(workflow, spec=own.spec, cursor=own.cursor)
    changes: list[Change] = [ScheduleDropped(each.tenant, each.id, now) for each in calendars]
    return Decision([*changes, WorkflowPut(workflow, now)], answer=known.name)


def start_backfill(state: State, command: cm.StartBackfill, now: Millis) -> Decision:
    """Go through the slots of a stretch of the past: a schedule of its own that ends with its last slot."""
    workflow = find_workflow(state, command.tenant, command.workflow)
    check_id(command.backfill, "backfill")
    check_number(len(command.backfill), 1, SCHEDULE_ID_CHARS_MAX, "backfill")
    check_number(command.max_active_runs, 1, BACKFILL_ACTIVE_RUNS_MAX, "max_active_runs")
    if (command.tenant, command.backfill) in state.schedules:
        text = f"there is a backfill or schedule {command.backfill!r} already"
        raise Refused("backfill.exists", text, "Choose another id.", path="backfill")
    known = state.schedules.get((command.tenant, ScheduleId(workflow.name)))
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
