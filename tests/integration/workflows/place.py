"""A `rota up` of its own, and what is done with it: deploying, running, asking over HTTP and with commands."""

import json
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from rota.client.blocking import BlockingRun
from rota.core.questions import TaskView
from tests.integration.deadlines import PATIENCE_S, until
from tests.integration.service.commands import Answer, told, type_in
from tests.integration.service.stage import Process, Stage, open_stage

# Long enough for whatever else this machine is busy with.
LEASE_S = 20
WAIT_S = 60
HEALTHY = """
    import rota

    @rota.task
    def double(number):
        return 2 * number

    @rota.workflow
    def healthy(number: int = 21):
        double(number)
    """


class Place:
    """A service of real processes, with somebody who deploys to it."""

    def __init__(self, stage: Stage, slots: int) -> None:
        self.stage = stage
        self._slots = slots
        self.up = self.start()
        self.client = stage.client()

    def start(self) -> Process:
        """The service, or another one after it was killed, on the same ports and data."""
        self.up = self.stage.start_up(f"--slots={self._slots}")
        return self.up

    def write(self, name: str, text: str) -> Path:
        """A file with workflows, in a folder of its own."""
        folder = self.stage.folder / "written" / name
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.py"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    def deploy(self, name: str, text: str) -> int:
        """Deploy a file with one workflow; its version."""
        (deployed,) = self.client.deploy(self.write(name, text))
        return deployed.version

    def ended(self, workflow: str, params: dict[str, Any] | None = None, **how: Any) -> BlockingRun:
        """A run that was made, once it has ended."""
        run = self.client.trigger(workflow, params, **how)
        run.wait(WAIT_S)
        return run

    def ask(self, method: str, path: str, body: object = None, status: int = 200) -> Any:
        """What HTTP answers, with the status that is expected."""
        url = f"http://127.0.0.1:{self.stage.http_port}/api/v1/{path}"
        response = httpx.request(method, url, json=body, timeout=PATIENCE_S)
        assert response.status_code == status, f"{response.status_code} {response.text}"
        return response.json() if response.content else None

    def type_in(self, *words: str) -> Answer:
        """What a command comes to, whatever that is."""
        return type_in(self.stage, *words)

    def told(self, *words: str) -> Any:
        """What a command says in JSON."""
        return json.loads(told(self.stage, *words, "--json"))

    def check_health(self) -> None:
        """An ordinary workflow still succeeds."""
        self.deploy("healthy", HEALTHY)
        assert self.ended("healthy").result(timeout_s=WAIT_S) == 42
        assert self.stage.get("/healthz").status_code == 200


@contextmanager
def open_place(folder: Path, *, slots: int = 4, lease_s: int = LEASE_S, settings: str = "") -> Iterator[Place]:
    """A place that leaves nothing behind; `settings` is its rota.toml."""
    (folder / "rota.toml").write_text(textwrap.dedent(settings))
    with open_stage(folder, lease_s=lease_s) as stage:
        yield Place(stage, slots)


def states(run: BlockingRun) -> dict[str, str]:
    """The tasks of a run, and where each is."""
    return {view.id: str(view.state) for view in run.tasks()}


def until_state(run: BlockingRun, task: str, state: str) -> TaskView:
    """A task, once it is in this state."""

    def look() -> TaskView | None:
        (view,) = run.tasks(task)
        return view if view.state == state else None

    found = until(look, f"{run.id}/{task} to be {state}")
    assert found is not None
    return found


def log_of(run: BlockingRun, task: str, attempt: int = 0) -> bytes:
    """What an attempt printed."""
    return b"".join(run.logs(task, attempt))
