"""Pages for people beside the API for programs: a browser is known by its session, and trouble is shown as a page.

The pages themselves are not made here: whoever puts the service together brings them.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response

from rota.api.http.endpoints import Endpoint
from rota.api.http.page_sessions import PageSessions
from rota.api.http.problems import Problem

# A browser takes a cookie of the second name only over TLS, from this host and for all of its paths.
COOKIE = "rota_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
SAID_COOKIE = "rota_said"
HTML = "text/html"
_OF_PROGRAMS = "/api/"


class Pages(Struct, frozen=True):
    """The pages, and how trouble is shown to whoever asked for something at this URL."""

    endpoints: tuple[Endpoint, ...]
    show_trouble: Callable[[Problem, str], Response]
    sessions: PageSessions

    def has(self, request: Request, endpoint: Endpoint | None) -> bool:
        """Whether a person asks, who should be shown a page whatever comes of it."""
        if HTML not in request.headers.get("accept", ""):
            return False
        return endpoint.is_page if endpoint is not None else not request.url.path.startswith(_OF_PROGRAMS)


def cookies_in(headers: Headers) -> dict[str, str]:
    """What a browser keeps for us, by name."""
    return cookie_parser(headers.get("cookie", ""))


def sessions_in(cookies: Mapping[str, str], *, is_tls: bool) -> list[str]:
    """Secrets of sessions that a browser sends.

    Over TLS only the `__Host-` cookie counts, which no other host can have set. Without TLS here a proxy may have
    spoken it, so both do.
    """
    names = (SECURE_COOKIE,) if is_tls else (SECURE_COOKIE, COOKIE)
    return [cookies[name] for name in names if cookies.get(name)]


def keep_session(secret: str, *, is_secure: bool) -> dict[str, str]:
    """The header that has a browser keep a session until it is closed: for this host, and out of reach of scripts."""
    return {"Set-Cookie": _cookie(SECURE_COOKIE if is_secure else COOKIE, secret, is_secure=is_secure)}


def forget_session(cookies: Mapping[str, str], *, is_secure: bool) -> dict[str, str]:
    """The header that has a browser forget its session, under the name that it sent."""
    return keep_session("", is_secure=is_secure or SECURE_COOKIE in cookies)


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
