"""Work that is claimed, as a whole, over HTTP: pause, resume, drain, what waits."""

from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.endpoints import LINES, Call, Endpoint, reply
from rota.api.http.streams import stream
from rota.client.scheduling import DRAIN_S, DRAIN_S_MAX, DrainStep
from rota.core.graph import check_number
from rota.wire.agent_views import BacklogShape, SchedulerShape, show_backlog

SCHEDULER = "/api/v1/scheduler"


class PauseBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is paused, one workspace or everything, and why."""

    workspace: str = ""
    reason: str = ""


class ResumeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes on: one workspace, or what was paused as a whole."""

    workspace: str = ""


class DrainBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is paused, and for how long it is waited for."""

    workspace: str = ""
    reason: str = ""
    timeout_s: float = DRAIN_S


class BacklogQuery(Struct, frozen=True, kw_only=True):
    """What to list, and how much of it."""

    workspace: str = ""
    include_paused: bool = True
    limit: int = 50


class BacklogAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What waits, in the order in which it would be claimed."""

    backlog: list[BacklogShape]  # pyright: ignore[reportInvalidTypeForm] - made from the line's own fields


async def get_scheduler(call: Call) -> Response:
    """How it stands."""
    return reply(await call.client.scheduler())


async def pause_scheduler(call: Call) -> Response:
    """Let nobody claim."""
    await call.client.pause_scheduler(workspace=call.body.workspace, reason=call.body.reason, key=call.command_id)
    return await get_scheduler(call)


async def resume_scheduler(call: Call) -> Response:
    """Let claims go on."""
    await call.client.resume_scheduler(workspace=call.body.workspace, key=call.command_id)
    return await get_scheduler(call)


async def drain_scheduler(call: Call) -> Response:
    """Pause, and tell how many leases are left until there are none. Whoever hangs up leaves it paused."""
    body: DrainBody = call.body
    check_number(round(body.timeout_s), 0, DRAIN_S_MAX, "timeout_s")
    steps = call.client.drain_steps(
        timeout_s=body.timeout_s, workspace=body.workspace, reason=body.reason, key=call.command_id
    )
    # What is wrong with it is found by the first step, while there is still a status to say it with.
    first = await anext(steps)

    async def lines() -> AsyncIterator[bytes]:
        yield msgspec.json.encode(first) + b"\n"
        async for step in steps:
            yield msgspec.json.encode(step) + b"\n"

    return stream(lines(), LINES, call.readmit)


async def backlog(call: Call) -> Response:
    """What waits."""
    query: BacklogQuery = call.query
    found = await call.client.backlog(workspace=query.workspace, include_paused=query.include_paused, limit=query.limit)
    return reply({"backlog": [show_backlog(line) for line in found]})


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="GET",
        path=SCHEDULER,
        role=Role.READER,
        serve=get_scheduler,
        summary="Show how work that is claimed stands",
        answer=SchedulerShape,
    ),
    Endpoint(
        method="GET",
        path=f"{SCHEDULER}/backlog",
        role=Role.READER,
        serve=backlog,
        summary="List what waits to be claimed, in the order in which it would be",
        query=BacklogQuery,
        answer=BacklogAnswer,
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULER}/pause",
        role=Role.ADMIN,
        serve=pause_scheduler,
        summary="Let nobody claim work or be woken, in one workspace or anywhere",
        body=PauseBody,
        answer=SchedulerShape,
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULER}/resume",
        role=Role.ADMIN,
        serve=resume_scheduler,
        summary="Let claims and wakes go on",
        body=ResumeBody,
        answer=SchedulerShape,
    ),
    Endpoint(
        method="POST",
        path=f"{SCHEDULER}/drain",
        role=Role.ADMIN,
        serve=drain_scheduler,
        summary="Pause, and tell how many leases are left until there are none or the time is over",
        body=DrainBody,
        answer=DrainStep,
        media=LINES,
    ),
)
