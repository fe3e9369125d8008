"""Requests over HTTP as work: what may be asked for. Checked where they are written, and again where they are sent."""

import re
from urllib.parse import SplitResult, urlsplit

from rota.core.errors import Refused
from rota.core.graph import check_number
from rota.wire.work import HttpWork

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
SCHEMES = {"http": 80, "https": 443}
TIMEOUT_MS_MAX = 300_000
HEADERS_MAX = 64
ACCEPTED_MAX = 32
URL_CHARS_MAX = 8_000
# These say how the message is sent, or to whom, which is the runner's part.
OURS = ("connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade")

_is_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}").fullmatch
_is_address = re.compile(r"[\x21-\x7e]+").fullmatch
_is_value = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,8000}").fullmatch


def check_request(work: HttpWork) -> SplitResult:
    """Refuse a request that cannot be sent; the parts of its address."""
    if work.method not in METHODS:
        raise Refused("field.value", f"{work.method[:20]!r} is no method", f"Use {', '.join(METHODS)}.", path="method")
    check_number(work.timeout_ms, 1, TIMEOUT_MS_MAX, "timeout_ms")
    check_number(len(work.accepted), 1, ACCEPTED_MAX, "accepted")
    for code in work.accepted:
        check_number(code, 100, 599, "accepted")
    check_number(len(work.headers), 0, HEADERS_MAX, "headers")
    for name, value in work.headers:
        if not _is_name(name) or not _is_value(value):
            # Its value may be a secret, and is not repeated.
            raise Refused("field.value", f"the header {name[:80]!r} cannot be sent", path="headers")
        if name.lower() in OURS:
            raise Refused("field.value", f"the header {name!r} is set by whoever sends it", path="headers")
    if work.body and work.method in ("GET", "HEAD"):
        raise Refused("field.value", f"{work.method} has no body", "Use POST, PUT or PATCH.", path="body")
    return check_url(work.url)


def check_url(url: str) -> SplitResult:
    """The parts of an address that can be asked."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused("field.value", f"the address cannot be read: {error}", path="url") from None
    if parts.scheme not in SCHEMES:
        said = f"{parts.scheme[:20]!r} cannot be asked" if parts.scheme else "the address has no scheme"
        raise Refused("field.value", said, "Write http://… or https://….", path="url")
    if not parts.hostname or port == 0 or len(url) > URL_CHARS_MAX or not _is_address(url):
        hint = "Write what is not plain ASCII as %XX, and a name in its xn-- form."
        raise Refused("field.value", f"{show_url(parts)[:200]!r} is no address", hint, path="url")
    if parts.username is not None or parts.password is not None:
        raise Refused(
            "field.value", "the address has a user in it", "Send an Authorization header instead.", path="url"
        )
    return parts


def origin(parts: SplitResult) -> tuple[str, str, int]:
    """Scheme, host and port: whose address it is."""
    return parts.scheme, (parts.hostname or "").lower(), parts.port or SCHEMES[parts.scheme]


def show_url(parts: SplitResult) -> str:
    """An address for people and logs: without what may be secret in it, its user and its query."""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{parts.path or '/'}"
