"""A coordinator with a worker and its HTTP port, all real, in this process; and what tests ask it with."""

import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

import rota
from rota.api.analysts import readable
from rota.api.http.endpoints import Endpoint
from rota.api.http.openapi import document
from rota.api.http.server import HttpServer
from rota.api.http.service import HttpService
from rota.api.tokens import Gate
from rota.app.lines import NearLine
from rota.app.pages import make_pages
from rota.config import Secret
from rota.config.settings import Auth
from rota.control.events import Escalate, Tell
from rota.core.errors import Refused
from tests.integration import json_schema

PATIENCE_S = 30.0
LONG = "sleep 1000"


def gate_of(tokens: str | None = None, counted: list[str] | None = None) -> Gate:
    """A gate that accepts these; everybody is let in if none are given."""
    auth = Auth(tokens=Secret(tokens) if tokens is not None else None)
    return Gate(auth, lambda: time.time_ns() // 1_000_000, count=(counted if counted is not None else []).append)


class Counts:
    """Metrics that are only counted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str | int]] = []

    def request(self, surface: str, method: str, code: str | int) -> None:
        self.seen.append((surface, method, code))

    def render(self) -> tuple[bytes, str]:
        return b"rota_is_leader 1.0\n", "text/plain; version=0.0.4"


class Stage:
    """Everything that was started, and how to reach it."""

    def __init__(self, one: rota.Rota, server: HttpServer, service: HttpService, port: int, counts: Counts) -> None:
        self.rota = one
        self.server = server
        self.service = service
        self.port = port
        self.counts = counts
        self.told: list[Tell | Escalate] = []
        self.folder = Path()
        self.tables: dict[str, str] = {}
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    @property
    def line(self) -> NearLine:
        line = self.rota._rota.line
        assert isinstance(line, NearLine)
        return line

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.service.endpoints

    def call(self, make: Callable[[], Any]) -> Any:
        """Run something in the service's own loop."""

        async def inside() -> Any:
            return make()

        return self.rota._thread.call(inside())

    def get(self, path: str, status: int = 200, **options: Any) -> Any:
        return self.ask("GET", path, status, **options)

    def post(self, path: str, body: Any = None, status: int = 200, **options: Any) -> Any:
        return self.ask("POST", path, status, json={} if body is None else body, **options)

    def ask(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        """An answer in JSON, with the status that is expected."""
        place = path if path.startswith("/") else f"/api/v1/{path}"
        response = self.http.request(method, place, **options)
        # A coordinator may lose its lead for a moment on a busy machine: it says so, and a client asks again.
        headers = dict(options.pop("headers", None) or {})
        give_up_at = time.monotonic() + PATIENCE_S
        while status != 503 and "leader.none" in response.text and time.monotonic() < give_up_at:
            headers.update({name: key for name, key in response.headers.items() if name == "idempotency-key"})
            response = self.http.request(method, place, headers=headers, **options)
        assert response.status_code == status, f"{response.status_code} {response.text}"
        self.check_shape(method, place, response)
        return response.json() if response.content else None

    def check_shape(self, method: str, path: str, response: httpx.Response) -> None:
        """Whatever is answered is what the document says."""
        try:
            endpoint, _ = self.service._routes.find(method, path.partition("?")[0])
        except Refused:
            endpoint = None
        answers = self.document["paths"][endpoint.path][method.lower()]["responses"] if endpoint is not None else {}
        if response.is_error:
            assert endpoint is None or str(response.status_code) in answers or "default" in answers
            assert response.headers["content-type"] == "application/problem+json"
            problem = response.json()
            json_schema.check(problem, {"$ref": "#/components/schemas/Problem"}, self.document)
            assert problem["status"] == response.status_code
            assert problem["type"] == f"urn:rota:error:{problem['code']}"
            return
        assert str(response.status_code) in answers, "what is answered is described"
        content = answers[str(response.status_code)].get("content")
        if content is None:
            assert not response.content
            return
        ((sort, described),) = content.items()
        assert response.headers["content-type"].partition(";")[0] == sort
        json_schema.check(response.json(), described["schema"], self.document)

    @cached_property
    def document(self) -> dict[str, Any]:
        return document(self.endpoints)

    def submit(self, *tasks: dict[str, Any], run: str = "", name: str = "g", **more: Any) -> dict[str, Any]:
        """A run of commands."""
        return self.post("runs", {"graph": {"name": name, "tasks": list(tasks)}, "run": run, **more}, 201)

    def ended(self, run: str) -> str:
        """The state in which a run ended, once it has."""
        return self.rota.run(run).wait(PATIENCE_S).state


def shell(id: str, line: str = "true", **more: Any) -> dict[str, Any]:
    """A task that runs a line of shell."""
    return {"id": id, "command": {"shell": line}, **more}


@contextmanager
def staged(
    folder: Path | None = None,
    gate: Gate | None = None,
    tls: ssl.SSLContext | None = None,
    tables: dict[str, str] | None = None,
    **options: Any,
) -> Iterator[Stage]:
    """A stage, and its end."""
    gate = gate or gate_of()
    counts = Counts()
    options.setdefault("slots", 4)
    with rota.Rota.embedded(folder, **options) as one:
        line = one._rota.line
        assert isinstance(line, NearLine)
        told: list[Tell | Escalate] = []

        async def start() -> tuple[HttpServer, HttpService, int]:
            line.desk.listener = told.append
            line.desk._readable = readable(tables or {}, ())
            service = HttpService(line.desk, line.driver, gate, telemetry=counts, pages=make_pages(gate, tables=tables))
            server = HttpServer(service, "127.0.0.1", 0, tls)
            return server, service, await server.start()

        server, service, port = one._thread.call(start())
        stage = Stage(one, server, service, port, counts)
        stage.told, stage.folder, stage.tables = told, folder or Path(), tables or {}
        try:
            with stage.http:
                yield stage
        finally:
            one._thread.call(server.stop())


class Event:
    """One server-sent event."""

    def __init__(self, name: str, id: str, value: Any) -> None:
        self.name, self.id, self.value = name, id, value


def read_events(response: httpx.Response) -> Iterator[Event]:
    """Events as they come; comments are left out."""
    name = id = data = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            id = value
        elif field == "data":
            data = value
        elif not line and name:
            yield Event(name, id, json.loads(data))
            name = id = data = ""
