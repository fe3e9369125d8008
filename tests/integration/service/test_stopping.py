"""Stopping in order: what runs may finish, and what cannot in time is handed back at no cost."""

import signal
from pathlib import Path

import pytest

import rota
from rota.cli import EXIT_UNAVAILABLE
from rota.core.changes import RELEASED
from tests.integration.deadlines import is_running, until
from tests.integration.service import tasks
from tests.integration.service.stage import SHORT_LEASE_S, Process, Stage, open_stage, until_present, until_task

pytestmark = pytest.mark.full

PATIENT = {"ROTA_WORKER_DRAIN_S": "600"}
HASTY = {"ROTA_WORKER_DRAIN_S": "1"}
in_both_ways = pytest.mark.parametrize("command", ["worker", "up"])


def begin(stage: Stage, command: str, env: dict[str, str]) -> tuple[rota.Rota, Process]:
    """A task that runs in a worker of its own, or in `rota up`: a client, and the process that runs it."""
    if command == "up":
        process = stage.start_up("--slots=1", env=env)
        client = stage.client()
    else:
        stage.start_server()
        process = stage.start_worker("first", slots=1, env=env)
        client = stage.client()
        until_present(client, "first")
    client.submit(tasks.held, {"folder": str(stage.folder)}, run="one")
    until(lambda: tasks.lines(stage.folder, tasks.BEGAN), "the task to begin")
    until_task(client, "one", "held", "running")
    return client, process


def follow(stage: Stage, command: str) -> None:
    """Whoever takes over: another worker, or the next `rota up` in the same folder."""
    if command == "up":
        stage.start_up("--slots=1")
    else:
        stage.start_worker("second", slots=1)


@in_both_ways
def test_what_runs_may_finish_before_a_process_stops(tmp_path: Path, command: str):
    with open_stage(tmp_path) as stage:
        client, process = begin(stage, command, PATIENT)
        process.signal(signal.SIGTERM)
        process.until_said("within 600 s")
        (tmp_path / "go").touch()
        assert process.ended() == 0
        if command == "up":
            stage.start_up()
        assert client.run("one").wait(30).state == "success"
        (line,) = tasks.lines(tmp_path, tasks.DONE)
        assert client.run("one").result() == line.fence
        assert len(tasks.lines(tmp_path, tasks.BEGAN)) == 1


@in_both_ways
@pytest.mark.parametrize(
    ("number", "env"), [(signal.SIGTERM, HASTY), (signal.SIGINT, PATIENT)], ids=["out of time", "at once"]
)
def test_what_does_not_finish_is_handed_back_at_no_cost(
    tmp_path: Path, command: str, number: signal.Signals, env: dict[str, str]
):
    with open_stage(tmp_path, lease_s=60) as stage:
        client, process = begin(stage, command, env)
        (first,) = tasks.lines(tmp_path, tasks.BEGAN)
        process.signal(number)
        assert process.ended() == 0
        assert not is_running(first.pid)
        follow(stage, command)
        # Long before its lease is over.
        until(lambda: len(tasks.lines(tmp_path, tasks.BEGAN)) == 2, "the task to begin again")
        again = until_task(client, "one", "held", "running")
        assert (again.attempt, again.interruptions) == (1, 0)
        (tmp_path / "go").touch()
        assert client.run("one").result(timeout_s=30) == again.fence
        (returned,) = [line for line in client.run("one").story() if "LeaseReturned" in line]
        assert RELEASED in returned
        assert "counted" not in returned


def test_a_worker_that_nobody_acknowledges_does_not_wait_for_ever(tmp_path: Path):
    with open_stage(tmp_path, lease_s=SHORT_LEASE_S) as stage:
        _, worker = begin(stage, "worker", {"ROTA_WORKER_DRAIN_S": "0"})
        (server,) = [process for process in stage.processes if process is not worker]
        server.kill()
        (tmp_path / "go").touch()
        until(lambda: tasks.lines(tmp_path, tasks.DONE), "the task to be done while nobody can hear of it")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == EXIT_UNAVAILABLE
        assert "acknowledges" in worker.said()
