"""What an endpoint is, and one call of it. Routing, authorisation and the OpenAPI document read the same table."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from rota.api.auth import Principal, Role
from rota.api.http.reading import BODY_BYTES_MAX, ITEMS_MAX, JSON, NoQuery
from rota.client.runs import Client, Run
from rota.core.commands import ClientCommand
from rota.core.errors import Refused
from rota.core.graph import check_id
from rota.wire.views import as_plain

EVENTS = "text/event-stream"
TEXT = "text/plain; charset=utf-8"
LINES = "application/x-ndjson"
# Ours are shorter.
LAST_EVENT_ID_CHARS_MAX = 100
CLAIM_TOKEN_CHARS_MAX = 1_000
# Which part of `/api/v1/runs/…` says what it is about.
NOUN_AT = 3


class Call(Struct, kw_only=True):
    """One request that was let in, with everything that was read from it."""

    who: Principal
    client: Client
    path: dict[str, str]
    query: Any
    body: Any
    command_id: str
    last_event_id: str
    # The secret of a claim, if the caller sent it as a header.
    claim_token: str
    accept: str
    # The cookies that a browser keeps for us, by name.
    cookies: dict[str, str]
    # The secret of the browser's session; empty if there is none.
    session: str
    # What was asked for on this host, from where, and whether the caller speaks TLS, to us or to a proxy.
    url: str
    peer: str
    is_secure: bool
    # Raises Unavailable if another coordinator should be asked instead of this one.
    check_leads: Callable[[], None]
    # Raises Refused when the caller's token was revoked; whoever streams asks now and then.
    readmit: Callable[[], None]
    # Raises Refused, and has it counted at the gate, if the caller's role does not cover this one.
    demand: Callable[[Role], None]

    @property
    def tenant(self) -> str:
        """For whom."""
        return self.client.line.tenant

    @property
    def run(self) -> Run:
        """The run in the path, live or ended."""
        return self.client.run(self.path["run"])

    async def do(self, kind: Callable[..., ClientCommand], **fields: Any) -> None:
        """Carry out a command, under the id that the caller chose for it."""
        await self.client.ask(kind(**{"tenant": self.tenant, "command_id": self.command_id, **fields}))


Serve = Callable[[Call], Awaitable[Response]]


class Endpoint(Struct, frozen=True, kw_only=True):
    """One method of one path: who may ask, what is taken, what is answered.

    `role` None: anybody may ask. `of_all_tenants`: it is about all of them, whatever `Rota-Tenant` says.
    `takes` is the type of a body that is not JSON. `answer` None: nothing is answered but a status. `media` is the type
    of the answer; of a stream `answer` is one item of it. `is_page`: it is for people, whose browser sends a cookie,
    and forms rather than JSON. `waits_s`: how much longer than usual its answer may take, if that is asked for.
    """

    method: str
    path: str
    role: Role | None
    serve: Serve
    summary: str
    answer: Any = None
    status: int = 200
    media: str = JSON
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    takes: str = ""
    # What a body may have, and how many values if it is JSON.
    body_bytes_max: int = BODY_BYTES_MAX
    body_items_max: int = ITEMS_MAX
    of_all_tenants: bool = False
    is_page: bool = False
    waits_s: float = 0.0
    takes_claim_token: bool = False

    @property
    def name(self) -> str:
        """Its method and path."""
        return f"{self.method} {self.path}"

    @property
    def is_command(self) -> bool:
        """Whether it changes something, and so takes an Idempotency-Key."""
        return self.method != "GET" and not self.is_page


class Routes:
    """Finds the endpoint of a request. A name in the path may hold any character, `/` as `%2F`."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        self._by_noun: dict[tuple[int, str], list[tuple[tuple[str, ...], Endpoint]]] = {}
        for endpoint in endpoints:
            parts = tuple(endpoint.path.split("/"))
            self._by_noun.setdefault(_noun(parts), []).append((parts, endpoint))

    def find(self, method: str, raw_path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint, and what stands in its path. Raises Refused."""
        parts = raw_path.split("/")
        others: list[str] = []
        for pattern, endpoint in self._by_noun.get(_noun(parts), []):
            found = _match(pattern, parts)
            if found is None:
                continue
            if endpoint.method == method:
                return endpoint, found
            others += ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,)
        if others:
            text = f"{raw_path[:200]} does not take {method[:20]}"
            raise NoSuchMethod("http.method", text, f"It takes {', '.join(others)}.", others)
        hint = "GET /api/v1/openapi.json lists what there is."
        raise Refused("http.path", f"there is nothing at {raw_path[:200]}", hint)


class NoSuchMethod(Refused):
    """The path takes other methods."""

    def __init__(self, code: str, reason: str, hint: str, allowed: list[str]) -> None:
        super().__init__(code, reason, hint)
        self.allowed = allowed


def _noun(parts: Sequence[str]) -> tuple[int, str]:
    """How long a path is, and what it is about: under `/api/v1` every path names that."""
    is_ours = len(parts) > NOUN_AT and parts[1] == "api"
    return len(parts), parts[NOUN_AT] if is_ours else ""


def _match(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for wanted, part in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            if not part:
                return None
            found[wanted[1:-1]] = unquote(part, errors="replace")
        elif wanted != part:
            return None
    return found


def command_id_of(request: Request) -> str:
    """The id under which a command may be repeated; empty if the caller chose none."""
    key = request.headers.get("idempotency-key", "")
    if key:
        check_id(key, "Idempotency-Key")
    return key


def last_event_id_of(request: Request) -> str:
    """After which event a stream goes on; empty if none is named."""
    found = request.headers.get("last-event-id", "")
    if len(found) > LAST_EVENT_ID_CHARS_MAX:
        hint = "Send the id of the last event as it came."
        raise Refused("field.value", f"{found[:40]!r}… is not the id of an event", hint, path="Last-Event-ID")
    return found


def claim_token_of(request: Request) -> str:
    """The secret of a claim; empty if it is not among the headers."""
    return request.headers.get("rota-claim-token", "")[:CLAIM_TOKEN_CHARS_MAX]


def reply(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON; a view is shaped as everywhere."""
    content = as_plain(value) if isinstance(value, Struct) else value
    return Response(msgspec.json.encode(content), status, headers, JSON)


def nothing() -> Response:
    """Done, and there is nothing to say."""
    return Response(status_code=204)
