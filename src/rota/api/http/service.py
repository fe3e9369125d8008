"""The HTTP interface as one ASGI application: from a request to its endpoint, and from trouble to a problem."""

import asyncio
import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.api.agent_scope import check_unbound
from rota.api.auth import Principal, Role
from rota.api.desk import Desk
from rota.api.http import events, fleet, items, oversight, runs, scheduler, sessions, stream_views, tasks, workflows
from rota.api.http import room as rooms
from rota.api.http.endpoints import (
    Call,
    Endpoint,
    NoSuchMethod,
    Routes,
    claim_token_of,
    command_id_of,
    last_event_id_of,
)
from rota.api.http.feed import Feeds
from rota.api.http.guard import Outgoing, check_form, check_host, check_origin, is_visit
from rota.api.http.large_bodies import is_large, parse_large
from rota.api.http.openapi import describe
from rota.api.http.pages import Pages, cookies_in, sessions_in, url_of
from rota.api.http.probes import Probes, Telemetry
from rota.api.http.problems import problem_of, respond
from rota.api.http.reading import (
    check_single_headers,
    parse,
    read_bytes,
    read_form,
    read_json,
    read_query,
)
from rota.api.http.streams import Stream
from rota.api.line import DeskLine
from rota.api.tokens import Gate
from rota.client.runs import Client
from rota.control.driver import CoordinatorDriver
from rota.core.errors import Refused, Unavailable
from rota.core.graph import check_id
from rota.core.ids import DEFAULT_TENANT

# How long a caller waits at most for an answer that is not a stream.
ANSWER_S = 30.0


