"""What a front end shows over HTTP: that it lives, and its metrics."""

from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.api.agent_scope import check_unbound
from rota.api.auth import ANY_TENANT, Role
from rota.api.http.guard import Outgoing, check_host, check_origin
from rota.api.http.problems import problem_of, respond
from rota.api.tokens import Gate
from rota.core.errors import Refused, Unavailable


class Telemetry(Protocol):
    """Where metrics are."""

    def render(self) -> tuple[bytes, str]:
        """All metrics, and their content type."""
        ...


class FrontEndProbes:
    """Two pages, under the rules that a coordinator has for its own."""

    def __init__(self, gate: Gate, telemetry: Telemetry, hosts: tuple[str, ...] = ()) -> None:
        """`hosts` are names of ours beside loopback, for a service without tokens."""
        self._gate = gate
        self._telemetry = telemetry
        self._hosts = hosts

    async def stop(self) -> None:
        """Nothing goes on by itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        assert scope["type"] == "http", "nothing else is switched on"
        request = Request(scope, receive)
        try:
            response = self._answer(request)
        except (Refused, Unavailable) as trouble:
            response = respond(problem_of(trouble, ""))
        await response(scope, receive, Outgoing(send))

    def _answer(self, request: Request) -> Response:
        path = request.url.path
        if request.method not in ("GET", "HEAD") or path not in ("/metrics", "/healthz"):
            raise Refused("http.path", f"there is no {request.method} {path[:200]}", "Ask for /metrics or /healthz.")
        if path == "/healthz":
            return Response(b'{"status":"ok"}', media_type="application/json")
        self._check(request)
        content, sort = self._telemetry.render()
        return Response(content, media_type=sort)

    def _check(self, request: Request) -> None:
        """They are about all tenants: whoever is of one needs to be more than its reader."""
        if self._gate.is_open:
            check_host(request.headers, self._hosts)
            check_origin(request.headers, request.url.scheme)
        peer = request.client.host if request.client is not None else ""
        who = self._gate.admit(request.headers.get("authorization"), peer=peer)
        try:
            who.may(Role.READER if who.tenant == ANY_TENANT else Role.ADMIN, who.tenant)
            check_unbound(who, "the metrics")
        except Refused as refused:
            self._gate.refused(refused, peer=peer)
            raise
