"""Pages for people beside the interface for programs: who looks is known by a cookie, and trouble is shown as a page.

The pages themselves are not made here: whoever puts the service together brings them.
"""

from collections.abc import Callable

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response

from rota.api.http.endpoints import Endpoint
from rota.api.http.problems import Problem

COOKIE = "rota_token"
SAID_COOKIE = "rota_said"
HTML = "text/html"
_OF_PROGRAMS = "/api/"


class Pages(Struct, frozen=True):
    """The pages, and how trouble is shown to whoever asked for something at this URL."""

    endpoints: tuple[Endpoint, ...]
    show_trouble: Callable[[Problem, str], Response]

    def has(self, request: Request, endpoint: Endpoint | None) -> bool:
        """Whether a person asks, who should be shown a page whatever comes of it."""
        if HTML not in request.headers.get("accept", ""):
            return False
        return endpoint.is_page if endpoint is not None else not request.url.path.startswith(_OF_PROGRAMS)


def cookies_in(headers: Headers) -> dict[str, str]:
    """What a browser keeps for us, by name."""
    return cookie_parser(headers.get("cookie", ""))


def keep_token(token: str, *, is_secure: bool) -> dict[str, str]:
    """The header that has a browser keep a token until it is closed: for us alone, and out of reach of scripts.

    Empty: it forgets the one it has.
    """
    return {"Set-Cookie": _cookie(COOKIE, token, is_secure=is_secure)}


def keep_said(key: str, *, is_secure: bool) -> dict[str, str]:
    """The header that has a browser remember, for one page, which deed it is to be told of. Empty: it was told."""
    return {"Set-Cookie": _cookie(SAID_COOKIE, key, is_secure=is_secure)}


def _cookie(name: str, value: str, *, is_secure: bool) -> str:
    ends = "" if value else "; Max-Age=0"
    secure = "; Secure" if is_secure else ""
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}"


def url_of(request: Request) -> str:
    """What was asked for, on this host."""
    path = request.scope["raw_path"].decode("ascii")
    query = request.scope["query_string"].decode("ascii", errors="replace")
    return f"{path}?{query}" if query else path
