"""A real coordinator with its HTTP port, and sessions that speak to it as an agent would: over HTTP alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import httpx

from tests.integration.http_stage import PATIENCE_S, Event, Stage, read_events, staged

AGENT = "agent+*:agent-secret"
OTHER = "agent+write:other-secret"
TOKENS = f"admin:admin-secret,writer:writer-secret,reader:reader-secret,{AGENT},{OTHER}"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@contextmanager
def open_stage(folder: Path | None = None, **options: Any) -> Iterator["Agents"]:
    """Everything in this process, without a push worker."""
    with staged(folder, slots=0, **options) as stage:
        yield Agents(stage)


class Agents:
    """What tests ask over HTTP. Without `headers` nobody needs a token."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.headers: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        more = {} if method in ("GET", "DELETE") else {"json": {} if body is None else body}
        return self.stage.ask(method, path, status, headers=sent, **more)

    def post(self, path: str, body: Any = None, status: int = 200, **headers: str) -> Any:
        return self.ask("POST", path, body, status, **headers)

    def get(self, path: str, status: int = 200) -> Any:
        return self.ask("GET", path, status=status)

    def submit(self, title: str = "do it", **about: Any) -> str:
        return self.post("work", {"title": title, **about}, 201)["item"]

    def register(self, session: str, **about: Any) -> Any:
        return self.post("sessions", {"session": session, **about}, 201)

    def claim(self, session: str, status: int = 200, key: str = "", **about: Any) -> Any:
        headers = {"Idempotency_Key": key} if key else {}
        answer = self.post(f"sessions/{session}/claims", about, status, **headers)
        return answer["claims"] if status == 200 else answer

    def finish(self, session: str, claim: Any, how: str = "complete", status: int = 204, **about: Any) -> Any:
        body = {"fence": claim["fence"], "token": claim["token"], **about}
        return self.post(f"sessions/{session}/claims/{claim['item']}/{how}", body, status)

    def state(self, item: str) -> str:
        return self.get(f"work/{item}")["state"]

    @contextmanager
    def wakes(self, session: str, last: str = "") -> Iterator["Wakes"]:
        headers = {**self.headers, **({"Last-Event-ID": last} if last else {})}
        with self.stage.http.stream("GET", f"/api/v1/sessions/{session}/wakes", headers=headers) as response:
            assert response.status_code == 200, response.read()
            yield Wakes(response)


class Wakes:
    """An open stream of wakes. A thread reads it, so that a test can wait for the next with an end in sight."""

    def __init__(self, response: httpx.Response) -> None:
        self._got: SimpleQueue[Event | None] = SimpleQueue()
        self._response = response
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for event in read_events(self._response):
                self._got.put(event)
        except (httpx.HTTPError, httpx.StreamError):
            pass
        self._got.put(None)

    def next(self, name: str = "") -> Event:
        """The next event, which has this name."""
        event = self._got.get(timeout=PATIENCE_S)
        assert event is not None, "the stream has ended"
        assert not name or event.name == name, (event.name, event.value)
        return event
