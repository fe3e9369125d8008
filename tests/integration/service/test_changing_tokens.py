"""Tokens are changed while everything runs: new ones count, old ones end what was begun with them, work goes on."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import rota
from tests.integration.deadlines import until
from tests.integration.service import tasks
from tests.integration.service.stage import Stage, open_stage, until_present, until_task

pytestmark = pytest.mark.full

PATIENCE_S = 60
# Longer than a worker takes to dial again on a busy machine, so that it keeps its work.
LEASE_S = 8
OLD, NEW = "old-admin-secret", "new-admin-secret"
OLD_WORKER, NEW_WORKER = "old-worker-secret", "new-worker-secret"
OLD_LINES = f"admin:{OLD}\nworker:{OLD_WORKER}\n"
NEW_LINES = f"admin:{NEW}\nworker:{NEW_WORKER}\n"


class Rotation:
    """A service whose tokens are in a file, with a worker that has its own in another."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.accepted = stage.folder / "tokens"
        self.presented = stage.folder / "worker-token"
        put(self.accepted, OLD_LINES)
        put(self.presented, f"{OLD_WORKER}\n")
        stage.token = OLD
        self.server = stage.start_server(
            env={
                "ROTA_COORDINATOR_BEARER_TOKEN_FILE": str(self.accepted),
                "ROTA_COORDINATOR_AUTH_RELOAD_INTERVAL_SECS": "1",
            }
        )
        self.worker = stage.start_worker("one", env={"ROTA_EXECUTOR_TASK_BEARER_TOKEN_FILE": str(self.presented)})
        self.client = stage.client()

    def connect(self, token: str) -> rota.Rota:
        return rota.connect(self.stage.url, token=token)

    def is_accepted(self, token: str) -> bool:
        try:
            self.connect(token).close()
        except rota.Refused as refused:
            assert refused.code == "auth.wrong"
            return False
        return True


@pytest.fixture
def rotation(tmp_path: Path) -> Iterator[Rotation]:
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        one = Rotation(stage)
        yield one
        for process in stage.processes:
            said = process.said()
            assert "secret" not in said, "no token is ever written down"
            assert "Traceback" not in said


