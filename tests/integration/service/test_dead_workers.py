"""A worker that is killed, or frozen past its lease: its work goes to another, and whatever it says later changes nothing."""

import os
import signal
from pathlib import Path

import rota
from tests.integration.deadlines import is_running, until
from tests.integration.service import tasks
from tests.integration.service.stage import Stage, open_stage, until_present, until_task, worker_named


def test_what_a_killed_worker_ran_is_granted_to_another_within_its_lease_and_costs_no_retry(tmp_path: Path):
    with open_stage(tmp_path) as stage:
        stage.start_server()
        first = stage.start_worker("first")
        client = stage.client()
        run = client.submit(tasks.held(str(tmp_path)), run="one")
        until(lambda: tasks.lines(tmp_path), "the task to begin")
        until_task(client, "one", "held", "running")
        first.kill()
        stage.start_worker("second")
        (tmp_path / "go").touch()
        assert run.wait(30).state == "success"
