"""A coordinator that was killed comes back: the worker in its own process is known to be gone, and no other is."""

from pathlib import Path

import pytest

import rota
from tests.integration.deadlines import until
from tests.integration.service import tasks
from tests.integration.service.stage import open_stage, until_task

pytestmark = pytest.mark.full

PATIENCE_S = 30
# Whoever is not struck off is waited for this long, which is longer than the test may take.
LEASE_S = 60


def test_the_worker_of_the_process_is_struck_off_whomever_it_served_and_one_of_a_similar_name_is_not(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with open_stage(tmp_path, lease_s=LEASE_S) as stage:
        up = stage.start_up("--slots=1", env={"ROTA_WORKER_TENANTS": "acme"})
        stage.start_worker("local-elsewhere", env={"ROTA_WORKER_TENANTS": "default"})
        client = stage.client()
        with rota.connect(stage.url, tenant="acme") as acme:
            lost = acme.submit(tasks.held, {"folder": str(here)}, run="lost")
            kept = client.submit(tasks.held, {"folder": str(there)}, run="kept")
            until(lambda: tasks.lines(here, tasks.BEGAN) and tasks.lines(there, tasks.BEGAN), "both to begin")
            until_task(acme, "lost", "held", "running")
            until_task(client, "kept", "held", "running")
            up.kill()
            stage.start_up("--slots=1", env={"ROTA_WORKER_TENANTS": "acme"})
            for folder in (here, there):
                (folder / "go").touch()
            assert lost.wait(PATIENCE_S).state == "success"
            assert kept.wait(PATIENCE_S).state == "success"
            assert "struck off" in "\n".join(lost.story("held"))
            assert "struck off" not in "\n".join(kept.story("held"))
    assert len(tasks.lines(there, tasks.BEGAN)) == 1, "the one elsewhere went on"
