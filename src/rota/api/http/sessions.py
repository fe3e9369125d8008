"""Agent sessions over HTTP: joining, signs of life, claims, and wakes as server-sent events.

A claim's token is in the answer to the claim, and comes back in a body or in `Rota-Claim-Token`; it is never part of
an address, which others write down.
"""

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from rota.api.auth import Role
from rota.api.desk import Desk
from rota.api.http.endpoints import EVENTS, Call, Endpoint, Serve, nothing, reply
from rota.api.http.paging import is_number
from rota.api.http.streams import stream
from rota.api.sessions import wake_view
from rota.api.wakes import read_place
from rota.core.errors import Refused
from rota.core.ids import Fence
from rota.core.model import Mood
from rota.wire import sessions as ss
from rota.wire.agent_views import (
    ClaimShape,
    RenewedShape,
    SessionShape,
    WakeShape,
    show_claim,
    show_session,
    show_wake,
)
from rota.wire.items import PRIORITY_CLASSES, RESULT_BYTES_MAX, Priority, pack_plain
from rota.wire.sse import BEAT, RETRY, event
from rota.wire.views import shape_of

SESSIONS = "/api/v1/sessions"
SESSION = f"{SESSIONS}/{{session}}"
CLAIMS = f"{SESSION}/claims"
CLAIM = f"{CLAIMS}/{{item}}"

RegisteredShape = shape_of(ss.SessionView, name="RegisteredSession")


class SessionBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session that joins. `limit`: how many claims it may hold; `silence_ms`: after how long a silence it is dead."""

    session: str
    incarnation: str = ""
    agent: str = ""
    workspace: str = ""
    channel: str = ""
    session_type: str = "user"
    capabilities: tuple[str, ...] = ()
    limit: int = 1
    silence_ms: int = 0


class BeatBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session is alive, and perhaps in another mood."""

    incarnation: str = ""
    mood: Mood | None = None


class ClaimBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is claimed: at most `limit` items, none less urgent than `priority`; `wait_ms` is how long it may take."""

    incarnation: str = ""
    limit: int = 1
    lease_ms: int = ss.LEASE_MS
    priority: Priority = Priority.LOW
    workspace: str = ""
    channel: str = ""
    item: str = ""
    wait_ms: int = 0


class HolderBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which claim is meant. The token may be in `Rota-Claim-Token` instead."""

    fence: str
    token: str = ""
    incarnation: str = ""