class HttpService:
    """Serves one coordinator over HTTP. `hosts` are names of ours beside loopback, for a service without tokens."""

    def __init__(
        self,
        desk: Desk,
        driver: CoordinatorDriver,
        gate: Gate,
        *,
        telemetry: Telemetry | None = None,
        hosts: tuple[str, ...] = (),
        pages: Pages | None = None,
    ) -> None:
        self._desk = desk
        self._driver = driver
        self._gate = gate
        self._telemetry = telemetry
        self._hosts = hosts
        self._pages = pages
        self._feeds = Feeds(desk)
        self._closing = asyncio.Event()
        self._streaming = 0
        described = (
            *runs.ENDPOINTS,
            *tasks.ENDPOINTS,
            *events.endpoints(self._feeds),
            *workflows.ENDPOINTS,
            *items.ENDPOINTS,
            *sessions.endpoints(desk),
            *scheduler.ENDPOINTS,
            *fleet.ENDPOINTS,
            *stream_views.ENDPOINTS,
            *oversight.ENDPOINTS,
            *Probes(driver, telemetry, tells_where=gate.is_open).endpoints(),
        )
        self.endpoints: tuple[Endpoint, ...] = (*described, describe(described))
        self._routes = Routes((*self.endpoints, *(pages.endpoints if pages is not None else ())))

    async def stop(self) -> None:
        """End what would go on by itself. What is being answered is answered."""
        self._closing.set()
        await self._feeds.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. HEAD is answered as GET is, without the body."""
        assert scope["type"] == "http", "nothing else is switched on"
        is_head = scope["method"] == "HEAD"
        if is_head:
            scope = {**scope, "method": "GET"}
        request = Request(scope, receive)
        out = Outgoing(send, is_head=is_head)
        endpoint: Endpoint | None = None
        try:
            endpoint, path = self._routes.find(request.method, scope["raw_path"].decode("ascii"))
            _name_task(endpoint)
            response = await self._answer(request, endpoint, path, out)
            if isinstance(response, Stream) and self._streaming >= rooms.STREAMS_MAX:
                raise Unavailable("service.busy", f"there are {rooms.STREAMS_MAX} streams already.")
        except (Refused, Unavailable) as trouble:
            response = self._troubled(request, endpoint, trouble, _again(request, out.key))
        except Exception as error:
            response = self._troubled(request, endpoint, self._desk.failed(_named(request, endpoint), error))
        try:
            await self._send(response, scope, receive, out)
        except (Refused, Unavailable):
            # It is too late to say so: an answer that breaks off is one that its reader does not trust.
            return
        except Exception as error:
            # Too late as well.
            self._desk.failed(_named(request, endpoint), error)
        finally:
            if self._telemetry is not None:
                self._telemetry.request("http", endpoint.name if endpoint is not None else "other", out.status)

    async def _send(self, response: Response, scope: Scope, receive: Receive, out: Outgoing) -> None:
        if not isinstance(response, Stream):
            await response(scope, receive, out)
            return
        sending = asyncio.ensure_future(response(scope, receive, out))
        closing = asyncio.ensure_future((out.started if out.is_head else self._closing).wait())
        self._streaming += 1
        try:
            await asyncio.wait((sending, closing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streaming -= 1
            closing.cancel()
            if not sending.done():
                sending.cancel()
            await asyncio.wait((sending,))
        if not sending.cancelled():
            sending.result()
        elif out.is_head:
            await out.end()

    async def _answer(self, request: Request, endpoint: Endpoint, path: dict[str, str], out: Outgoing) -> Response:
        check_single_headers(request.headers)
        self._check_browser(request, endpoint)
        peer = _peer(request)
        who, tenant = self._admit(request, endpoint, peer)
        query = read_query(request.query_params, endpoint.query)
        last_event_id = last_event_id_of(request)
        if endpoint.is_command:
            out.key = command_id_of(request) or f"http-{secrets.token_hex(8)}"
        body = await _read_body(request, endpoint)
        version = self._gate.version

        def readmit() -> None:
            nonlocal version
            # A session can end without a change of tokens.
            if self._gate.version != version or endpoint.is_page:
                version = self._gate.version
                if self._admit(request, endpoint, peer, is_use=False) != (who, tenant):
                    # What was begun for one does not go on for another.
                    raise Unavailable("leader.none", "this token stands for somebody else now; begin again.")

        call = Call(
            who=who,
            client=Client(DeskLine(self._desk, who, tenant), patience_s=0),
            path=path,
            query=query,
            body=body,
            command_id=out.key,
            last_event_id=last_event_id,
            claim_token=claim_token_of(request),
            accept=request.headers.get("accept", ""),
            cookies=cookies_in(request.headers) if endpoint.is_page else {},
            session=self._session_of(request)[0] if endpoint.is_page else "",
            url=url_of(request),
            peer=peer,
            is_secure=_is_tls(request) or request.headers.get("origin", "").startswith("https://"),
            check_leads=self._driver.check_leads,
            readmit=readmit,
            demand=lambda role: self._demand(who, role, peer),
        )
        patience_s = ANSWER_S + endpoint.waits_s
        try:
            async with asyncio.timeout(patience_s):
                if endpoint.waits_s:
                    return await _while_connected(request.receive, endpoint, call)
                return await endpoint.serve(call)
        except TimeoutError:
            raise Unavailable("store.unavailable", f"there was no answer within {patience_s:.0f} s.") from None

    def _check_browser(self, request: Request, endpoint: Endpoint) -> None:
        """Refuse what a browser asks on behalf of another site."""
        if endpoint.is_page and request.method != "GET":
            check_form(request.headers, must_say=endpoint.role is not None)
        if not self._gate.is_open or endpoint.role is None:
            return
        check_host(request.headers, self._hosts)
        if not (endpoint.is_page and is_visit(request.headers)):
            check_origin(request.headers, request.scope["scheme"])

    def _troubled(
        self, request: Request, endpoint: Endpoint | None, trouble: Refused | Unavailable, again: str = ""
    ) -> Response:
        problem = problem_of(trouble, again)
        if self._pages is not None and self._pages.has(request, endpoint):
            response = self._pages.show_trouble(problem, url_of(request))
        else:
            response = respond(problem)
        if isinstance(trouble, NoSuchMethod):
            response.headers["Allow"] = ", ".join(trouble.allowed)
        return response

    def _admit(self, request: Request, endpoint: Endpoint, peer: str, *, is_use: bool = True) -> tuple[Principal, str]:
        """Who asks, and for which tenant; refused if they may not. `is_use`: the session of a browser lives on."""
        headers = request.headers
        if endpoint.role is None:
            return Principal("anybody", Role.READER, DEFAULT_TENANT), DEFAULT_TENANT
        asked = None if endpoint.of_all_tenants else headers.get("rota-tenant")
        if asked is not None:
            check_id(asked, "Rota-Tenant")
        token = headers.get("authorization")
        if token is None and endpoint.is_page and self._session_of(request)[0]:
            who = self._admit_session(request, asked, peer, is_use=is_use)
        else:
            who = self._gate.admit(token, asked, peer=peer)
        self._demand(who, endpoint.role, peer, is_page=endpoint.is_page)
        return who, who.acting_tenant

    def _session_of(self, request: Request, *, is_use: bool = False) -> tuple[str, bytes | None]:
        """The secret of the session that a browser sends, and the digest of its token; None if it has ended."""
        if self._gate.is_open or self._pages is None:
            return "", None
        secret = ""
        for secret in sessions_in(cookies_in(request.headers), is_tls=_is_tls(request)):
            digest = self._pages.sessions.find(secret, is_use=is_use)
            if digest is not None:
                return secret, digest
        return secret, None

    def _admit_session(self, request: Request, tenant: str | None, peer: str, *, is_use: bool) -> Principal:
        """Who has signed in. Sessions are the leader's: a follower never asks for a new sign-in."""
        assert self._pages is not None, "there is a page"
        _, digest = self._session_of(request, is_use=is_use)
        if digest is None:
            self._driver.check_leads()
            refused = Refused("auth.session", "this session has ended", "Sign in again.")
            self._gate.refused(refused, peer=peer)
            raise refused
        if not self._gate.is_accepted(digest):
            self._pages.sessions.end_of_token(digest)
        return self._gate.admit_digest(digest, tenant, peer=peer)

    def _demand(self, who: Principal, role: Role, peer: str, *, is_page: bool = False) -> None:
        try:
            who.may(role, who.acting_tenant)
            if is_page:
                # What pages show is kept for all visitors of a tenant.
                check_unbound(who, "the pages")
        except Refused as refused:
            self._gate.refused(refused, peer=peer)
            raise


