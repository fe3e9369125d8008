"""Reading about workflows: their versions, schedules and backfills."""

from msgspec import Struct, structs

from rota.core.calendar import ScheduleSpec, count_slots, next_slot
from rota.core.ids import Millis, ScheduleId
from rota.core.params import zone_of
from rota.core.question import Question
from rota.core.records import Workflow, copy
from rota.core.state import State

VERSIONS_LISTED_MAX = 10


class GetWorkflow(Question, frozen=True, kw_only=True, tag="GetWorkflow"):
    """A workflow by its name."""

    workflow: str


class ListWorkflows(Question, frozen=True, kw_only=True, tag="ListWorkflows"):
    """The tenant's workflows, by name; of each the present version and the newest ones."""


class ListBackfills(Question, frozen=True, kw_only=True, tag="ListBackfills"):
    """Backfills that have not made all their runs yet, or whose runs have not all ended."""


class WorkflowView(Struct, frozen=True, kw_only=True):
    """A workflow as its readers see it: with its schedule, when that fires next, and how many runs there are."""

    workflow: Workflow
    schedule: ScheduleSpec | None
    next_at: Millis | None
    last_slot_at: Millis | None
    active_runs: int
    waiting_runs: int
    max_active_runs: int
    tasks: int
    # The time zone of its dates.
    zone: str = "UTC"


class BackfillView(Struct, frozen=True, kw_only=True):
    """A backfill as its readers see it: how many runs it has made, how many of those live, how many are to be made."""

    id: ScheduleId
    workflow: str
    version: int
    start_at: Millis
    end_at: Millis
    max_active_runs: int
    made: int
    active: int
    left: int


def list_workflow(state: State, workflow: Workflow) -> WorkflowView:
    """A workflow in a list, without its older versions: a list of very many has to fit a message."""
    versions = workflow.versions[-VERSIONS_LISTED_MAX:]
    present = workflow.kept_version(workflow.version)
    if present is not None and present not in versions:
        versions = (present, *versions[1:])
    return view_workflow(state, structs.replace(workflow, versions=versions))


def view_workflow(state: State, workflow: Workflow) -> WorkflowView:
    key = (workflow.tenant, workflow.name)
    schedule = state.schedules.get((workflow.tenant, ScheduleId(workflow.name)))
    graph = state.graphs[(workflow.tenant, workflow.graph)]
    next_at = None
    if schedule is not None and not workflow.paused:
        next_at = next_slot(schedule.spec, state.born_at if schedule.cursor is None else schedule.cursor)
    return WorkflowView(
        workflow=copy(workflow),
        schedule=None if schedule is None else schedule.spec,
        next_at=next_at,
        last_slot_at=None if schedule is None else schedule.cursor,
        active_runs=state.active_runs.get(key, 0),
        waiting_runs=len(state.waiting_runs.get(key, ())),
        max_active_runs=graph.graph.max_active_runs,
        # What is mapped counts as one: how many it will be is not known.
        tasks=sum(width or 1 for width in graph.width),
        zone=zone_of(workflow.kept_version(workflow.version), schedule),
    )


def list_backfills(state: State, question: ListBackfills, now: Millis) -> tuple[BackfillView, ...]:
    views: list[BackfillView] = []
    for key, schedule in state.schedules.items():
        spec = schedule.spec
        if schedule.tenant != question.tenant or not schedule.backfill:
            continue
        assert spec.start_at is not None and spec.end_at is not None, "a backfill has a beginning and an end"
        after = spec.start_at - 1 if schedule.cursor is None else schedule.cursor
        views.append(
            BackfillView(
                id=schedule.id,
                workflow=state.graphs[(schedule.tenant, schedule.graph)].graph.name,
                version=schedule.version,
                start_at=spec.start_at,
                end_at=spec.end_at,
                max_active_runs=spec.max_active_runs,
                made=schedule.fired,
                active=state.scheduled_runs.get(key, 0),
                left=count_slots(spec, after, min(now, spec.end_at)),
            )
        )
    return tuple(views)
