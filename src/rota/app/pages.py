"""The pages, put into the HTTP service: from a call to a visit, and from a page to an endpoint."""

import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from hashlib import sha256

from starlette.responses import Response

from rota import __version__
from rota.api.agent_scope import check_unbound
from rota.api.auth import ANY_TENANT, Role
from rota.api.http.endpoints import EVENTS, TEXT, Call, Endpoint
from rota.api.http.page_sessions import PageSessions
from rota.api.http.pages import HTML, SAID_COOKIE, Pages, forget_session, keep_said, keep_session
from rota.api.http.problems import problem_of
from rota.api.http.streams import stream
from rota.api.tokens import Gate
from rota.app.clocks import wall_clock
from rota.app.lines import NearLine
from rota.client.runs import Client
from rota.control.driver import CoordinatorDriver
from rota.core.errors import Refused, Unavailable
from rota.ui.pages import Pages as UiPages
from rota.ui.trend import keep_trend
from rota.ui.visits import Page, Rights, Visit
from rota.wire.sse import BEAT


def make_pages(gate: Gate, line: NearLine | None = None, tables: Mapping[str, str] | None = None) -> Pages:
    """All pages of a service with this gate. `tables` are those that queries may name, and where each is.

    On the line they learn how things go while this coordinator leads; without, from when somebody first looks.
    """
    made = UiPages(version=__version__, is_open=gate.is_open, tables=tables or {})
    sessions = PageSessions(wall_clock)
    if line is not None:
        driver = line.driver
        driver.on_change(lambda: _end_if_another_leads(driver, sessions))
        client, trend = Client(line, patience_s=0), made.memory.trend(line.tenant)
        line.driver.on_reign("trend", lambda: keep_trend(client, trend))
    # For callers without a session: a page from before a restart has to be looked at again before it is acted on.
    own = secrets.token_bytes(32)
    endpoints = tuple(_endpoint(page, gate, sessions, own) for page in made.pages)
    return Pages(endpoints, made.show_trouble, sessions)


def _end_if_another_leads(driver: CoordinatorDriver, sessions: PageSessions) -> None:
    """Sessions do not come back with a lead: who signed out elsewhere meanwhile would be signed in again."""
    try:
        driver.check_leads()
    except Unavailable:
        sessions.clear()


def _endpoint(page: Page, gate: Gate, sessions: PageSessions, own: bytes) -> Endpoint:
    return Endpoint(
        method=page.method,
        path=page.path,
        role=None if page.is_public else Role.READER,
        serve=_serve(page, gate, sessions, own),
        summary=page.summary,
        answer=str,
        media=HTML,
        query=page.query,
        body=page.form,
        body_bytes_max=page.form_bytes_max,
        is_page=True,
    )


def _serve(page: Page, gate: Gate, sessions: PageSessions, own: bytes) -> Callable[[Call], Awaitable[Response]]:
    async def serve(call: Call) -> Response:
        def stream_events(pieces: AsyncIterator[bytes]) -> Response:
            return stream(pieces, EVENTS, call.readmit, beat=BEAT)

        def sign_in(token: str) -> dict[str, str]:
            # Sessions are the leader's, so that there is one place where they end.
            call.check_leads()
            if gate.is_open:
                return {}
            who = gate.admit(token, peer=call.peer)
            try:
                who.may(Role.READER, who.acting_tenant)
                check_unbound(who, "the pages")
            except Refused as refused:
                gate.refused(refused, peer=call.peer)
                raise
            sessions.end(call.session)
            return keep_session(sessions.begin(gate.digest_of(token)), is_secure=call.is_secure)

        def sign_out() -> dict[str, str]:
            call.check_leads()
            sessions.end(call.session)
            return forget_session(call.cookies, is_secure=call.is_secure)

        visit = Visit(
            client=call.client,
            path=call.path,
            query=call.query,
            form=call.body,
            url=call.url,
            who="" if gate.is_open else call.who.name,
            stream=stream_events,
            stream_text=lambda pieces: stream(pieces, TEXT, call.readmit),
            sign_in=sign_in,
            sign_out=sign_out,
            now=wall_clock(),
            rights=_rights(call, own),
        )
        response = await page.serve(visit)
        if visit.rights.said and page.method == "GET" and HTML in response.headers.get("content-type", ""):
            # It is told on this page, and not again.
            response.headers.append("Set-Cookie", keep_said("", is_secure=call.is_secure)["Set-Cookie"])
        return response

    return serve


def _rights(call: Call, own: bytes) -> Rights:
    return Rights(
        may=call.who.may_do,
        is_of_all_tenants=call.who.tenant == ANY_TENANT,
        seal=seal_of(call.session, own),
        once=secrets.token_hex(16),
        said=call.cookies.get(SAID_COOKIE, ""),
        say=lambda key: keep_said(key, is_secure=call.is_secure),
        status_of=lambda refused: problem_of(refused).status,
    )


def seal_of(secret: str, own: bytes) -> str:
    """What the forms of a session carry: a page of another site cannot work it out.

    It changes with each sign-in. Without sign-in it is this process's own.
    """
    return hmac.new(secret.encode() or own, b"rota forms", sha256).hexdigest()
