"""What keeps browsers honest: headers that every answer has, and checks where nobody is asked for a token.

A service without tokens listens on loopback only, and a browser on the same machine can reach it on behalf of any page
it shows. Such a page gives itself away: by its `Origin`, by `Sec-Fetch-Site`, or, where its name was made to resolve to
loopback, by `Host`.
"""

import asyncio
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Send

from rota.core.errors import Refused

_FROM_HERE = ("same-origin", "none")
_VISIT = ("navigate", "document")
SECURITY_HEADERS: dict[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Outgoing:
    """The way out of one answer: adds the headers, and remembers whether and how it was answered."""

    def __init__(self, send: Send, *, is_head: bool = False) -> None:
        """`is_head`: the request is HEAD, so the headers are sent without the body."""
        self._send = send
        self.is_head = is_head
        self.status = 0
        self.started = asyncio.Event()
        self._is_complete = False
        # The id of the command that is carried out: whoever chose none can repeat it with this one.
        self.key = ""

    async def __call__(self, message: Message) -> None:
        """Pass it on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            if self.key:
                headers["Idempotency-Key"] = self.key
            headers["Date"] = formatdate(usegmt=True)
            self.started.set()
        elif message["type"] == "http.response.body":
            self._is_complete = not message.get("more_body", False)
            if self.is_head:
                message = {**message, "body": b""}
        await self._send(message)

    async def end(self) -> None:
        """Ends a response whose headers were sent, unless it has ended."""
        if self.status and not self._is_complete:
            await self({"type": "http.response.body", "body": b""})


def check_host(headers: Headers, ours: Iterable[str]) -> None:
    """Refuse a request for a name that is not ours."""
    host = headers.get("host", "")
    name = _name_of(host)
    if name in ours or name == "localhost" or _is_loopback(name):
        return
    hint = "Use the address that the service listens on, or configure tokens."
    raise Refused("http.host", f"this is not {host[:100]!r}", hint, path="Host")


def check_origin(headers: Headers, scheme: str) -> None:
    """Refuse what a page of another site asks."""
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    own = f"{scheme}://{headers.get('host', '')}"
    if (site is None or site in _FROM_HERE) and origin in (None, own):
        return
    text = f"a page of {(origin or 'another site')[:100]} may not ask here"
    raise Refused("http.origin", text, "Configure tokens if it should.", path="Origin")


def check_form(headers: Headers, *, must_say: bool = False) -> None:
    """Refuse a form that a page of another site sent. A proxy with TLS may stand between, so schemes may differ.

    `must_say`: it changes something, so a browser that does not say where it comes from is refused, too.
    """
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    is_from_here = site is None or site in _FROM_HERE
    if is_from_here and (origin is None or origin.rpartition("//")[2] == headers.get("host")):
        if not must_say or origin is not None or site == "same-origin":
            return
        text = "whatever sent this form does not say which page it is on"
        raise Refused("http.origin", text, "Use a browser that sends Origin, or /api/v1 with a token.", path="Origin")
    raise Refused("http.origin", f"a page of {(origin or 'another site')[:100]} may not send this here", path="Origin")


def is_visit(headers: Headers) -> bool:
    """Whether a person goes to a page, from wherever: it is shown to them, and to no other page."""
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == _VISIT


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


@lru_cache(100)
def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