def put(path: Path, text: str) -> None:
    """Replace a file as a careful operator does."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.rename(path)


class Listener(threading.Thread):
    """Reads something that goes on, until it ends; and how it ended."""

    def __init__(self, walk: Callable[[], Iterator[Any]]) -> None:
        super().__init__(daemon=True)
        self.heard: list[Any] = []
        self.trouble: Exception | None = None
        self._walk = walk
        self.start()

    def run(self) -> None:
        try:
            for each in self._walk():
                self.heard.append(each)
        except Exception as trouble:  # whatever it was, the test looks at it
            self.trouble = trouble

    def until_heard(self) -> None:
        until(lambda: self.heard or not self.is_alive(), "something to be heard")
        assert self.heard, f"it ended with {self.trouble!r}"

    def end(self) -> Exception | None:
        until(lambda: not self.is_alive(), "the stream to end", PATIENCE_S)
        return self.trouble


def over_http(stage: Stage, token: str, path: str) -> Callable[[], Iterator[str]]:
    def walk() -> Iterator[str]:
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{stage.http_port}/api/v1/{path}"
        with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S) as response:
            assert response.status_code == 200, response.read()
            yield from response.iter_lines()

    return walk


@rota.task
def chatty(folder: str) -> int:
    """As `tasks.held`, and talk meanwhile."""
    tasks.note(folder, tasks.BEGAN)
    while not (Path(folder) / "go").exists():
        print("still here", flush=True)  # noqa: T201 - what a task prints is its log
        threading.Event().wait(0.2)
    tasks.note(folder, tasks.DONE)
    return rota.context().fence


def test_old_tokens_end_what_was_begun_with_them_and_work_goes_on(rotation: Rotation, tmp_path: Path):
    stage, run = rotation.stage, rotation.client.submit(chatty, {"folder": str(tmp_path)}, run="long")
    until(lambda: tasks.lines(tmp_path), "the task to begin")
    until_task(rotation.client, "long", "chatty", "running")
    old = [
        Listener(lambda: rotation.connect(OLD).run("long").events()),
        Listener(lambda: rotation.connect(OLD).run("long").logs("chatty", follow=True)),
        Listener(over_http(stage, OLD, "runs/long/events")),
        Listener(over_http(stage, OLD, "events")),
        Listener(over_http(stage, OLD, "runs/long/tasks/chatty/logs?follow=true")),
    ]
    for each in old:
        each.until_heard()

    put(rotation.accepted, OLD_LINES + NEW_LINES)
    until(lambda: rotation.is_accepted(NEW), "the new token to be accepted")
    assert rotation.is_accepted(OLD)
    new = Listener(lambda: rotation.connect(NEW).run("long").events())
    new.until_heard()
    put(rotation.presented, f"{NEW_WORKER}\n")
    assert all(each.is_alive() for each in old)

    put(rotation.accepted, NEW_LINES)
    until(lambda: not rotation.is_accepted(OLD), "the old token to be revoked")
    with pytest.raises(rota.Refused, match=r"auth\.wrong"):
        rotation.client.runs()
    for each in old[:2]:
        trouble = each.end()
        assert isinstance(trouble, rota.Refused), trouble
        assert trouble.code == "auth.wrong"
    with rotation.connect(NEW) as client:
        # Something happens, so that nobody has to wait until it is looked after silent streams.
        client.run("long").pause()
        client.run("long").pause(paused=False)
    for each in old[2:]:
        assert isinstance(each.end(), httpx.RemoteProtocolError), "an answer that breaks off is not taken for whole"
        assert not any("event: end" in line for line in each.heard)

    with rotation.connect(NEW) as client:
        rotation.worker.until_said("auth.wrong")
        until_present(client, "one")
        (tmp_path / "go").touch()
        view = client.run("long").wait(PATIENCE_S)
        assert view.state == "success"
        (task,) = client.run("long").tasks()
        assert (task.attempt, task.fence) == (1, tasks.lines(tmp_path)[0].fence)
        assert len(tasks.lines(tmp_path, tasks.BEGAN)) == 1, "its work was never taken from the worker"
    assert new.end() is None
    assert new.heard[-1].what == "RunEnded"
    assert run.id == "long"


def test_a_file_that_becomes_empty_revokes_everybody_until_it_says_otherwise(rotation: Rotation, tmp_path: Path):
    put(rotation.accepted, "# nobody\n")
    until(lambda: not rotation.is_accepted(OLD), "everybody to be revoked")
    with pytest.raises(rota.Refused, match=r"auth\.wrong"):
        rotation.client.runs()
    assert rotation.stage.get("/api/v1/runs").status_code == 401
    assert rotation.stage.get("/healthz").status_code == 200
    with pytest.raises(rota.Refused, match=r"auth\.missing"):
        rotation.connect("")
    rotation.worker.until_said("auth.wrong")

    put(rotation.accepted, OLD_LINES)
    until(lambda: rotation.is_accepted(OLD), "the tokens to count again")
    (tmp_path / "go").touch()
    assert rotation.client.submit(tasks.step, {"folder": str(tmp_path)}).wait(PATIENCE_S).state == "success"
    assert rotation.worker.said().count('"cause":"auth.wrong"') <= 2, (
        "a worker that keeps trying does not keep saying so"
    )
    assert rotation.worker.popen.poll() is None


def test_a_file_that_cannot_be_read_changes_nothing_and_the_journal_says_so(rotation: Rotation, tmp_path: Path):
    def failed() -> int:
        return rotation.server.said().count('"auth.reload_failed"')

    def broken_by(make: Callable[[], object]) -> None:
        before = failed()
        make()
        until(lambda: rotation.is_accepted(OLD) and failed() > before, "the journal to say so")
        assert rotation.client.runs() is not None

    broken_by(rotation.accepted.unlink)
    broken_by(rotation.accepted.mkdir)
    rotation.accepted.rmdir()
    broken_by(lambda: rotation.accepted.write_bytes(b"\xff\xfe\x00"))
    broken_by(lambda: put(rotation.accepted, f"admn:{NEW}\n"))
    line = next(line for line in rotation.server.said().splitlines() if '"auth.reload_failed"' in line)
    assert '"kept":"2"' in line

    put(rotation.accepted, NEW_LINES)
    until(lambda: rotation.is_accepted(NEW) and not rotation.is_accepted(OLD), "the file to count again")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [(Path.unlink, "cannot be read: No such file"), (lambda path: path.write_bytes(b"\xff\xfe"), "is not text")],
    ids=["gone", "not text"],
)
def test_a_worker_whose_own_file_is_spoilt_says_so_and_keeps_trying(
    rotation: Rotation, tmp_path: Path, spoil: Callable[[Path], object], said: str
):
    spoil(rotation.presented)
    put(rotation.accepted, NEW_LINES)
    rotation.worker.until_said(f"the token file {rotation.presented} {said}")
    put(rotation.presented, f"{NEW_WORKER}\n")
    with rotation.connect(NEW) as client:
        assert client.submit(tasks.step, {"folder": str(tmp_path)}).wait(PATIENCE_S).state == "success"
