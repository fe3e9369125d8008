"""Workflows over HTTP: deploying, triggering, pausing, and making up for the past."""

from typing import Any
from urllib.parse import quote

from msgspec import Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.bodies import (
    BackfillBody,
    BundleBody,
    DeployBody,
    PausedBody,
    TriggerBody,
    param_from,
)
from rota.api.http.endpoints import Call, Endpoint, nothing, reply
from rota.api.http.reading import SUBMISSION_BYTES_MAX, SUBMISSION_ITEMS_MAX
from rota.api.http.runs import RUNS
from rota.client.deploying import SLOTS_SHOWN_MAX
from rota.client.given import backfill_id
from rota.core.bounds import BUNDLE_PACKED_BYTES_MAX
from rota.core.commands import CancelBackfill, DeployWorkflow, DropWorkflow, PauseWorkflow, StartBackfill
from rota.core.ids import BlobRef, Millis
from rota.core.model import Graph
from rota.wire.deployments import check_workflow_name
from rota.wire.given import packed
from rota.wire.instants import end_of, instant
from rota.wire.requests import PutBundle
from rota.wire.views import BackfillShape, RunShape, WorkflowShape, as_plain

ZIP = "application/zip"
BUNDLE = "/api/v1/bundles/{sha256}"
WORKFLOWS = "/api/v1/workflows"
WORKFLOW = f"{WORKFLOWS}/{{workflow}}"
BACKFILLS = "/api/v1/backfills"
BACKFILL = f"{BACKFILLS}/{{backfill}}"


class WorkflowsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tenant's workflows, by name."""

    workflows: list[WorkflowShape]


class BackfillsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tenant's backfills that are not over."""

    backfills: list[BackfillShape]  # pyright: ignore[reportInvalidTypeForm] - made from the view's own fields


class BackfillAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A backfill: its id, empty if it was only asked what it would be; how many slots it is about, and the first."""

    backfill: str
    slots: int
    first: list[Millis]


async def put_bundle(call: Call) -> Response:
    """Keep it."""
    ref: BlobRef = await call.client.ask(PutBundle(tenant=call.tenant, sha256=call.path["sha256"], content=call.body))
    return reply({"name": ref.name, "size": ref.size, "sha256": ref.sha256})


async def deploy(call: Call) -> Response:
    """Make it the present version."""
    body: Any = call.body
    graph: Graph = body.graph
    check_workflow_name(graph.name)
    await call.do(
        DeployWorkflow,
        graph=graph,
        params=tuple(param_from(param) for param in body.params),
        schedule=body.schedule,
        priority=body.priority,
        paused=body.paused,
        source=body.source,
        doc=body.doc,
        zone=body.zone,
    )
    return reply(await call.client.workflow(graph.name))


async def list_workflows(call: Call) -> Response:
    """All of them."""
    return reply({"workflows": [as_plain(view) for view in await call.client.workflows()]})


async def get_workflow(call: Call) -> Response:
    """One of them."""
    return reply(await call.client.workflow(call.path["workflow"]))


async def change_workflow(call: Call) -> Response:
    """Hold it, or let it go on."""
    await call.do(PauseWorkflow, workflow=call.path["workflow"], paused=call.body.paused)
    return await get_workflow(call)


async def drop_workflow(call: Call) -> Response:
    """Take it away."""
    await call.do(DropWorkflow, workflow=call.path["workflow"])
    return nothing()


async def trigger(call: Call) -> Response:
    """Make a run of it."""
    body: TriggerBody = call.body
    run = await call.client.trigger(
        call.path["workflow"],
        body.params,
        logical_date=body.logical_date or None,
        version=body.version,
        run=body.run,
        priority=body.priority,
        command_id=call.command_id,
    )
    return reply(await run.status(), 201, {"Location": f"{RUNS}/{quote(run.id, safe='')}"})


async def start_backfill(call: Call) -> Response:
    """Begin it, or say what it would be."""
    body: BackfillBody = call.body
    slots = await call.client.backfill_slots(body.workflow, body.start, body.end, limit=SLOTS_SHOWN_MAX)
    id = ""
    if not body.dry_run:
        # The same call makes the same backfill, however often it is sent.
        id = body.backfill or backfill_id(body.workflow, call.command_id)
        await call.do(
            StartBackfill,
            backfill=id,
            workflow=body.workflow,
            start_at=instant(body.start, slots.zone, "start"),
            end_at=end_of(body.end, slots.zone, "end"),
            max_active_runs=body.max_active_runs,
            params=packed(body.params),
        )
    return reply({"backfill": id, "slots": slots.count, "first": slots.first})


async def list_backfills(call: Call) -> Response:
    """All of them."""
    return reply({"backfills": [as_plain(view) for view in await call.client.backfills()]})


async def cancel_backfill(call: Call) -> Response:
    """End it."""
    await call.do(CancelBackfill, backfill=call.path["backfill"])
    return nothing()


def _read(path: str, serve: Any, summary: str, answer: Any) -> Endpoint:
    return Endpoint(method="GET", path=path, role=Role.READER, serve=serve, summary=summary, answer=answer)


def _write(method: str, path: str, serve: Any, summary: str, answer: Any = None, **more: Any) -> Endpoint:
    status = more.pop("status", 200 if answer is not None else 204)
    return Endpoint(
        method=method,
        path=path,
        role=Role.WRITER,
        serve=serve,
        summary=summary,
        answer=answer,
        status=status,
        **more,
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    _write(
        "PUT",
        BUNDLE,
        put_bundle,
        "Keep the code of workflows, a zip named by its SHA-256",
        BundleBody,
        takes=ZIP,
        body_bytes_max=BUNDLE_PACKED_BYTES_MAX,
    ),
    _write(
        "POST",
        WORKFLOWS,
        deploy,
        "Make a graph the present version of the workflow of its name",
        WorkflowShape,
        body=DeployBody,
        body_bytes_max=SUBMISSION_BYTES_MAX,
        body_items_max=SUBMISSION_ITEMS_MAX,
    ),
    _read(WORKFLOWS, list_workflows, "List workflows", WorkflowsAnswer),
    _read(WORKFLOW, get_workflow, "Show a workflow", WorkflowShape),
    _write("PATCH", WORKFLOW, change_workflow, "Pause a workflow, or let it go on", WorkflowShape, body=PausedBody),
    _write("DELETE", WORKFLOW, drop_workflow, "Take a workflow away with its schedule"),
    _write("POST", f"{WORKFLOW}/runs", trigger, "Make a run of a workflow", RunShape, body=TriggerBody, status=201),
    _write("POST", BACKFILLS, start_backfill, "Make runs for slots of the past", BackfillAnswer, body=BackfillBody),
    _read(BACKFILLS, list_backfills, "List backfills that are not over", BackfillsAnswer),
    _write("DELETE", BACKFILL, cancel_backfill, "Cancel a backfill and its runs"),
)