async def _while_connected(receive: Receive, endpoint: Endpoint, call: Call) -> Response:
    """An answer that may take long. It is not looked for any further when its caller has gone."""
    answer = asyncio.ensure_future(endpoint.serve(call))
    answer.set_name(endpoint.name)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Refused("http.slow", "the caller has gone while it waited for the answer")
        return answer.result()
    finally:
        for task in (answer, gone):
            task.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(request: Request, endpoint: Endpoint) -> Any:
    """What the caller sent besides its address, if the endpoint takes anything."""
    receive, headers, bytes_max = request.receive, request.headers, endpoint.body_bytes_max
    if endpoint.takes:
        return await read_bytes(receive, headers, endpoint.takes, bytes_max)
    if endpoint.body is None:
        return None
    if endpoint.is_page:
        return await read_form(receive, headers, endpoint.body, bytes_max)
    content = await read_json(receive, headers, bytes_max, endpoint.body_items_max)
    return await parse_large(content, endpoint.body) if is_large(endpoint.body) else parse(content, endpoint.body)


def _again(request: Request, key: str) -> str:
    """How to repeat a command, so that it is not carried out twice."""
    if not key:
        return ""
    which = "the same Idempotency-Key" if "idempotency-key" in request.headers else "the Idempotency-Key of this answer"
    return f"Repeat it with {which}."


def _name_task(endpoint: Endpoint) -> None:
    """A pause of the loop is reported with the name of the task that caused it."""
    task = asyncio.current_task()
    if task is not None:
        task.set_name(endpoint.name)


def _named(request: Request, endpoint: Endpoint | None) -> str:
    return endpoint.name if endpoint is not None else f"{request.method} {request.url.path}"


def _is_tls(request: Request) -> bool:
    return request.scope["scheme"] == "https"


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""
