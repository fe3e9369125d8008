"""Tasks over HTTP: how they stand and why, what they printed and returned, and the way out of needs_attention."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.bodies import NoteBody, ResolveBody
from rota.api.http.endpoints import TEXT, Call, Endpoint, reply
from rota.api.http.paging import check_page, next_link, read_number
from rota.api.http.reading import JSON
from rota.api.http.runs import RUN, RUNS
from rota.api.http.streams import stream
from rota.core.commands import NoteTask, ResolveTask
from rota.core.errors import Refused, headline
from rota.core.graph import check_number
from rota.core.ids import BlobRef
from rota.core.questions import TaskView
from rota.core.states import SUCCESS
from rota.wire.requests import ReadBlob
from rota.wire.values import PLAIN, unpack
from rota.wire.views import UNREADABLE, ReasonShape, TaskShape, as_plain
from rota.wire.work import AnyValue, StoredValue, decode_value, plain

TASKS = f"{RUN}/tasks"
TASK = f"{TASKS}/{{task}}"
MESSAGE_PACK = "application/msgpack"


class TasksQuery(Struct, frozen=True, kw_only=True):
    """Which tasks to list; `after` is what `next` of the page before said."""

    state: tuple[str, ...] = ()
    limit: int = 100
    after: str = ""


class TasksAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks by their number, and from where to go on, empty at the end."""

    tasks: list[TaskShape]  # pyright: ignore[reportInvalidTypeForm] - made from the view's own fields
    next: str


class WhyAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a task waits; empty if it has ended."""

    state: str
    reasons: list[ReasonShape]  # pyright: ignore[reportInvalidTypeForm] - made from the reason's own fields


class LogsQuery(Struct, frozen=True, kw_only=True):
    """Which attempt, the newest if none is named; `follow` goes on until it has ended."""

    attempt: int = 0
    follow: bool = False


async def list_tasks(call: Call) -> Response:
    """A page of tasks."""
    query: TasksQuery = call.query
    check_page(query.limit)
    page = await call.run.tasks_page(states=query.state, first=read_number(query.after), limit=query.limit)
    place = str(page.next) if page.next >= 0 else ""
    given: list[tuple[str, Any]] = [("limit", query.limit), *(("state", state) for state in query.state)]
    path = f"{RUNS}/{quote(call.run.id, safe='')}/tasks"
    headers = next_link(path, [*given, ("after", place)])
    return reply({"tasks": [as_plain(view) for view in page.tasks], "next": place}, headers=headers)


async def get_task(call: Call) -> Response:
    """How it stands."""
    return reply(await call.run.task(call.path["task"]))


async def resolve(call: Call) -> Response:
    """Take it out of needs_attention."""
    body: ResolveBody = call.body
    requires = None if body.requires is None else tuple(body.requires.items())
    await call.do(ResolveTask, run=call.run.id, task=call.path["task"], exit=body.exit, requires=requires)
    return reply(await call.run.task(call.path["task"]))


async def note(call: Call) -> Response:
    """Say something about it."""
    await call.do(NoteTask, run=call.run.id, task=call.path["task"], note=call.body.note)
    return reply(await call.run.task(call.path["task"]))


async def why(call: Call) -> Response:
    """Why it waits."""
    reasons = await call.run.why(call.path["task"])
    view = await call.run.task(call.path["task"])
    return reply({"state": view.state, "reasons": [as_plain(each) for each in reasons]})


async def logs(call: Call) -> Response:
    """What it printed."""
    query: LogsQuery = call.query
    check_number(query.attempt, 0, 1_000_000, "attempt")
    # Before anything is said: an answer that has begun cannot become a refusal.
    await call.run.check_attempt(call.path["task"], query.attempt, follow=query.follow)
    pieces = call.run.logs(call.path["task"], query.attempt, follow=query.follow)
    return stream(pieces, TEXT, call.readmit)


# A larger result is answered as MessagePack only, as it was stored: to make it JSON would hold up others.
JSON_RESULT_BYTES_MAX = 512 * 1024


async def result(call: Call) -> Response:
    """What it returned."""
    view = await call.run.task(call.path["task"])
    if view.state is not SUCCESS:
        cause = f": {headline(view.error)}" if view.error else ""
        raise Refused("task.no_result", f"task {view.id!r} is {view.state}, it has no result{cause}", path="task")
    value = _envelope(view)
    is_packed = MESSAGE_PACK in call.accept
    if isinstance(value, StoredValue):
        if is_packed:
            return await _stored(call, value.ref)
        if value.ref.size > JSON_RESULT_BYTES_MAX:
            text = f"the result of {view.id!r} has {value.ref.size} bytes, too many to be made JSON here"
            raise Refused("http.accept", text, f"Ask with Accept: {MESSAGE_PACK}.")
        content = await call.client.fetch(value.ref)
    else:
        content = value.content
    if is_packed:
        return Response(content, media_type=MESSAGE_PACK)
    try:
        return reply(msgspec.to_builtins(unpack(PLAIN, content)))
    except UNREADABLE:
        raise Refused("blob.lost", f"the result of {view.id!r} cannot be read", path="task") from None


def _envelope(view: TaskView) -> AnyValue:
    """What a task returned, unopened. A pickle is refused: opening it would run code of whoever made it."""
    if view.result is None:
        return plain(None)
    try:
        value = decode_value(view.result)
    except UNREADABLE:
        raise Refused("blob.lost", f"the result of {view.id!r} cannot be read", path="task") from None
    if value.encoding != PLAIN:
        hint = "Read it with Rota's Python client, which opens it where you run it; or return plain values."
        raise Refused("http.accept", f"the result of {view.id!r} is a {value.encoding}; none is opened here", hint)
    return value


async def _stored(call: Call, ref: BlobRef) -> Response:
    """A large value as it is kept, piece by piece; one that turns out to be another breaks off before its end."""

    async def read(offset: int) -> bytes:
        return await call.client.ask(ReadBlob(tenant=call.tenant, ref=ref, offset=offset))

    first = await read(0)

    async def pieces() -> AsyncIterator[bytes]:
        digest, size, piece = sha256(first), len(first), first
        while size < ref.size:
            yield piece
            piece = await read(size)
            if not piece:
                raise Refused("blob.lost", f"{ref.name} ends too early", path="ref")
            digest.update(piece)
            size += len(piece)
        if digest.hexdigest() != ref.sha256:
            raise Refused("blob.lost", f"{ref.name} is not what was stored", path="ref")
        yield piece

    return stream(pieces(), MESSAGE_PACK, headers={"Content-Length": str(ref.size)})


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="GET",
        path=TASKS,
        role=Role.READER,
        serve=list_tasks,
        summary="List the tasks of a run",
        query=TasksQuery,
        answer=TasksAnswer,
    ),
    Endpoint(
        method="GET", path=TASK, role=Role.READER, serve=get_task, summary="Show how a task stands", answer=TaskShape
    ),
    Endpoint(
        method="POST",
        path=f"{TASK}/resolve",
        role=Role.WRITER,
        serve=resolve,
        summary="Take a parked task out of needs_attention",
        body=ResolveBody,
        answer=TaskShape,
    ),
    Endpoint(
        method="PUT",
        path=f"{TASK}/note",
        role=Role.WRITER,
        serve=note,
        summary="Say something about a task",
        body=NoteBody,
        answer=TaskShape,
    ),
    Endpoint(
        method="GET",
        path=f"{TASK}/why",
        role=Role.READER,
        serve=why,
        summary="Say why a task waits",
        answer=WhyAnswer,
    ),
    Endpoint(
        method="GET",
        path=f"{TASK}/logs",
        role=Role.READER,
        serve=logs,
        summary="Show what an attempt printed",
        query=LogsQuery,
        answer=str,
        media=TEXT,
    ),
    Endpoint(
        method="GET",
        path=f"{TASK}/result",
        role=Role.READER,
        serve=result,
        summary=f"Give what a task returned, as JSON or as {MESSAGE_PACK}",
        answer=Any,
        media=JSON,
    ),
)
