"""What a page is, and one visit to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from msgspec import Struct
from starlette.responses import Response

from rota.client.runs import Client
from rota.core.errors import Refused
from rota.core.ids import Millis

# Most forms hold a few words.
FORM_BYTES_MAX = 16 * 1024
# A script or style comes from us or not at all, nothing is sent elsewhere, and no other page may hold ours.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    # With no referrer at all a browser would hide where our own forms come from.
    "Referrer-Policy": "same-origin",
}


class NoQuery(Struct, frozen=True):
    """A page that is the same for everybody."""


def _never(command: type, about: str = "") -> bool:
    del command, about
    return False


class May(Protocol):
    """Whether a command of this type may be asked for, about runs of this kind if that matters."""

    def __call__(self, command: type, about: str = "", /) -> bool: ...


def _silent(_: str) -> dict[str, str]:
    return {}


def _wrong(_: Refused) -> int:
    return 422


class Rights(Struct, frozen=True, kw_only=True):
    """What a visitor may do besides looking, and how their forms are known to be theirs."""

    may: May = _never
    # Whether they may know of other tenants.
    is_of_all_tenants: bool = False
    # What every form of theirs carries: only pages that were made for them have it.
    seal: str = ""
    # Another one for every page, so that what is sent twice from it is done once.
    once: str = ""
    # What they did last and have not been told yet, and headers that have them told on the next page.
    said: str = ""
    say: Callable[[str], dict[str, str]] = _silent
    # What a refusal is in HTTP's own words.
    status_of: Callable[[Refused], int] = _wrong


class Visit(Struct, kw_only=True):
    """One visit by somebody who may see what the client reads."""

    client: Client
    path: dict[str, str]
    query: Any
    form: Any
    # What was asked for, on this host.
    url: str
    # Who it is, as logs name them; empty where nobody is asked.
    who: str
    # Answers that go on: of server-sent events, and of plain text.
    stream: Callable[[AsyncIterator[bytes]], Response]
    stream_text: Callable[[AsyncIterator[bytes]], Response]
    # Headers that let the holder of a token in. Raises Refused.
    sign_in: Callable[[str], dict[str, str]]
    sign_out: Callable[[], dict[str, str]]
    # The service's time of day: a browser's may be another.
    now: Millis
    rights: Rights = Rights()


Serve = Callable[[Visit], Awaitable[Response]]


class Page(Struct, frozen=True, kw_only=True):
    """One page: where it is and how it is made. `is_public`: it is shown to whoever asks."""

    path: str
    serve: Serve
    summary: str
    method: str = "GET"
    query: type[Struct] = NoQuery
    form: type[Struct] | None = None
    form_bytes_max: int = FORM_BYTES_MAX
    is_public: bool = False


def show(content: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A page."""
    said = {**PAGE_HEADERS, **(headers or {})}
    return Response(content.encode(errors="replace"), status, said, "text/html; charset=utf-8")


def go_to(url: str, headers: dict[str, str] | None = None) -> Response:
    """Another page instead."""
    return Response(status_code=303, headers={**PAGE_HEADERS, **(headers or {}), "Location": url})