class RenewBody(HolderBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which claim is kept, and for how long from now on."""

    lease_ms: int = ss.LEASE_MS


class CompleteBody(HolderBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which claim is done, and what came of it."""

    result: Any = None


class FailBody(HolderBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which claim went wrong, and why."""

    error: str


class LifeQuery(Struct, frozen=True, kw_only=True):
    """The incarnation of the session, if it has another name than the session."""

    incarnation: str = ""


class SessionsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sessions, in the order in which they came."""

    sessions: list[SessionShape]  # pyright: ignore[reportInvalidTypeForm] - made from the line's own fields


class HeldAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fences that the session holds."""

    held: list[str]


class ClaimsAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was claimed; empty if there was nothing."""

    claims: list[ClaimShape]  # pyright: ignore[reportInvalidTypeForm] - made from the lease's own fields


def _named(call: Call, incarnation: str) -> dict[str, Any]:
    return {"tenant": call.tenant, "session": call.path["session"], "incarnation": incarnation}


async def register_session(call: Call) -> Response:
    """Join."""
    fields = {name: getattr(call.body, name) for name in SessionBody.__struct_fields__}
    return reply(await call.client.ask(ss.RegisterSession(tenant=call.tenant, **fields)), 201)


async def list_sessions(call: Call) -> Response:
    """All of them."""
    return reply({"sessions": [show_session(line) for line in await call.client.sessions()]})


async def beat_session(call: Call) -> Response:
    """It is alive."""
    request = ss.BeatSession(**_named(call, call.body.incarnation), mood=call.body.mood)
    return reply({"held": [str(fence) for fence in await call.client.ask(request)]})


async def end_session(call: Call) -> Response:
    """It is done."""
    await call.client.ask(ss.EndSession(**_named(call, call.query.incarnation)))
    return nothing()


async def claim_work(call: Call) -> Response:
    """Claim."""
    body: ClaimBody = call.body
    request = ss.ClaimWork(
        **_named(call, body.incarnation),
        command_id=call.command_id,
        limit=body.limit,
        lease_ms=body.lease_ms,
        least=PRIORITY_CLASSES[body.priority],
        workspace=body.workspace,
        channel=body.channel,
        item=body.item,
        wait_ms=body.wait_ms,
    )
    leases: tuple[ss.WorkLease, ...] = await call.client.ask(request)
    # What has a secret in it is not for whoever stores answers on the way.
    return reply({"claims": [show_claim(lease) for lease in leases]}, headers={"Cache-Control": "no-store"})


def _claim(call: Call) -> tuple[dict[str, Any], int]:
    """The lease that a request is about, with the token that shows whose it is."""
    body: HolderBody = call.body
    if not is_number(body.fence):
        # Not shown: somebody may have mixed it up with the token.
        raise Refused("field.value", "this is no fence", "Send it as the claim had it.", path="fence")
    if body.token and call.claim_token and body.token != call.claim_token:
        raise Refused("lease.token", "the body has another token than Rota-Claim-Token", path="token")
    token = body.token or call.claim_token
    if not token:
        hint = "Send what the claim was answered with, in the body or as Rota-Claim-Token."
        raise Refused("lease.token", "this call carries no claim token", hint, path="token")
    return {**_named(call, body.incarnation), "token": token}, int(body.fence)


async def renew_claim(call: Call) -> Response:
    """Keep it."""
    claim, fence = _claim(call)
    until = await call.client.ask(ss.RenewWork(**claim, fence=Fence(fence), lease_ms=call.body.lease_ms))
    return reply({"expires_at": until})


async def _finish(call: Call, ending: ss.Ending, *, result: bytes = b"", error: str = "") -> Response:
    claim, fence = _claim(call)
    item = call.path["item"]
    await call.client.ask(
        ss.FinishWork(**claim, item=item, fence=Fence(fence), ending=ending, result=result, error=error)
    )
    return nothing()


async def complete_claim(call: Call) -> Response:
    """It is done."""
    return await _finish(call, ss.Ending.COMPLETE, result=pack_plain(call.body.result, "result", RESULT_BYTES_MAX))


async def fail_claim(call: Call) -> Response:
    """It went wrong."""
    return await _finish(call, ss.Ending.FAIL, error=call.body.error)


async def release_claim(call: Call) -> Response:
    """Give it back."""
    return await _finish(call, ss.Ending.RELEASE)


def _wakes(desk: Desk) -> Endpoint:
    async def session_wakes(call: Call) -> Response:
        """What a session is told. That somebody reads this is its sign of life; that nobody does is not its end."""
        place = read_place(call.last_event_id) if call.last_event_id else None
        request = ss.BeatSession(**_named(call, call.query.incarnation))
        # Whoever may not speak for the session hears so while there is still a status to say it with.
        await call.client.ask(request)

        async def events() -> AsyncIterator[bytes]:
            yield RETRY
            async with desk.sessions.listening(call.who, request) as ear:
                unread = ear.box.unread
                if place is None:
                    yield event("open", {}, ear.box.id_of(unread[1]))
                try:
                    async for id, wake in ear.walk(place or unread):
                        told = event("reset", {}, id) if wake is None else event("wake", show_wake(wake_view(wake)), id)
                        yield told
                except Refused as refused:
                    yield event("end", {"code": refused.code, "detail": refused.reason})

        return stream(events(), EVENTS, call.readmit, beat=BEAT)

    return Endpoint(
        method="GET",
        path=f"{SESSION}/wakes",
        role=Role.AGENT,
        serve=session_wakes,
        summary="Stream what a session is told of; reading it is the session's sign of life",
        query=LifeQuery,
        answer=WakeShape,
        media=EVENTS,
    )


def _of_claim(name: str, serve: Serve, summary: str, body: type[Struct], answer: Any = None) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{CLAIM}/{name}",
        role=Role.AGENT,
        serve=serve,
        summary=summary,
        body=body,
        answer=answer,
        status=200 if answer is not None else 204,
        takes_claim_token=True,
    )


def endpoints(desk: Desk) -> tuple[Endpoint, ...]:
    """The endpoints; wakes are heard at the desk."""
    return (
        Endpoint(
            method="POST",
            path=SESSIONS,
            role=Role.AGENT,
            serve=register_session,
            summary="Join as an agent session, or describe it anew",
            body=SessionBody,
            answer=RegisteredShape,
            status=201,
        ),
        Endpoint(
            method="GET",
            path=SESSIONS,
            role=Role.READER,
            serve=list_sessions,
            summary="List agent sessions",
            answer=SessionsAnswer,
        ),
        Endpoint(
            method="POST",
            path=f"{SESSION}/beat",
            role=Role.AGENT,
            serve=beat_session,
            summary="Say that a session is alive, and what it is up to",
            body=BeatBody,
            answer=HeldAnswer,
        ),
        Endpoint(
            method="DELETE",
            path=SESSION,
            role=Role.AGENT,
            serve=end_session,
            summary="End a session; what it holds is returned at once",
            query=LifeQuery,
            status=204,
        ),
        _wakes(desk),
        Endpoint(
            method="POST",
            path=CLAIMS,
            role=Role.AGENT,
            serve=claim_work,
            summary="Claim the best work that a session may have, or wait for it",
            body=ClaimBody,
            answer=ClaimsAnswer,
            waits_s=ss.WAIT_MS_MAX / 1000,
        ),
        _of_claim("renew", renew_claim, "Keep a claim", RenewBody, RenewedShape),
        _of_claim("complete", complete_claim, "Say that a claimed item is done", CompleteBody),
        _of_claim("fail", fail_claim, "Say that a claimed item went wrong", FailBody),
        _of_claim("release", release_claim, "Give a claimed item back, unspent", HolderBody),
    )
