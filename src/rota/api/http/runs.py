"""Runs over HTTP: making, listing and steering them."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.bodies import (
    CancelBody,
    ClearBody,
    EmptyBody,
    MarkBody,
    MoveBody,
    NoteBody,
    RetryBody,
    SubmitBody,
)
from rota.api.http.endpoints import LINES, Call, Endpoint, reply
from rota.api.http.paging import check_page, next_link
from rota.api.http.reading import NAMES_BYTES_MAX, SUBMISSION_BYTES_MAX, SUBMISSION_ITEMS_MAX
from rota.api.http.streams import encode_lines, stream
from rota.client.happenings import Happening
from rota.core.commands import CancelRun, ClearTasks, ClientCommand, MarkTasks, MoveRun, NoteTask, PauseRun, RetryTasks
from rota.core.errors import Refused
from rota.core.history import GetGraph
from rota.core.model import Graph
from rota.wire.views import RunShape, as_plain, shape_of

RUNS = "/api/v1/runs"
RUN = f"{RUNS}/{{run}}"
ToldShape = shape_of(Happening, name="Told")


class RunsQuery(Struct, frozen=True, kw_only=True):
    """Which runs to list: `label` is `NAME=VALUE`; `after` is what `next` of the page before said."""

    name: str = ""
    state: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    limit: int = 50
    after: str = ""


class RunsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs, the newest first, live ones before ended ones; and from where to go on, empty at the end."""

    runs: list[RunShape]  # pyright: ignore[reportInvalidTypeForm] - made from the view's own fields
    next: str


class ClearAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tasks are run again, or would be, and how the run stands."""

    tasks: list[str]
    run: RunShape  # pyright: ignore[reportInvalidTypeForm] - made from the view's own fields


class StoryQuery(Struct, frozen=True, kw_only=True):
    """`task`: only what concerns this one."""

    task: str = ""


async def submit(call: Call) -> Response:
    """Make a run, or join one; that is answered with 200."""
    body: Any = call.body
    if (body.graph is None) == (not body.digest):
        text = "a run is made of a graph given whole or by its digest"
        raise Refused("field.value", text, "Give `graph` or `digest`, and not both.", path="graph")
    if body.graph is not None:
        graph: Graph = body.graph
    else:
        graph = await call.client.ask(GetGraph(tenant=call.tenant, digest=body.digest))
    run = await call.client.submit(
        graph,
        body.params,
        run=body.run,
        priority=body.priority,
        command_id=call.command_id,
        merge=body.merge,
        labels=body.labels,
        share=body.share,
    )
    return reply(await run.status(), 200 if run.joined else 201, {"Location": f"{RUNS}/{quote(run.id, safe='')}"})


async def list_runs(call: Call) -> Response:
    """A page of runs."""
    query: RunsQuery = call.query
    check_page(query.limit)
    page = await call.client.runs_page(
        name=query.name,
        states=query.state,
        labels=tuple(_label(text) for text in query.label),
        limit=query.limit,
        after=query.after,
    )
    given: list[tuple[str, Any]] = [("name", query.name), ("limit", query.limit)]
    given += [("state", state) for state in query.state]
    given += [("label", text) for text in query.label]
    headers = next_link(RUNS, [*given, ("after", page.next)])
    return reply({"runs": [as_plain(view) for view in page.runs], "next": page.next}, headers=headers)


def _label(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise Refused("field.value", f"{text!r} is no label", "Write NAME=VALUE.", path="label")
    return name, value


async def get_run(call: Call) -> Response:
    """How it stands."""
    return reply(await call.run.status())


async def _steer(call: Call, kind: Callable[..., ClientCommand], **fields: Any) -> Response:
    await call.do(kind, run=call.run.id, **fields)
    return reply(await call.run.status())


async def note_run(call: Call) -> Response:
    """Say something about it."""
    return await _steer(call, NoteTask, task="", note=call.body.note)


async def cancel(call: Call) -> Response:
    """End it."""
    return await _steer(call, CancelRun, reason=call.body.reason)


async def pause(call: Call) -> Response:
    """Hold it."""
    return await _steer(call, PauseRun, paused=True)


async def resume(call: Call) -> Response:
    """Let it go on."""
    return await _steer(call, PauseRun, paused=False)


async def clear(call: Call) -> Response:
    """Run tasks again, or say which would be."""
    body: ClearBody = call.body
    which = {"downstream": body.downstream, "only_failed": body.only_failed}
    tasks = await call.run.would_clear(*body.tasks, **which)
    if not body.dry_run:
        await call.do(ClearTasks, run=call.run.id, tasks=body.tasks, **which)
    return reply({"tasks": tasks, "run": as_plain(await call.run.status())})


async def mark(call: Call) -> Response:
    """Say what tasks came to."""
    return await _steer(call, MarkTasks, tasks=call.body.tasks, to=call.body.to)


async def retry(call: Call) -> Response:
    """Wait no longer."""
    return await _steer(call, RetryTasks, tasks=call.body.tasks)


async def move(call: Call) -> Response:
    """Give it another version."""
    return await _steer(call, MoveRun, version=call.body.version)


async def story(call: Call) -> Response:
    """What happened."""
    return stream(encode_lines(await call.run.happened(call.query.task)), LINES)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="POST",
        path=RUNS,
        role=Role.WRITER,
        serve=submit,
        summary="Make a run of a graph",
        body=SubmitBody,
        body_bytes_max=SUBMISSION_BYTES_MAX,
        body_items_max=SUBMISSION_ITEMS_MAX,
        answer=RunShape,
        status=201,
    ),
    Endpoint(
        method="GET",
        path=RUNS,
        role=Role.READER,
        serve=list_runs,
        summary="List runs, live ones first",
        query=RunsQuery,
        answer=RunsAnswer,
    ),
    Endpoint(method="GET", path=RUN, role=Role.READER, serve=get_run, summary="Show how a run stands", answer=RunShape),
    Endpoint(
        method="POST",
        path=f"{RUN}/cancel",
        role=Role.WRITER,
        serve=cancel,
        summary="End a run and everything in it",
        body=CancelBody,
        answer=RunShape,
    ),
    Endpoint(
        method="PUT",
        path=f"{RUN}/note",
        role=Role.WRITER,
        serve=note_run,
        summary="Say something about a run",
        body=NoteBody,
        answer=RunShape,
    ),
    Endpoint(
        method="POST",
        path=f"{RUN}/pause",
        role=Role.WRITER,
        serve=pause,
        summary="Hold a run's waiting tasks back",
        body=EmptyBody,
        answer=RunShape,
    ),
    Endpoint(
        method="POST",
        path=f"{RUN}/resume",
        role=Role.WRITER,
        serve=resume,
        summary="Let a paused run go on",
        body=EmptyBody,
        answer=RunShape,
    ),
    Endpoint(
        method="POST",
        path=f"{RUN}/clear",
        role=Role.WRITER,
        serve=clear,
        summary="Run ended tasks again",
        body=ClearBody,
        body_bytes_max=NAMES_BYTES_MAX,
        answer=ClearAnswer,
    ),
    Endpoint(
        method="POST",
        path=f"{RUN}/mark",
        role=Role.WRITER,
        serve=mark,
        summary="Say what tasks came to, whatever they are doing",
        body=MarkBody,
        body_bytes_max=NAMES_BYTES_MAX,
        answer=RunShape,
    ),
    Endpoint(
        method="POST",
        path=f"{RUN}/retry",
        role=Role.WRITER,
        serve=retry,
        summary="Try tasks now that wait for another try, and run those again that failed for good",
        body=RetryBody,
        body_bytes_max=NAMES_BYTES_MAX,
        answer=RunShape,
    ),
    Endpoint(
        method="POST",
        path=f"{RUN}/move",
        role=Role.WRITER,
        serve=move,
        summary="Give a run another version of its workflow",
        body=MoveBody,
        answer=RunShape,
    ),
    Endpoint(
        method="GET",
        path=f"{RUN}/story",
        role=Role.READER,
        serve=story,
        summary="Tell what happened to a run, a line each",
        query=StoryQuery,
        answer=ToldShape,
        media=LINES,
    ),
)
