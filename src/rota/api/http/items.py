"""Work items over HTTP: making and listing them, and what a person does about one or several."""

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.http.bodies import CancelBody, EmptyBody
from rota.api.http.endpoints import Call, Endpoint, Serve, reply
from rota.api.http.paging import check_page, next_link
from rota.client.items import Item
from rota.core.commands import Exit
from rota.wire.agent_views import ItemShape, show_item
from rota.wire.items import ATTEMPTS, ApprovalPolicy, BulkOutcome, Priority

ITEMS = "/api/v1/work"
ITEM = f"{ITEMS}/{{item}}"


class WorkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An item to be made. `owner` is `pool:AGENT`, `session:ID` or nothing; `deadline` a date in ISO form, in UTC."""

    title: str
    payload: Any = None
    requires: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    priority: Priority = Priority.MEDIUM
    workspace: str = ""
    channel: str = ""
    owner: str = ""
    depends_on: tuple[str, ...] = ()
    approval: ApprovalPolicy = ApprovalPolicy.NONE
    max_attempts: int = ATTEMPTS
    deadline: str = ""
    parent: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class ReasonBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is done."""

    reason: str = ""


class ResolveWorkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way out of needs_attention; what is not null replaces what the item asks of a session."""

    exit: Exit = Exit.REQUEUE
    requires: tuple[str, ...] | None = None
    prefers: tuple[str, ...] | None = None
    channel: str | None = None
    owner: str | None = None


class RequeueBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is not null replaces what the item asks of a session."""

    requires: tuple[str, ...] | None = None
    prefers: tuple[str, ...] | None = None
    channel: str | None = None
    owner: str | None = None


class BulkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done about which items, at most 50."""

    action: str
    items: tuple[str, ...]
    reason: str = ""


class BulkAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How it went, item by item."""

    outcomes: list[BulkOutcome]


class ItemsQuery(Struct, frozen=True, kw_only=True):
    """Which items to list; `after` is what `next` of the page before said."""

    workspace: str = ""
    state: tuple[str, ...] = ()
    limit: int = 50
    after: str = ""


class ItemsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Items, the newest first; and from where to go on, empty at the end. With `state` a page may be short."""

    items: list[ItemShape]  # pyright: ignore[reportInvalidTypeForm] - made from the view's own fields
    next: str


async def submit_work(call: Call) -> Response:
    """Make one."""
    fields = {name: getattr(call.body, name) for name in WorkBody.__struct_fields__}
    fields["deadline"] = call.body.deadline or None
    item = await call.client.submit_work(**fields, key=call.command_id)
    return reply(show_item(await item.status()), 201, {"Location": f"{ITEMS}/{quote(item.id, safe='')}"})


async def list_work(call: Call) -> Response:
    """A page of them."""
    query: ItemsQuery = call.query
    check_page(query.limit)
    page = await call.client.items_page(
        workspace=query.workspace, states=query.state, limit=query.limit, after=query.after
    )
    given: list[tuple[str, Any]] = [("workspace", query.workspace), ("limit", query.limit)]
    given += [("state", state) for state in query.state]
    headers = next_link(ITEMS, [*given, ("after", page.next)])
    return reply({"items": [show_item(view) for view in page.items], "next": page.next}, headers=headers)


def _item(call: Call) -> Item:
    return call.client.item(call.path["item"])


async def _shown(call: Call) -> Response:
    return reply(show_item(await _item(call).status()))


async def get_work(call: Call) -> Response:
    """How it stands."""
    return await _shown(call)


async def approve_work(call: Call) -> Response:
    """Let it go on."""
    await _item(call).approve(call.body.reason, key=call.command_id)
    return await _shown(call)


async def reject_work(call: Call) -> Response:
    """End it."""
    await _item(call).reject(call.body.reason, key=call.command_id)
    return await _shown(call)


async def cancel_work(call: Call) -> Response:
    """End it."""
    await _item(call).cancel(call.body.reason, key=call.command_id)
    return await _shown(call)


async def pause_work(call: Call) -> Response:
    """Hold it."""
    await _item(call).pause(key=call.command_id)
    return await _shown(call)


async def resume_work(call: Call) -> Response:
    """Let it go on."""
    await _item(call).resume(key=call.command_id)
    return await _shown(call)


async def release_work(call: Call) -> Response:
    """Take it away."""
    await _item(call).release(call.body.reason, key=call.command_id)
    return await _shown(call)


async def fail_work(call: Call) -> Response:
    """Say that it failed."""
    await _item(call).fail(call.body.reason, key=call.command_id)
    return await _shown(call)


async def retry_work(call: Call) -> Response:
    """Wait no longer."""
    await _item(call).retry(key=call.command_id)
    return await _shown(call)


async def requeue_work(call: Call) -> Response:
    """Let it wait again."""
    await _item(call).requeue(**_asked(call.body, RequeueBody), key=call.command_id)
    return await _shown(call)


async def resolve_work(call: Call) -> Response:
    """Take it out of needs_attention."""
    await _item(call).resolve(call.body.exit, **_asked(call.body, RequeueBody), key=call.command_id)
    return await _shown(call)


def _asked(body: Struct, kind: type[Struct]) -> dict[str, Any]:
    return {name: getattr(body, name) for name in kind.__struct_fields__}


async def bulk_work(call: Call) -> Response:
    """The same about several."""
    body: BulkBody = call.body
    outcomes = await call.client.bulk(body.action, body.items, reason=body.reason, key=call.command_id)
    return reply({"outcomes": outcomes})


def _steer(name: str, serve: Serve, summary: str, body: type[Struct] = ReasonBody) -> Endpoint:
    path = f"{ITEM}/{name}"
    return Endpoint(
        method="POST", path=path, role=Role.WRITER, serve=serve, summary=summary, body=body, answer=ItemShape
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        method="POST",
        path=ITEMS,
        role=Role.WRITER,
        serve=submit_work,
        summary="Make a work item",
        body=WorkBody,
        answer=ItemShape,
        status=201,
    ),
    Endpoint(
        method="GET",
        path=ITEMS,
        role=Role.READER,
        serve=list_work,
        summary="List work items, the newest first",
        query=ItemsQuery,
        answer=ItemsAnswer,
    ),
    Endpoint(
        method="POST",
        path=f"{ITEMS}/bulk",
        role=Role.WRITER,
        serve=bulk_work,
        summary="Do the same about several work items",
        body=BulkBody,
        answer=BulkAnswer,
    ),
    Endpoint(
        method="GET", path=ITEM, role=Role.READER, serve=get_work, summary="Show how an item stands", answer=ItemShape
    ),
    _steer("approve", approve_work, "Let an item that waits for a person go on"),
    _steer("reject", reject_work, "End an item that waits for a person"),
    _steer("cancel", cancel_work, "End an item", CancelBody),
    _steer("pause", pause_work, "Let nobody claim an item, nor what is part of it", EmptyBody),
    _steer("resume", resume_work, "Let an item be claimed again", EmptyBody),
    _steer("release", release_work, "Take an item from whoever has it, at no cost"),
    _steer("fail", fail_work, "Say that an item has failed, and why"),
    _steer("retry", retry_work, "Try an item now, or again if it has failed", EmptyBody),
    _steer("requeue", requeue_work, "Let a parked item wait again, perhaps with other requirements", RequeueBody),
    _steer("resolve", resolve_work, "Take a parked item out of needs_attention", ResolveWorkBody),
)
