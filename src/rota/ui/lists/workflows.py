"""Workflows: those that are deployed; and one of them, with its versions, its schedule, its runs, and how to run it."""

from typing import Any

from msgspec import Struct

from rota.core.commands import SubmitRun
from rota.core.questions import RunView, WorkflowView
from rota.core.records import Version, Workflow
from rota.ui.acts.workflows import (
    WORKFLOW_DEEDS,
    backfill_offers,
    run_fields,
    subject_of,
    workflow_offers,
)
from rota.ui.lists.listed import Listed, paged
from rota.ui.visits import Visit
from rota.ui.words import command, in_url
from rota.wire.schedules import show_schedule, upcoming
from rota.wire.views import show_param

WORKFLOWS_SHOWN = 50
RUNS_SHOWN = 10
VERSIONS_SHOWN = 20


class WorkflowsFilter(Struct, frozen=True, kw_only=True):
    """Which workflows: by words in their names; from the number `first` on."""

    find: str = ""
    first: int = 0


class WorkflowLine(Struct, frozen=True):
    """A workflow in the list."""

    view: WorkflowView
    schedule: str


async def read_workflows(visit: Visit) -> dict[str, Any]:
    """A page of them."""
    query: WorkflowsFilter = visit.query
    words = query.find.lower().split()
    views = await visit.client.workflows()
    found = [view for view in views if all(word in view.workflow.name.lower() for word in words)]
    page = paged([WorkflowLine(view, show_schedule(view.schedule)) for view in found], query.first, WORKFLOWS_SHOWN)

    def url(first: int) -> str:
        return in_url("/workflows", {"find": query.find, "first": first})

    return {
        "query": query,
        "page": page,
        "total": len(views),
        "before": url(max(0, page.first - WORKFLOWS_SHOWN)) if page.first else "",
        "after": url(page.last) if page.last < page.total else "",
        "cli": command("workflows"),
    }


async def read_one(visit: Visit) -> dict[str, Any]:
    """One of them."""
    view = await visit.client.workflow(visit.path["workflow"])
    workflow = view.workflow
    runs: tuple[RunView, ...] = (await visit.client.runs_page(name=workflow.name, limit=RUNS_SHOWN)).runs
    backfills = [each for each in await visit.client.backfills() if each.workflow == workflow.name]
    subject = subject_of(view)
    (running,) = (deed for deed in WORKFLOW_DEEDS if deed.name == "run")
    return {
        "view": view,
        "workflow": workflow,
        "schedule": show_schedule(view.schedule),
        "upcoming": upcoming(view),
        "versions": _shown_versions(workflow),
        "params": [show_param(param) for param in workflow.params],
        "runs": runs,
        "backfills": [(each, backfill_offers(visit, each)) for each in backfills],
        "offers": [offer for offer in workflow_offers(visit, view) if offer.title != running.title],
        "may_run": visit.rights.may(SubmitRun),
        "run_fields": await run_fields(visit, subject, None),
        "run_seen": running.standing(subject),
        "run_line": running.line(subject, None),
        "form_url": f"{subject.at}/run",
        "cli": command("workflows", workflow.name),
    }


def _shown_versions(workflow: Workflow) -> list[Version]:
    """The newest versions, and the present one if that is older."""
    newest = workflow.versions[::-1]
    return [version for age, version in enumerate(newest) if age < VERSIONS_SHOWN or version.number == workflow.version]


WORKFLOWS = Listed(
    path="/workflows",
    summary="Workflows that are deployed",
    template="workflows.html",
    fragments={"workflows": "workflows_table.html"},
    read=read_workflows,
    query=WorkflowsFilter,
)
WORKFLOW = Listed(
    path="/workflows/{workflow}",
    summary="A workflow",
    template="workflow.html",
    fragments={"head": "workflow_head.html", "runs": "workflow_runs.html", "versions": "workflow_versions.html"},
    read=read_one,
)
