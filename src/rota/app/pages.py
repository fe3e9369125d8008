"""The pages, put into the HTTP service: from a call to a visit, and from a page to an endpoint."""

from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import Response

from rota import __version__
from rota.api.auth import Gate, Role
from rota.api.http.endpoints import EVENTS, TEXT, Call, Endpoint
from rota.api.http.pages import HTML, Pages, keep_token
from rota.api.http.streams import stream
from rota.app.clocks import wall_clock
from rota.core.errors import Refused
from rota.ui.pages import Pages as UiPages
from rota.ui.visits import Page, Visit
from rota.wire.sse import BEAT

# A form of ours holds a token, and where to go.
FORM_BYTES_MAX = 16 * 1024


def make_pages(gate: Gate) -> Pages:
    """All pages of a service with this gate."""
    made = UiPages(version=__version__, is_open=gate.is_open)
    return Pages(tuple(_endpoint(page, gate) for page in made.pages), made.show_trouble)


def _endpoint(page: Page, gate: Gate) -> Endpoint:
    return Endpoint(
        method=page.method,
        path=page.path,
        role=None if page.is_public else Role.READER,
        serve=_serve(page, gate),
        summary=page.summary,
        answer=str,
        media=HTML,
        query=page.query,
        body=page.form,
        body_bytes_max=FORM_BYTES_MAX,
        is_page=True,
    )


def _serve(page: Page, gate: Gate) -> Callable[[Call], Awaitable[Response]]:
    async def serve(call: Call) -> Response:
        def stream_events(pieces: AsyncIterator[bytes]) -> Response:
            return stream(pieces, EVENTS, call.readmit, beat=BEAT)

        def sign_in(token: str) -> dict[str, str]:
            who = gate.admit(token, peer=call.peer)
            try:
                who.may(Role.READER, who.acting_tenant)
            except Refused as refused:
                gate.refused(refused, peer=call.peer)
                raise
            return keep_token(token, is_secure=call.is_secure)

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
            sign_out=lambda: keep_token("", is_secure=call.is_secure),
            now=wall_clock(),
        )
        return await page.serve(visit)

    return serve
